"""How each input moves the watermark, and which of them is not waited for."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.clock import Clock
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.transitions.edits import EpochEdit, moved_watermark


@dataclass(frozen=True, slots=True)
class InputWatermark:
    """How late rows of an input may come; an input that shows no event time for `idle_after_ms` is not waited for.

    None: it has no watermark; it is always waited for.
    """

    delay_us: int | None = None
    idle_after_ms: int | None = None


class Watermarks:
    """The inputs of one query, watched by its driver. Who is idle is forgotten with it: all begin as not idle."""

    def __init__(self, inputs: Sequence[InputWatermark], clock: Clock) -> None:
        self._inputs = inputs
        self._clock = clock
        self._seen_ms = [clock.monotonic_ms() for _ in inputs]

    @property
    def delays_us(self) -> tuple[int | None, ...]:
        return tuple(each.delay_us for each in self._inputs)

    def idle_at(self, moment_ms: int) -> tuple[bool, ...]:
        """Whether each input had been silent for too long at that moment of the clock.

        The moment is one at which Spark looked for rows, and never later: what comes while an epoch is worked, however
        long that takes, is there for all to see and not late.
        """
        return tuple(
            each.idle_after_ms is not None and moment_ms - seen_ms >= each.idle_after_ms
            for each, seen_ms in zip(self._inputs, self._seen_ms, strict=True)
        )

    def saw(self, event_times_us: Sequence[int | None]) -> None:
        """An epoch had rows with these greatest event times; None: none of that input."""
        for number, time_us in enumerate(event_times_us):
            if time_us is not None:
                self._seen_ms[number] = self._clock.monotonic_ms()

    def would_move(self, manifest: Manifest, idle: tuple[bool, ...] = (), at_least_us: int | None = None) -> bool:
        """Whether the watermark would move without a new row: to `at_least_us`, or since these inputs are idle."""
        edit = EpochEdit((), (), 0, 0, self.delays_us, idle, at_least_us=at_least_us)
        return moved_watermark(manifest.watermark_us, manifest.event_times_us, edit) != manifest.watermark_us
