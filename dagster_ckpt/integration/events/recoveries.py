"""The recoveries of a stream: which Dagster runs the sensor has started in place of others, and why."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.dagster_names import REASON_TAG, REPLACES_TAG, STREAM_TAG
from dagster_ckpt.integration.events.epoch_metadata import Metadata

_LOG = logging.getLogger(__name__)

_DAY_S = 86_400
_RUNS_MAX = 1_000
_ID_LENGTH = 8
"""Dagster's pages show as much of a run's id."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A Dagster run that replaces another. `at_s` is when the sensor requested it (Unix seconds)."""

    run_id: str
    replaces: str
    reason: str
    at_s: float


def find_recovery(run: dg.DagsterRun, at_s: float) -> Recovered | None:
    """What this run replaces; None if it is no recovery. A retry or re-execution has copied its parent's tags."""
    replaces = None if run.parent_run_id is not None else run.tags.get(REPLACES_TAG)
    return None if replaces is None else Recovered(run.run_id, replaces, run.tags.get(REASON_TAG, ""), at_s)


@dataclass(frozen=True)
class Recoveries:
    """A stream's recoveries of the day before a run began, oldest first; None if Dagster did not answer.

    While the run lasts there are no further ones: that costs one query a run.
    """

    found: Sequence[Recovered] | None
    clock: Clock

    @classmethod
    def of_stream(cls, instance: dg.DagsterInstance, stream: str, clock: Clock) -> "Recoveries":
        """The recoveries in Dagster's records of the stream's runs."""
        after = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) - timedelta(seconds=_DAY_S)
        wanted = dg.RunsFilter(tags={STREAM_TAG: stream}, created_after=after)
        try:
            records = instance.get_run_records(wanted, limit=_RUNS_MAX)
        except Exception as error:  # noqa: BLE001 (whatever Dagster's storage raises: the figure only informs)
            _LOG.warning("Dagster did not list the stream's runs. stream=%s, error=%r", stream, error)
            return cls(None, clock)
        each = (find_recovery(record.dagster_run, record.create_timestamp.timestamp()) for record in reversed(records))
        return cls([one for one in each if one is not None], clock)

    def metadata(self) -> Metadata:
        """How many there were in the day up to now; a plot in Dagster."""
        if self.found is None:
            return {}
        return {"recoveries_last_day": dg.MetadataValue.int(len(self._last_day()))}

    def observation(self, key: dg.AssetKey, run: dg.DagsterRun) -> dg.AssetObservation | None:
        """The first event of a run that replaces another; None for any other run."""
        mine = find_recovery(run, self.clock.now_ms() / 1000)
        if mine is None:
            return None
        columns = [dg.TableColumn(name) for name in ("recovered_at", "reason", "dagster_run", "replaces")]
        rows = [
            dg.TableRecord(
                {
                    "recovered_at": f"{datetime.fromtimestamp(one.at_s, UTC):%Y-%m-%d %H:%M:%S} UTC",
                    "reason": one.reason,
                    "dagster_run": one.run_id[:_ID_LENGTH],
                    "replaces": one.replaces[:_ID_LENGTH],
                }
            )
            for one in reversed(self._last_day())
        ]
        return dg.AssetObservation(
            key,
            description=f"Recovered: this Dagster run replaces run {mine.replaces[:_ID_LENGTH]}. Why: {mine.reason}.",
            metadata={
                "replaces": dg.MetadataValue.dagster_run(mine.replaces),
                "reason": mine.reason,
                "recoveries": dg.MetadataValue.table(rows, dg.TableSchema(columns)),
                **self.metadata(),
            },
        )

    def _last_day(self) -> list[Recovered]:
        since_s = self.clock.now_ms() / 1000 - _DAY_S
        return [one for one in self.found or () if one.at_s > since_s]
