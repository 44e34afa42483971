"""How far a rebuild is, for people: in the run's log, and as observations on the asset's page."""

from collections.abc import Callable

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.runtime.driver.rebuild import Progress

LOGGED_EVERY_MS = 10_000
OBSERVED_EVERY_MS = 60_000


class RebuildReport:
    """Reports the progress of one rebuild, the first at once. `log` takes a line, `log_event` an event of the asset."""

    def __init__(
        self,
        key: dg.AssetKey,
        clock: Clock,
        log: Callable[[str], None],
        log_event: Callable[[dg.AssetObservation], None],
    ) -> None:
        self._key = key
        self._clock = clock
        self._log = log
        self._log_event = log_event
        self._logged_ms: int | None = None
        self._observed_ms: int | None = None

    def progress(self, progress: Progress) -> None:
        """Report it, where the last report was some time ago."""
        now_ms = self._clock.monotonic_ms()
        if self._logged_ms is None or now_ms - self._logged_ms >= LOGGED_EVERY_MS:
            self._logged_ms = now_ms
            self._log(text_of(progress))
        if self._observed_ms is None or now_ms - self._observed_ms >= OBSERVED_EVERY_MS:
            self._observed_ms = now_ms
            self._log_event(self._observation(progress))

    def _observation(self, progress: Progress) -> dg.AssetObservation:
        metadata = {
            "rebuild_epoch": dg.MetadataValue.int(progress.epoch),
            "rebuild_rows": dg.MetadataValue.int(progress.rows),
        }
        return dg.AssetObservation(asset_key=self._key, description=text_of(progress), metadata=metadata)


def text_of(progress: Progress) -> str:
    """The progress in a line."""
    text = f"Rebuilding as {progress.beside}: epoch {progress.epoch}, {progress.rows:,} rows read"
    if progress.lag is None:
        return f"{text}."
    if progress.lag.is_caught_up:
        return f"{text}, caught up."
    waiting = progress.lag.waiting
    counts = {"files": waiting.files, "rows": waiting.rows, "epochs": waiting.epochs}
    left = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count is not None)
    return f"{text}, {left} to go." if left else f"{text}."
