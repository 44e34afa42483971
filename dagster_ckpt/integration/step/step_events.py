"""The events of a stream at work: its newest epoch, at most every `event_interval`, without slowing the stream.

The newest epoch's event is held back, because the step's result will report it; the one before is logged instead. When
a stream goes quiet, the held event is logged, so Dagster's UI is never much more than one interval behind. The first
epoch also passes the stream's check, at once: it shows there that a crash loop has ended.

The step ends with exactly one `MaterializeResult`, with the newest epoch. Without a result, Dagster would skip what is
downstream while the run shows success; an `Output` would call the IO manager.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.reading.late_rows_asset import late_materializations
from dagster_ckpt.integration.recovery.crash_loop_check import evaluation_passed, result_passed
from dagster_ckpt.integration.step.epoch_metadata import Metadata, data_version, epoch_metadata, pace_of
from dagster_ckpt.integration.step.table_metadata import COLUMNS_ALONE, TableMetadata
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch

_LOG = logging.getLogger(__name__)

Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

TRIES = 3
RETRY_MS = 200
SLOW_MS = 1_000
"""A try that failed after this long is the last one: Dagster's database has waited already (SQLite: 30 s)."""

REST = 20
"""After a failure no event is logged for this many times its duration: it costs a twentieth of the stream's time."""


@dataclass(frozen=True)
class EventLog:
    """Where events go: their asset, what Dagster shows of its table, and Dagster's `log_event`.

    `may_report` is whether the writer of an epoch is still the stream's: a fenced one must not report. It is called
    right before each event.
    """

    asset_key: dg.AssetKey
    stream: str
    code_version: str | None
    log_event: Callable[[Event], None]
    may_report: Callable[[Manifest], bool]
    table: TableMetadata = COLUMNS_ALONE

    def materialization(self, committed: CommittedEpoch) -> dg.AssetMaterialization:
        """The event of an epoch, with the tags that Dagster puts on a result with a data version."""
        tags = {
            "dagster/data_version": data_version(self.stream, committed.manifest),
            "dagster/data_version_is_user_provided": "true",
        }
        if self.code_version is not None:
            tags["dagster/code_version"] = self.code_version
        metadata = epoch_metadata(committed.manifest, committed) | self.table.of_event(committed.manifest)
        return dg.AssetMaterialization(asset_key=self.asset_key, metadata=metadata, tags=tags)


class EpochEvents:
    """The events of one stream in one step.

    Thread-safe: epochs are committed in a Spark thread while the step waits in another.
    """

    def __init__(self, event_log: EventLog, interval_ms: int, clock: Clock) -> None:
        self._event_log = event_log
        self._interval_ms = interval_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: CommittedEpoch | None = None
        self._newest_is_logged = False
        self._newest_since_ms = 0
        self._next_ms: int | None = None
        self._late_rows_logged = 0

    @property
    def newest(self) -> CommittedEpoch | None:
        """The newest epoch committed in this step."""
        return self._newest

    def report(self, manifest: Manifest, event: Event) -> None:
        """Log one more event, about the stream at this manifest."""
        with self._lock:
            self._send(manifest, event)

    def committed(self, committed: CommittedEpoch) -> None:
        """A new epoch: hold its event back, and log the one that was held if it is due."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._newest is None:
                manifest = committed.manifest
                self._send(manifest, evaluation_passed(self._event_log.asset_key, manifest.epoch))
            held = None if self._newest_is_logged else self._newest
            self._newest, self._newest_is_logged, self._newest_since_ms = committed, False, self._clock.monotonic_ms()
            if held is not None and self._is_due(now_ms):
                self._log(held)

    def idle(self) -> None:
        """The stream is idle: log the held event once it was held for the whole interval."""
        with self._lock:  # not earlier: an epoch may just be coming in
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._newest_since_ms >= self._interval_ms and self._is_due(now_ms):
                self._flush()

    def flush(self) -> None:
        """Log the held event now: the step ends without a result that could carry it."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        if self._newest is not None and not self._newest_is_logged:
            self._newest_is_logged = True
            self._log(self._newest)

    def finish(self) -> None:
        """The step ends with a result that carries the newest epoch, but not its late rows: those are reported here."""
        with self._lock:
            if self._newest is not None:
                self._log_late_rows(self._newest)

    def _log_late_rows(self, committed: CommittedEpoch) -> bool:
        logged = True
        for late in late_materializations(self._event_log.asset_key, committed.manifest, self._late_rows_logged):
            logged = self._send(committed.manifest, late) and logged
        self._late_rows_logged = committed.manifest.statistics.total_late_rows
        return logged

    def _is_due(self, now_ms: int) -> bool:
        return self._next_ms is None or now_ms >= self._next_ms

    def _log(self, committed: CommittedEpoch) -> None:
        began_ms = self._clock.monotonic_ms()
        logged = self._send(committed.manifest, self._event_log.materialization(committed))
        logged = self._log_late_rows(committed) and logged
        cost_ms = self._clock.monotonic_ms() - began_ms
        self._next_ms = began_ms + (self._interval_ms if logged else max(self._interval_ms, REST * cost_ms))

    def _send(self, manifest: Manifest, event: Event) -> bool:
        """Whether the event is done: Dagster stored it, or another writer reports instead."""
        for trial in range(1, TRIES + 1):
            began_ms = self._clock.monotonic_ms()
            try:
                if self._event_log.may_report(manifest):
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


def final_result(
    instance: dg.DagsterInstance,
    key: dg.AssetKey,
    stream: str,
    manifest: Manifest,
    committed: CommittedEpoch | None,
    table: TableMetadata = COLUMNS_ALONE,
) -> dg.MaterializeResult[Any]:
    """The newest epoch's numbers. `committed` is the newest epoch that this step committed; None if it made none."""
    version = data_version(stream, manifest)
    if committed is not None and committed.manifest.epoch == manifest.epoch:
        metadata = epoch_metadata(manifest, committed)
    else:
        # Not the event's: it may be of an earlier release, which had fewer labels.
        metadata = epoch_metadata(manifest) | pace_of(_reported_before(instance, key, version), manifest)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata | table.of_result(manifest),
        data_version=dg.DataVersion(version),
        check_results=[result_passed(key, manifest.epoch)],
    )


def _reported_before(instance: dg.DagsterInstance, key: dg.AssetKey, version: str) -> Metadata:
    """The metadata that an earlier Dagster run reported for this epoch, if any: the manifest has no speeds."""
    entry = instance.get_latest_materialization_event(key)
    event = None if entry is None else entry.asset_materialization
    if event is None or (event.tags or {}).get("dagster/data_version") != version:
        return {}
    return dict(event.metadata)
