"""Which checks of streams run by themselves, and when."""

from collections.abc import Sequence
from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError

EVERY_EPOCHS = 10
"""How often the checks of a continuous stream run, unless the user says more."""


@dataclass(frozen=True)
class EpochChecks:
    """Checks that run after every so many epochs of their stream, or at the times of a cron schedule (then `cron`)."""

    checks: tuple[dg.AssetChecksDefinition, ...]
    every_epochs: int = EVERY_EPOCHS
    cron: str | None = None


def epoch_checks(
    checks: Sequence[dg.AssetChecksDefinition], *, every_epochs: int | None = None, cron: str | None = None
) -> EpochChecks:
    """Run these checks of streams after every `every_epochs` committed epochs, or at the times of `cron`.

        build_streaming_definitions([delays], checks=[epoch_checks([delays_are_plausible], every_epochs=100)])

    For `checks=` of `build_streaming_definitions`. Each run checks the newest committed epoch and does not touch the
    stream, live or not. Raises `InvalidPipelineError` for both or neither, and for anything that is no asset check.
    """
    if (every_epochs is None) == (cron is None):
        raise InvalidPipelineError(
            f"give epoch_checks one of every_epochs and cron. every_epochs={every_epochs}, cron={cron!r}"
        )
    if every_epochs is not None and (type(every_epochs) is not int or every_epochs < 1):
        raise InvalidPipelineError(f"every_epochs is a number of epochs, 1 or more. every_epochs={every_epochs!r}")
    for each in checks:
        stream_key_of(each)
    return EpochChecks(tuple(checks), every_epochs or EVERY_EPOCHS, cron)


def stream_key_of(check: object) -> dg.AssetKey:
    """The asset that the check is of. Raises `InvalidPipelineError` for no check, and for one of several assets."""
    if not isinstance(check, dg.AssetChecksDefinition):
        raise InvalidPipelineError(
            "checks takes asset checks, as @dg.asset_check makes them, and epoch_checks(...) of them. "
            f"check={type(check).__name__}"
        )
    keys = {key.asset_key for key in check.check_keys}
    if len(keys) != 1:
        names = sorted(key.to_user_string() for key in keys)
        raise InvalidPipelineError(
            "a check that runs by epochs covers one stream: write one for each, or put this one into a job of your own "
            f"with a schedule. check={check.node_def.name}, assets={names}"
        )
    return keys.pop()
