from datetime import UTC, datetime, timedelta

import pytest

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.quantities import duration

NOON = datetime(2013, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (1_449, "1.4 s"),
        (9_949, "9.9 s"),
        (9_960, "10 s"),
        (59_600, "1 min"),
        (125_000, "2 min 5 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_at_most_two_units(duration_ms: int, text: str) -> None:
    assert duration(duration_ms) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (-3, "just now"),
        (12, "12 s ago"),
        (61, "1 min ago"),
        (7_300, "2 h ago"),
        (200_000, "2 d ago"),
        (-90, "in 1 min 30 s"),
    ],
)
def test_the_past_has_its_largest_unit(seconds: int, text: str) -> None:
    assert amounts.ago(NOON - timedelta(seconds=seconds), NOON) == text


def test_counts_have_thousand_separators_and_sizes_a_unit() -> None:
    assert amounts.count(1_234_567) == "1,234,567"
    assert amounts.size(0) == "0 bytes"
    assert amounts.size(1_234_567) == "1.2 MB"


def test_a_moment_is_shown_in_utc() -> None:
    assert amounts.moment(datetime.fromisoformat("2013-01-05T13:00:03.9+01:00")) == "2013-01-05 12:00:03"
