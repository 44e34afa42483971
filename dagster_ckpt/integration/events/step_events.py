"""The events of a stream at work: its newest epoch, at most every `event_interval`, without slowing the stream.

The newest epoch's event is held back, because the step's result will report it; the one before is logged instead. When
a stream goes quiet, the held event is logged, so Dagster's UI is never much more than one interval behind. An event
reports what happened since the last one; an epoch that moved the watermark alone waits for the next event. The first
epoch also passes the stream's check, at once: it shows there that a crash loop has ended.

While a stream is quiet, an observation each minute shows that it lives, and its lag. Dagster's freshness policies count
materializations alone. So for an asset with one, the newest epoch is logged again, with the same data version and
without rows, as long as all that the sources have is read: often enough that the policy never finds it late.

The step ends with exactly one `MaterializeResult`, with the newest epoch. Without a result, Dagster would skip what is
downstream while the run shows success; an `Output` would call the IO manager.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.events.epoch_metadata import (
    Metadata,
    changed_functions,
    data_version,
    epoch_metadata,
    lag_metadata,
)
from dagster_ckpt.integration.events.event_totals import NO_WORK, CommittedWork, Reported, Totals, read_totals
from dagster_ckpt.integration.events.table_metadata import COLUMNS_ALONE, TableMetadata
from dagster_ckpt.integration.reading.late_rows_asset import LateRows
from dagster_ckpt.integration.recovery.crash_loop_check import evaluation_passed, result_passed
from dagster_ckpt.protocol.epochs.topic_offsets import LostOffsets
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.lag.lag import Lag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch

_LOG = logging.getLogger(__name__)

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

TRIES = 3
RETRY_MS = 200
SLOW_MS = 1_000
"""A try that failed after this long is the last one: Dagster's database has waited already (SQLite: 30 s)."""

OBSERVE_MS = 60_000
"""While a stream is quiet, an event is logged this often, at most."""

MEASURED_MS_MAX = 60_000
"""How old the measurement may be that proves that all is read."""

REST = 20
"""After a failure no event is logged for this many times its duration: it costs a twentieth of the stream's time."""


@dataclass(frozen=True)
class EventLog:
    """Where events go: their asset, what Dagster shows of its table, and Dagster's `log_event`.

    `may_report` is whether the writer of an epoch is still the stream's: a fenced one must not report. It is called
    right before each event. `reported` is what Dagster has stored of the stream (see `event_totals.read_totals`),
    `more` what else the event of an epoch has, `late_rows_reported` the total of late rows that Dagster has stored.
    """

    asset_key: dg.AssetKey
    stream: str
    code_version: str | None
    log_event: Callable[[Event], None]
    may_report: Callable[[Manifest], bool]
    reported: Callable[[], Reported]
    table: TableMetadata = COLUMNS_ALONE
    more: Callable[[], Metadata] = dict
    late_rows_reported: Callable[[LateRows], int] = lambda _late: 0

    def materialization(
        self,
        manifest: Manifest,
        work: CommittedWork,
        before: Totals,
        lag: Metadata | None = None,
        once: Metadata | None = None,
    ) -> dg.AssetMaterialization:
        """The event of an epoch, with the tags that Dagster puts on a result with a data version."""
        tags = {
            "dagster/data_version": data_version(self.stream, manifest),
            "dagster/data_version_is_user_provided": "true",
        }
        if self.code_version is not None:
            tags["dagster/code_version"] = self.code_version
        metadata = (
            epoch_metadata(manifest, work, before, lag) | (once or {}) | self.more() | self.table.of_event(manifest)
        )
        return dg.AssetMaterialization(asset_key=self.asset_key, metadata=metadata, tags=tags)

    def observation(self, manifest: Manifest, lag: Metadata) -> dg.AssetObservation:
        """The event of a stream that is live and has no new epoch."""
        metadata = {**lag, "epoch": dg.MetadataValue.int(manifest.epoch)}
        return dg.AssetObservation(asset_key=self.asset_key, metadata=metadata)

    def skipping(self, lost: Sequence[LostOffsets]) -> dg.AssetObservation:
        """The event of records of Kafka that the stream goes on without."""
        columns = [dg.TableColumn("topic"), *(dg.TableColumn(name, "int") for name in ("partition", "begin", "end"))]
        columns.append(dg.TableColumn("reason"))
        # Dagster stores no enumeration of ours.
        plain = [{**asdict(each), "reason": each.reason.value} for each in lost]
        records = [dg.TableRecord({column.name: each[column.name] for column in columns}) for each in plain]
        rows = sum(each.end - each.begin for each in lost)
        return dg.AssetObservation(
            asset_key=self.asset_key,
            description="The stream goes on without records that its topics no longer have (failOnDataLoss=false): "
            f"what it had not read of {'; '.join(map(str, lost))}.",
            metadata={
                "skipped_rows_max": dg.MetadataValue.int(rows),
                "skipped_offsets": dg.MetadataValue.table(records, dg.TableSchema(columns)),
            },
        )


