import pytest

from tests.chaos.flatness import Tolerance, verdict

TENTH = Tolerance(share=0.1, slack=2)


def test_what_stays_is_flat_however_it_began() -> None:
    assert verdict([0, 50, 90, 100, 100, 100, 101, 99, 100], TENTH).is_flat


def test_what_grows_steadily_is_not_flat() -> None:
    assert not verdict([100, 120, 140, 160, 180, 200, 220, 240, 260], TENTH).is_flat


def test_one_peak_in_the_last_third_is_no_growth() -> None:
    assert verdict([100, 100, 100, 100, 100, 100, 100, 900, 100], TENTH).is_flat


def test_the_bound_is_a_share_and_something_besides() -> None:
    assert verdict([0, 100, 112], TENTH).is_flat
    assert not verdict([0, 100, 113], TENTH).is_flat


def test_what_shrinks_is_flat() -> None:
    assert verdict([100, 100, 10], TENTH).is_flat


def test_a_series_without_thirds_is_refused() -> None:
    with pytest.raises(ValueError, match="values=2"):
        verdict([1, 2], TENTH)
