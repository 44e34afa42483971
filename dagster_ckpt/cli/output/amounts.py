"""Numbers for people. Programs get the raw ones (`--json`)."""

from datetime import UTC, datetime

from rich.filesize import decimal

from dagster_ckpt.clock import SystemClock

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def now() -> datetime:
    """This host's time."""
    return datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)


def count(number: int, noun: str = "") -> str:
    """`1234567` as `1,234,567`, `(2, "row")` as `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if noun else f"{number:,}"


def size(size_bytes: int) -> str:
    """`1234567` as `1.2 MB`."""
    return decimal(size_bytes)


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


def ago(then: datetime, now: datetime) -> str:
    """How long since `then`, in its largest unit: `12 s ago`."""
    seconds = round((now - then).total_seconds())
    for length, unit in _STEPS:
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    # Clocks of two hosts differ slightly.
    return "just now" if seconds > -60 else f"in {duration(-seconds * 1_000)}"


def moment(then: datetime) -> str:
    """A time in UTC, to the second."""
    return then.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