class EpochEvents:
    """The events of one stream in one step.

    `refresh_ms` is how often the newest epoch of a stream that is quiet and has read everything is logged again; None:
    never. Thread-safe: epochs are committed in a Spark thread while the step waits in another.
    """

    def __init__(self, event_log: EventLog, interval_ms: int, clock: Clock, refresh_ms: int | None = None) -> None:
        self._event_log = event_log
        self._interval_ms = interval_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: Manifest | None = None
        self._newest_is_logged = False
        self._read_to: tuple[str | None, ...] = ()
        self._work = NO_WORK
        self._newest_since_ms = 0
        self._newest_at_ms = 0
        self._next_ms: int | None = None
        self._late_rows_logged: dict[dg.AssetKey, int] = {}
        self._refresh_ms = refresh_ms
        self._opened: Manifest | None = None
        self._lag: Lag | None = None
        self._last_ms = clock.monotonic_ms()
        self._materialized_ms: int | None = None
        self._once: Metadata = {}

    @property
    def once(self) -> Metadata:
        """What the event of the first epoch has, until that is logged."""
        return self._once

    @property
    def work(self) -> CommittedWork:
        """How the epochs went that this step has committed and not reported."""
        return self._work

    def on_open(self, manifest: Manifest) -> None:
        """The stream is open, at this manifest."""
        self._read_to = _read_to(manifest)
        self._opened, self._last_ms = manifest, self._clock.monotonic_ms()

    def on_changed_functions(self, functions: Sequence[str]) -> None:
        """The code of these functions is another one than that which made the epochs so far."""
        self._once = changed_functions(self._event_log.stream, functions)

    def on_lag(self, lag: Lag | None) -> None:
        """The newest measurement of the lag; None where it is not known now."""
        with self._lock:
            self._lag = lag

    def lag_metadata(self, manifest: Manifest) -> Metadata:
        """The lag at this manifest, the newest, as far as it is known."""
        return lag_metadata(self._lag, manifest, self._clock.now_ms())

    def report(self, manifest: Manifest, event: Event) -> None:
        """Log one more event, about the stream at this manifest."""
        with self._lock:
            self._send(manifest, event)

    def skips(self, lost: Sequence[LostOffsets]) -> None:
        """The next epoch goes on without these records. Logged before it is committed: never silent, at times twice."""
        with self._lock:
            if (manifest := self._newest or self._opened) is not None:
                self._send(manifest, self._event_log.skipping(lost))

    def on_commit(self, committed: CommittedEpoch) -> None:
        """A new epoch: hold its event back, and log the one that was held if it is due."""
        with self._lock:
            now_ms, manifest = self._clock.monotonic_ms(), committed.manifest
            if self._newest is None:
                self._send(manifest, evaluation_passed(self._event_log.asset_key, manifest.epoch))
            held, work = None if self._newest_is_logged else self._newest, self._work
            self._newest, self._newest_is_logged, self._work = manifest, False, work.plus(committed)
            if held is not None and not _has_news(held, manifest):
                return  # one event for both
            self._newest_since_ms, self._newest_at_ms = self._clock.monotonic_ms(), self._clock.now_ms()
            if held is not None and self._is_due(now_ms) and self._log(held, work):
                self._work = NO_WORK.plus(committed)

    def idle(self) -> None:
        """The stream is idle: log the held event once it was held for the whole interval; later that it is live."""
        with self._lock:  # not earlier: an epoch may just be coming in
            now_ms = self._clock.monotonic_ms()
            if not self._is_due(now_ms):
                return
            if self._newest is None or self._newest_is_logged:
                self._log_quiet(now_ms)
            elif now_ms - self._newest_since_ms >= self._interval_ms * (1 if self._lag_is_after_newest() else 3):
                self._flush()

    def _lag_is_after_newest(self) -> bool:
        """Whether the lag was measured after the newest epoch: before, its input was still waiting."""
        return self._lag is None or self._lag.measured_ms >= self._newest_at_ms

    def _log_quiet(self, now_ms: int) -> None:
        manifest = self._newest or self._opened
        if manifest is None:
            return
        if self._must_refresh(manifest, now_ms):
            self._refresh(manifest)
        elif now_ms - self._last_ms >= max(OBSERVE_MS, self._interval_ms):
            began_ms = self._clock.monotonic_ms()
            observation = self._event_log.observation(manifest, self.lag_metadata(manifest))
            self._rest(began_ms, logged=self._send(manifest, observation))

    def _must_refresh(self, manifest: Manifest, now_ms: int) -> bool:
        lag, before_ms = self._lag, self._materialized_ms
        if self._refresh_ms is None or manifest.epoch == EMPTY or lag is None or not lag.is_caught_up:
            return False
        is_due = before_ms is None or now_ms - before_ms >= self._refresh_ms
        return is_due and self._clock.now_ms() - lag.measured_ms <= MEASURED_MS_MAX

    def _refresh(self, manifest: Manifest) -> None:
        """Log the newest epoch again, with what no event has reported yet."""
        began_ms = self._clock.monotonic_ms()

        def event() -> dg.AssetMaterialization:
            before = self._event_log.reported().totals
            return self._event_log.materialization(manifest, self._work, before, self.lag_metadata(manifest))

        logged = self._try(manifest, event)
        if logged:
            self._work, self._materialized_ms = NO_WORK, began_ms
        self._rest(began_ms, logged=logged)

    def flush(self) -> None:
        """Log the held event now: the step ends without a result that could carry it."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._newest is not None and not self._newest_is_logged:
            self._newest_is_logged = True
            if self._log(self._newest, self._work):
                self._work = NO_WORK

    def finish(self) -> None:
        """The step ends with a result that carries the newest epoch, but not its late rows: those are reported here."""
        with self._lock:
            if (manifest := self._newest or self._opened) is not None:
                self._log_late_rows(manifest)

    def _log_late_rows(self, manifest: Manifest) -> bool:
        """Log the late rows that no event has reported; whether all of them are reported."""
        logged = True
        for late in LateRows.of_stream(self._event_log.asset_key, manifest):
            if late.total != self._late_rows_logged.get(late.key):
                logged = self._log_late_rows_of(manifest, late) and logged
        return logged

    def _log_late_rows_of(self, manifest: Manifest, late: LateRows) -> bool:
        def event() -> dg.AssetMaterialization | None:
            reported = self._event_log.late_rows_reported(late)
            return None if reported == late.total else late.materialization(reported)

        logged = self._try(manifest, event)
        if logged:
            self._late_rows_logged[late.key] = late.total
        return logged

    def _is_due(self, now_ms: int) -> bool:
        return self._next_ms is None or now_ms >= self._next_ms

    def _log(self, manifest: Manifest, work: CommittedWork) -> bool:
        """Log the event of this epoch and of those before it, if there is news; `work` are those of this step.

        Returns whether all of it is reported: in an event that Dagster has stored, or by another writer.
        """
        began_ms = self._clock.monotonic_ms()
        is_reported = True

        def event() -> dg.AssetMaterialization | None:
            nonlocal is_reported
            before = self._event_log.reported()
            if before.has(manifest):
                return None  # by a try that was not answered
            no_rows = before.totals.rows == Totals.of(manifest).rows
            is_reported = not no_rows or self._read_to != _read_to(manifest)
            lag = self.lag_metadata(manifest)
            if not is_reported:
                return None
            return self._event_log.materialization(manifest, work, before.totals, lag, self._once)

        logged = self._try(manifest, event)
        logged = self._log_late_rows(manifest) and logged
        self._rest(began_ms, logged=logged)
        if logged and is_reported:
            self._read_to, self._materialized_ms, self._once = _read_to(manifest), began_ms, {}
        return logged and is_reported

    def _rest(self, began_ms: int, *, logged: bool) -> None:
        """Log nothing more for a while, after an event that was begun then."""
        cost_ms = self._clock.monotonic_ms() - began_ms
        self._next_ms = began_ms + (self._interval_ms if logged else max(self._interval_ms, REST * cost_ms))
        self._last_ms = began_ms

    def _send(self, manifest: Manifest, event: Event) -> bool:
        return self._try(manifest, lambda: event)

    def _try(self, manifest: Manifest, make: Callable[[], Event | None]) -> bool:
        """Whether the event is done: Dagster stored it, or another writer reports instead.

        `make` is called for each try; None: there is nothing to log.
        """
        for trial in range(1, TRIES + 1):
            began_ms = self._clock.monotonic_ms()
            try:
                if self._event_log.may_report(manifest) and (event := make()) is not None:
                    self._event_log.log_event(event)
                return True
            except Exception as error:  # noqa: BLE001 (events only inform: the epoch is safe either way)
                text = (
                    "Dagster did not store an event of the stream; its epochs are safe. "
                    "epoch=%s, try=%s of %s, error=%r"
                )
                _LOG.warning(text, manifest.epoch, trial, TRIES, error)
                if self._clock.monotonic_ms() - began_ms >= SLOW_MS:
                    return False
                if trial < TRIES:
                    self._clock.sleep_ms(RETRY_MS)
        return False


def refresh_ms_of(policy: dg.FreshnessPolicy | None) -> int | None:
    """How often an asset with this policy must be materialized to stay fresh: twice in its shortest window."""
    # Dagster exports no class for a kind of policy, only `FreshnessPolicy`, which makes all of them.
    found = [getattr(policy, name, None) for name in ("warn_window", "fail_window", "lower_bound_delta")]
    windows: list[timedelta] = [getattr(each, "to_timedelta", lambda each=each: each)() for each in found if each]
    return round(min(windows).total_seconds() * 500) if windows else None


def final_result(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    stream: str,
    manifest: Manifest,
    work: CommittedWork,
    table: TableMetadata = COLUMNS_ALONE,
    lag: Metadata | None = None,
) -> dg.MaterializeResult[Any]:
    """The result of the step: its newest epoch, and what happened since the last event. `work` is not reported yet."""
    metadata = epoch_metadata(manifest, work, read_totals(instance, key).totals, lag)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata | table.of_result(manifest),
        data_version=dg.DataVersion(data_version(stream, manifest)),
        check_results=[result_passed(key, manifest.epoch)],
    )


def _has_news(before: Manifest, after: Manifest) -> bool:
    """Whether more changed than the watermark."""
    return Totals.of(before).rows != Totals.of(after).rows or _read_to(before) != _read_to(after)


def _read_to(manifest: Manifest) -> tuple[str | None, ...]:
    return tuple(position.current for position in manifest.sources)
