"""What Dagster hears of a stream at work: its newest epoch, at most every `event_interval`, never at the stream's cost.

The newest epoch's event is held back, because the step's end will tell it; the one before is logged in its stead. Where
a stream goes quiet the held event is logged after all, so Dagster's UI is never much more than one interval behind. The
first epoch also passes the stream's check, at once: whoever waits for the end of a crash loop sees it there.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.integration.reading.late_rows_asset import late_materializations
from dagster_ckpt.integration.recovery.crash_loop_check import evaluation_passed
from dagster_ckpt.integration.step.epoch_metadata import Pace, data_version, epoch_metadata
from dagster_ckpt.protocol.manifest.manifest import Manifest

_LOG = logging.getLogger(__name__)

News = dg.AssetMaterialization | dg.AssetCheckEvaluation

TRIES = 3
RETRY_MS = 200
SLOW_MS = 1_000
"""A try that failed after this long is the last one: Dagster's database itself has waited, 30 s where it is SQLite."""

REST = 20
"""What a failure has cost is followed by so many times as long without any event: a twentieth of the stream's time."""


@dataclass(frozen=True)
class ReportedEpoch:
    """One epoch and how fast it was."""

    manifest: Manifest
    pace: Pace


@dataclass(frozen=True)
class Audience:
    """Where events go: the asset they are of, and Dagster's `log_event`.

    `may_speak` says whether the writer of an epoch is still the stream's: one that was fenced has nothing to tell any
    more. It is asked right before each event.
    """

    asset_key: dg.AssetKey
    stream: str
    code_version: str | None
    log_event: Callable[[News], None]
    may_speak: Callable[[Manifest], bool]

    def materialization(self, reported: ReportedEpoch) -> dg.AssetMaterialization:
        """The event of an epoch, with the tags that Dagster itself would put on a result with a data version."""
        tags = {
            "dagster/data_version": data_version(self.stream, reported.manifest),
            "dagster/data_version_is_user_provided": "true",
        }
        if self.code_version is not None:
            tags["dagster/code_version"] = self.code_version
        metadata = epoch_metadata(reported.manifest, reported.pace)
        return dg.AssetMaterialization(asset_key=self.asset_key, metadata=metadata, tags=tags)


class EpochEvents:
    """The events of one stream in one step.

    Thread-safe: epochs are committed in a thread of Spark's while the step waits in its own.
    """

    def __init__(self, audience: Audience, interval_ms: int, clock: Clock) -> None:
        self._audience = audience
        self._interval_ms = interval_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: ReportedEpoch | None = None
        self._newest_is_logged = False
        self._newest_since_ms = 0
        self._next_ms: int | None = None
        self._late_rows_told = 0

    @property
    def newest(self) -> ReportedEpoch | None:
        """The newest epoch committed in this step."""
        return self._newest

    def committed(self, reported: ReportedEpoch) -> None:
        """A new epoch: hold its event back, and log the one that was held if its time has come."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._newest is None:
                self._tell(reported, evaluation_passed(self._audience.asset_key, reported.manifest.epoch))
            held = None if self._newest_is_logged else self._newest
            self._newest, self._newest_is_logged, self._newest_since_ms = reported, False, self._clock.monotonic_ms()
            if held is not None and self._is_due(now_ms):
                self._log(held)

    def idle(self) -> None:
        """Nothing has happened for a moment: log the held event once it was held for the whole interval."""
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

    def _log_late_rows(self, reported: ReportedEpoch) -> bool:
        heard = True
        for late in late_materializations(self._audience.asset_key, reported.manifest, self._late_rows_told):
            heard = self._tell(reported, late) and heard
        self._late_rows_told = reported.manifest.statistics.total_late_rows
        return heard

    def _is_due(self, now_ms: int) -> bool:
        return self._next_ms is None or now_ms >= self._next_ms

    def _log(self, reported: ReportedEpoch) -> None:
        began_ms = self._clock.monotonic_ms()
        heard = self._tell(reported, self._audience.materialization(reported))
        heard = self._log_late_rows(reported) and heard
        cost_ms = self._clock.monotonic_ms() - began_ms
        self._next_ms = began_ms + (self._interval_ms if heard else max(self._interval_ms, REST * cost_ms))

    def _tell(self, reported: ReportedEpoch, news: News) -> bool:
        """Whether there is nothing left to tell: it was heard, or is another's to tell."""
        for trial in range(1, TRIES + 1):
            began_ms = self._clock.monotonic_ms()
            try:
                if self._audience.may_speak(reported.manifest):
                    self._audience.log_event(news)
                return True
            except Exception as error:  # noqa: BLE001 (an event is news, never truth: the epoch is safe either way)
                text = "Dagster did not take the event of an epoch; the epoch is safe. epoch=%s, try=%s of %s, error=%r"
                _LOG.warning(text, reported.manifest.epoch, trial, TRIES, error)
                if self._clock.monotonic_ms() - began_ms >= SLOW_MS:
                    return False
                if trial < TRIES:
                    self._clock.sleep_ms(RETRY_MS)
        return False
