"""How each input moves the watermark, and which inputs are idle."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.clock import Clock
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.transitions.edits import EpochEdit, moved_watermark


@dataclass(frozen=True, slots=True)
class InputWatermark:
    """How late rows of an input may come. After `idle_after_ms` without event time an input no longer holds it back.

    None: the input has no watermark; it never counts as idle.
    """

    delay_us: int | None = None
    idle_after_ms: int | None = None


class Watermarks:
    """The inputs of one query. Idleness is not durable: with each query all inputs begin as active."""

    def __init__(self, inputs: Sequence[InputWatermark], clock: Clock) -> None:
        self._inputs = inputs
        self._clock = clock
        self._seen_ms = [clock.monotonic_ms() for _ in inputs]

    @property
    def delays_us(self) -> tuple[int | None, ...]:
        return tuple(each.delay_us for each in self._inputs)

    def idle_at(self, moment_ms: int) -> tuple[bool, ...]:
        """Whether each input was idle at that moment of the clock.

        Pass a moment at which Spark looked for rows, never a later one: rows that come during an epoch, however long
        that takes, are in time.
        """
        return tuple(
            each.idle_after_ms is not None and moment_ms - seen_ms >= each.idle_after_ms
            for each, seen_ms in zip(self._inputs, self._seen_ms, strict=True)
        )

    def saw(self, event_times_us: Sequence[int | None]) -> None:
        """Record the greatest event time of each input in an epoch; None: the input had no rows."""
        for number, time_us in enumerate(event_times_us):
            if time_us is not None:
                self._seen_ms[number] = self._clock.monotonic_ms()

    def would_move(self, manifest: Manifest, idle: tuple[bool, ...] = (), at_least_us: int | None = None) -> bool:
        """Whether the watermark would move without a new row: to `at_least_us`, or since these inputs are idle."""
        edit = EpochEdit((), (), 0, 0, self.delays_us, idle, at_least_us=at_least_us)
        return moved_watermark(manifest.watermark_us, manifest.event_times_us, edit) != manifest.watermark_us
