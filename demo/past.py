"""The past at work: a stream that goes back an epoch, and one that is forked."""

import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt import CheckpointStore
from demo.report import Report

EPOCHS_BACK = 5
"""How old the epoch is that a fork begins with."""


def roll_back(stream: str, store: CheckpointStore, report: Report) -> None:
    """Let the stream show the epoch before its newest; say what readers see. The stream must have no live writer."""
    history = store.stream(stream)
    newest, before = [info.epoch for info in history.epochs() if not info.abandoned][:2]
    seen = _seen(history.read())
    took_ms = _milliseconds(lambda: history.rollback(before))
    report.say("rollback", f"{stream} from epoch {newest} to {before}, in {took_ms:.0f} ms")
    report.say("", f"its readers see {_seen(history.read())}; before that {seen}")


def tell_forward(stream: str, store: CheckpointStore, report: Report) -> None:
    """Say where the stream is since it was run again, and what readers see."""
    history = store.stream(stream)
    report.say("forward", f"{stream}, run again, is at epoch {history.latest().epoch}: {_seen(history.read())}")


def fork(stream: str, name: str, store: CheckpointStore, report: Report) -> None:
    """Make a new stream of an older epoch of this one; say what readers of both see."""
    history = store.stream(stream)
    epoch = [info.epoch for info in history.epochs() if not info.abandoned][:EPOCHS_BACK][-1]
    took_ms = _milliseconds(lambda: history.fork(name, epoch))
    report.say("fork", f"{stream} as of epoch {epoch} is {name} too, in {took_ms:.0f} ms; nothing was copied")
    report.say("", f"its readers see {_seen(store.stream(name).read())}; those of {stream} {_seen(history.read())}")


def _seen(table: pa.Table) -> str:
    return f"{pc.sum(table['flights']).as_py():,} flights of {table.num_rows} carriers"


def _milliseconds(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return (time.monotonic() - began_s) * 1000
