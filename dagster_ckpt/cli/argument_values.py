"""Values of command-line arguments. Invalid ones raise `click.BadParameter`, as click's types do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from dagster_ckpt.errors import InvalidPipelineError

if TYPE_CHECKING:
    from datetime import datetime


def number(text: str) -> int:
    """An epoch, or how many rows."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise click.BadParameter(f"{text!r} is not a whole number from 0 on.")
    return value


def shards(text: str) -> int:
    """A number of shards."""
    from dagster_ckpt.ids import SHARDS_MAX, can_be_shards

    value = number(text)
    if not can_be_shards(value) or value > SHARDS_MAX:
        raise click.BadParameter(f"{value} is not a power of two from 1 to {SHARDS_MAX}.")
    return value


def names(text: str) -> list[str]:
    """Names of columns: `a,b`, or, where one has a comma or a space around it, `["a,b", " c"]`."""
    try:
        listed = json.loads(text)
    except ValueError:
        listed = None
    if isinstance(listed, list) and listed and all(isinstance(name, str) for name in listed):
        return listed
    return [name.strip() for name in text.split(",")]


def time(text: str) -> datetime:
    """A time; without an offset it is in UTC."""
    from dagster_ckpt.history.epoch_choice import time_of

    try:
        return time_of(text)
    except InvalidPipelineError as error:
        raise click.BadParameter(str(error)) from error


def duration(text: str) -> str:
    """A length of time above zero, such as `6 hours`."""
    from dagster_ckpt.quantities import milliseconds

    try:
        milliseconds(text, "duration")
    except InvalidPipelineError:
        raise click.BadParameter(f"{text!r} is not a length of time such as '30s' or '6 hours'.") from None
    return text
