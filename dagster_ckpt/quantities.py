"""Durations and sizes as people write them, read into one unit each; and durations written for people."""

import re
from datetime import timedelta

from dagster_ckpt.errors import InvalidPipelineError

Duration = str | timedelta
"""A length of time: "500ms", "5s", "10 minutes", or a `timedelta`."""

Size = str | int
"""A number of bytes: 4096, "256 MiB", "1GB"."""

_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")

_NUMBER_AND_MAYBE_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")

_BEYOND = 2**63
"""What is not less fits into no signed 64-bit number, here or in the JVM."""

_MILLISECONDS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "sec": 1_000,
    "second": 1_000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}

_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def milliseconds(duration: Duration, option: str, least: int = 1) -> int:
    """The duration in milliseconds: at least `least`, 0 or 1. `option` is what it is for, named in the error.

    Raises `InvalidPipelineError` for a text that is no duration, and for one that is too short.
    """
    length = _milliseconds(duration)
    if length is None or not least <= length < _BEYOND:
        above = "above zero, " if least else ""
        raise InvalidPipelineError(
            f"{option} must be a length of time {above}such as '500ms', '5s' or '10 minutes'. "
            f"{option}={_short(repr(duration))}"
        )
    return round(length)


def microseconds(duration: Duration, option: str) -> int:
    """The distance in time in microseconds, which may be negative or zero. `option` is as above.

    Raises `InvalidPipelineError` for a text that is no distance in time.
    """
    negative = isinstance(duration, str) and duration.lstrip().startswith("-")
    length = _milliseconds(duration.lstrip()[1:] if isinstance(duration, str) and negative else duration)
    if length is None or not abs(length) * 1_000 < _BEYOND:
        raise InvalidPipelineError(
            f"{option} must be a distance in time, such as '10 minutes', '0s' or '-1 hour'. "
            f"{option}={_short(repr(duration))}"
        )
    return round(length * (-1_000 if negative else 1_000))


def _milliseconds(duration: Duration) -> float | None:
    """The length as it is written; None for a text that is none."""
    if isinstance(duration, timedelta):
        return duration / timedelta(milliseconds=1)
    match = _NUMBER_AND_UNIT.fullmatch(str(duration))
    if match is None:
        return None
    unit = match[2].lower()
    factor = _MILLISECONDS.get(unit) or _MILLISECONDS.get(unit.removesuffix("s"))
    return float(match[1]) * factor if factor else None


def size_bytes(size: Size, option: str, least: int = 1) -> int:
    """The size in bytes: at least `least`. `option` is what it is for, named in the error.

    Raises `InvalidPipelineError` for a text that is no size, and for one that is too small.
    """
    count: float = -1
    if isinstance(size, int):
        count = -1 if isinstance(size, bool) else size
    elif match := _NUMBER_AND_MAYBE_UNIT.fullmatch(str(size)):
        count = float(match[1]) * _BYTES.get((match[2] or "b").lower(), -1)
    if not least <= count < _BEYOND:
        raise InvalidPipelineError(
            f"{option} must be a number of bytes, such as '256 MiB' or 4194304, and at least {least}. "
            f"{option}={_short(repr(size))}"
        )
    return round(count)


def duration(duration_ms: int) -> str:
    """`350 ms`, `1.4 s`, `2 min 5 s`, `3 h`: at most two units, the larger ones."""
    if duration_ms < 1_000:
        return f"{duration_ms} ms"
    if duration_ms < 9_950:
        return f"{duration_ms / 1_000:.1f} s"
    seconds = round(duration_ms / 1_000)
    parts: list[str] = []
    for length, unit in _STEPS:
        whole, seconds = divmod(seconds, length)
        if whole or parts:
            parts.append(f"{whole} {unit}" if whole else "")
    return " ".join(part for part in parts[:2] if part)


def span(span_us: int) -> str:
    """A length of event time, perhaps negative: `-1 h`, `0 ms`, `250 us`."""
    if span_us < 0:
        return f"-{span(-span_us)}"
    return f"{span_us} us" if 0 < span_us < 1_000 else duration(span_us // 1_000)


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."
