"""The check that every streaming asset has: `applies_changes`, whether changes of a table elsewhere are applied.

`changes_from` drops a change that is older than what its key has. Some are, whenever a connector has sent changes
again. Where each epoch has some for long, the source's positions have begun again, and rows of the table no longer
change. The check fails then. A run evaluates it when it has opened its stream, when the result changes, and with its
result; the next run goes on from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.recovery.sensor_check import latest_evaluation, to_evaluation
from dagster_ckpt.operators.rows.changes_from import OUTDATED
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch

CHECK = "applies_changes"

LONG_MS = 600_000
"""The check fails when each epoch with rows has dropped outdated changes for this long."""

_SINCE, _UNTIL, _CHANGES = "outdated_since", "outdated_until", OUTDATED


def check_spec(key: dg.AssetKey) -> dg.AssetCheckSpec:
    """The check as an asset declares it."""
    return dg.AssetCheckSpec(
        CHECK,
        asset=key,
        description="Fails when each epoch of `changes_from` has dropped outdated changes for 10 minutes: the source's "
        "positions may have begun again, and then the rows of the table no longer change. Passes for all other steps.",
    )


@dataclass(frozen=True)
class OutdatedChanges:
    """How many changes were dropped since `since_ms`, the last time at `until_ms` (Unix times); 0 for none.

    No epoch in between has had rows without dropping some.
    """

    since_ms: int = 0
    until_ms: int = 0
    changes: int = 0

    def after(self, rows: int, outdated: int, now_ms: int) -> "OutdatedChanges":
        """With an epoch that has read `rows` and dropped `outdated` of them."""
        if outdated:
            return OutdatedChanges(self.since_ms or now_ms, now_ms, self.changes + outdated)
        return NONE_OUTDATED if rows else self

    @property
    def is_long(self) -> bool:
        """Whether this has gone on for so long that the check fails."""
        return self.until_ms - self.since_ms >= LONG_MS

    @property
    def description(self) -> str:
        if not self.changes:
            return "No change was dropped as outdated by the last epoch with changes."
        dropped = (
            f"From {_time(self.since_ms)} to {_time(self.until_ms)} each epoch has dropped outdated changes, "
            f"{self.changes} in all: the table has its keys at later positions of the source's log."
        )
        if not self.is_long:
            return f"{dropped} A connector that sends changes again does that for a while."
        return (
            f"{dropped} The rows of these keys stay as they were.\n\n"
            "**What to do**: compare a row with its source. If they differ, the source's positions have begun again, "
            "for example on another server after a failover: give changes_from an order that has a place for that "
            "(sequence=), and rebuild the stream. If they do not, the connector reads an old part of the log again."
        )

    def metadata(self) -> dict[str, dg.MetadataValue[Any]]:
        """What the next run needs to go on."""
        if not self.changes:
            return {}
        return {
            _SINCE: dg.MetadataValue.timestamp(self.since_ms / 1000),
            _UNTIL: dg.MetadataValue.timestamp(self.until_ms / 1000),
            _CHANGES: dg.MetadataValue.int(self.changes),
        }


NONE_OUTDATED = OutdatedChanges()


def result(key: dg.AssetKey, outdated: OutdatedChanges) -> dg.AssetCheckResult:
    """The check in the result of a step."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=CHECK,
        passed=not outdated.is_long,
        description=outdated.description,
        metadata=outdated.metadata(),
    )


def latest(instance: dg.DagsterInstance, key: dg.AssetKey) -> OutdatedChanges:
    """What the last evaluation in Dagster says."""
    shown = latest_evaluation(instance, dg.AssetCheckKey(key, CHECK))
    metadata: Any = {} if shown is None else shown.metadata
    if not {_SINCE, _UNTIL, _CHANGES} <= metadata.keys():
        return NONE_OUTDATED
    since_s, until_s, changes = (metadata[label].value for label in (_SINCE, _UNTIL, _CHANGES))
    return OutdatedChanges(round(since_s * 1000), round(until_s * 1000), changes)


class OutdatedWatch:
    """Follows the epochs of one run, and reports the check where its result changes."""

    def __init__(
        self,
        key: dg.AssetKey,
        outdated: OutdatedChanges,
        report: Callable[[Manifest, dg.AssetCheckEvaluation], None],
        clock: Clock,
    ) -> None:
        self._key = key
        self._outdated = outdated
        self._report = report
        self._clock = clock

    def on_open(self, manifest: Manifest) -> None:
        """The stream is open: until the first report Dagster shows the check as in progress."""
        self._report(manifest, to_evaluation(self.result))

    def on_commit(self, committed: CommittedEpoch) -> None:
        """A new epoch."""
        rows = committed.manifest.statistics.rows_in
        before, now_ms = self._outdated, self._clock.now_ms()
        self._outdated = after = before.after(rows, committed.counters.get(OUTDATED, 0), now_ms)
        if (before.since_ms, before.is_long) != (after.since_ms, after.is_long):
            self._report(committed.manifest, to_evaluation(self.result))

    @property
    def result(self) -> dg.AssetCheckResult:
        """The check now."""
        return result(self._key, self._outdated)


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(" ", "seconds")
