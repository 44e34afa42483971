"""Windows of event time: their kinds, and which of them a row belongs to.

A window is half-open, `[start, end)`. Tumbling and hopping windows are aligned to the Unix epoch plus an offset, also
before 1970. They are values, validated when built.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions
from dagster_ckpt.operators.operator import Origins, event_times_of
from dagster_ckpt.operators.shared.event_time_range import LENGTH_US_MAX
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.quantities import Duration, microseconds

WINDOW_START = "window_start"


WINDOW_END = "window_end"


WINDOWS_OF_A_ROW_MAX = 10_000
"""The most hopping windows that a row may be in: the row is counted and kept in each of them."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The windows of rows: row `rows[i]` is in the window that begins at `starts[i]`; both ascend, rows first."""

    rows: Positions
    starts: Positions


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Adjacent windows of one size: every moment is in exactly one."""

    size_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        _check_length(self.size_us, "size")

    @property
    def windows_of_a_row(self) -> int:
        """The most windows that a row can be in."""
        return 1

    def last_starts(self, times: Positions) -> Positions:
        """Where the last window begins that each of these moments is in."""
        return _align(times, self.size_us, self.offset_us)

    def assign(self, times: Positions) -> Assigned:
        """The windows of rows with these event times, in microseconds."""
        return Assigned(np.arange(len(times)), self.last_starts(times))


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one size, one beginning every `slide_us`: a moment is in size / slide of them."""

    size_us: int
    slide_us: int
    offset_us: int = 0

    def __post_init__(self) -> None:
        _check_length(self.size_us, "size")
        _check_length(self.slide_us, "slide")
        if self.slide_us > self.size_us:
            raise InvalidPipelineError(
                "rows between two windows would be in none: choose a slide no longer than the size. "
                f"size={self.size_us} us, slide={self.slide_us} us"
            )
        if self.windows_of_a_row > WINDOWS_OF_A_ROW_MAX:
            raise InvalidPipelineError(
                f"each row would be in {self.windows_of_a_row} windows, at most {WINDOWS_OF_A_ROW_MAX} are allowed: "
                f"choose a longer slide. size={self.size_us} us, slide={self.slide_us} us"
            )

    @property
    def windows_of_a_row(self) -> int:
        """The most windows that a row can be in; some rows are in one less where the slide does not divide the size."""
        return -(-self.size_us // self.slide_us)

    def last_starts(self, times: Positions) -> Positions:
        """Where the last window begins that each of these moments is in."""
        return _align(times, self.slide_us, self.offset_us)

    def assign(self, times: Positions) -> Assigned:
        """The windows of rows with these event times, in microseconds."""
        back = np.arange(self.windows_of_a_row)[::-1] * self.slide_us
        starts = (self.last_starts(times)[:, np.newaxis] - back).ravel()
        rows = np.repeat(np.arange(len(times)), len(back))
        if self.size_us % self.slide_us == 0:
            return Assigned(rows, starts)
        within = np.flatnonzero(starts + self.size_us > times[rows])
        return Assigned(rows[within], starts[within])


@dataclass(frozen=True, slots=True)
class Session:
    """Rows of one key, each at most `gap_us` after the one before; the session ends that long after its last row.

    Two rows that are exactly the gap apart are in one session, as in Flink and in Spark.
    """

    gap_us: int

    def __post_init__(self) -> None:
        _check_length(self.gap_us, "gap")


FixedWindow = Tumbling | Hopping
"""A window whose bounds do not depend on the rows."""

Window = Tumbling | Hopping | Session

_KINDS: Mapping[str, type[Window]] = {"tumbling": Tumbling, "hopping": Hopping, "session": Session}


def tumbling(size: Duration, offset: Duration = "0s") -> Tumbling:
    """Adjacent windows of this size, beginning at the Unix epoch (UTC) plus the offset and multiples of the size.

        tumbling("1 day", offset="5 hours")

    Raises `InvalidPipelineError`.
    """
    return Tumbling(microseconds(size, "size"), microseconds(offset, "offset"))


def hopping(size: Duration, slide: Duration, offset: Duration = "0s") -> Hopping:
    """Windows of this size, one every `slide`, at the Unix epoch (UTC) plus the offset and multiples of the slide.

        hopping("1 hour", slide="10 minutes")

    A row is in every window that contains its time. Raises `InvalidPipelineError`.
    """
    return Hopping(microseconds(size, "size"), microseconds(slide, "slide"), microseconds(offset, "offset"))


def session(gap: Duration) -> Session:
    """A window of rows of one key, each at most `gap` after the one before; it ends `gap` after its last row.

        session("30 minutes")

    Raises `InvalidPipelineError`.
    """
    return Session(microseconds(gap, "gap"))


def are_open(window: FixedWindow, starts: Positions, watermark_us: int | None) -> Mask:
    """Which of the windows with these starts are open: the watermark has not reached their end."""
    if watermark_us is None:
        return np.ones(len(starts), dtype=np.bool_)
    open_: Mask = starts > watermark_us - window.size_us
    return open_


def window_as_json(window: Window) -> dict[str, object]:
    """The window as plain JSON values."""
    kind = next(name for name, type_ in _KINDS.items() if type(window) is type_)
    return {"kind": kind, **asdict(window)}


def window_from_json(values: Any) -> Window:
    """The window from the output of `window_as_json`; raises `LookupError` or `TypeError` for anything else."""
    options = dict(values)
    return _KINDS[options.pop("kind")](**options)


def _align(times: Positions, step_us: int, offset_us: int) -> Positions:
    """For each time, the last multiple of the step, plus the offset, that is not after it."""
    # The remainder has the divisor's sign, so a window begins before its rows before 1970 too.
    return times - (times - offset_us % step_us) % step_us


def _check_length(length_us: int, option: str) -> None:
    if not 0 < length_us <= LENGTH_US_MAX:
        raise InvalidPipelineError(
            f"the {option} of a window must be a length of time above zero, such as '5 minutes', and of at most "
            f"36,000 years. {option}={length_us} us"
        )


def bound_origins(step: Pipeline) -> Origins:
    """The origins of a window's bounds, where the step has a window: the event times of its inputs."""
    times = [(number, time) for number, time in enumerate(event_times_of(step)) if time is not None]
    return {} if step.parameters.get("window") is None else {WINDOW_START: times, WINDOW_END: times}
