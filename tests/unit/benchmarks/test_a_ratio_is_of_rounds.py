import pytest

from benchmarks.report.timing import Timing, p50, p95, times_as_fast


def test_rows_a_second_count_slow_triggers_too() -> None:
    assert Timing(100, [[1.0, 3.0]]).rows_per_second == 50


def test_a_round_in_which_the_machine_was_busy_does_not_count_more_than_another() -> None:
    assert Timing(100, [[1.0, 1.0], [1.0, 1.0], [50.0, 50.0]]).rows_per_second == 100


def test_a_ratio_compares_what_was_measured_in_the_same_round() -> None:
    mine, theirs = Timing(100, [[1.0], [2.0], [4.0]]), Timing(100, [[3.0], [6.0], [12.0]])
    assert times_as_fast(mine, theirs) == 3


def test_rounds_that_are_missing_on_one_side_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        times_as_fast(Timing(100, [[1.0], [2.0]]), Timing(100, [[1.0]]))


def test_the_95th_percentile_is_between_the_two_nearest() -> None:
    assert p95([float(value) for value in range(1, 101)]) == pytest.approx(95.05)
    assert p50([3.0, 1.0, 2.0]) == 2
