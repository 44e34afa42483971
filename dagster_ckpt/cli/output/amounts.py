"""Numbers for people. Programs get the raw ones (`--json`)."""

from datetime import UTC, datetime

from rich.filesize import decimal

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.quantities import duration

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
