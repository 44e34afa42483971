"""Pairs as ranges of partners, made piece by piece."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators.joins.interval_bounds import Interval, shift
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT
from dagster_ckpt.operators.joins.match_ranges import Matches, of_equal_keys, within
from tests.worlds.examples import examples

MOST, LEAST = 2**63 - 1, -(2**63)
GROUPS = st.integers(0, 3)
PARTNERS = st.lists(st.tuples(GROUPS, st.integers(0, 9)), max_size=12)
ASKED = st.lists(st.tuples(GROUPS, st.integers(-5, 15), st.integers(0, 8)), max_size=12)


def columns(rows: Sequence[tuple[int, ...]], count: int) -> list[np.typing.NDArray[np.int64]]:
    return [np.array([row[at] for row in rows], dtype=np.int64) for at in range(count)]


def pairs_of(matches: Matches, most: int) -> list[tuple[int, int]]:
    pieces = [(rows.tolist(), partners.tolist()) for rows, partners in matches.pairs(most)]
    assert all(len(rows) == len(partners) == most for rows, partners in pieces[:-1])
    return sorted(pair for rows, partners in pieces for pair in zip(rows, partners, strict=True))


@examples(200)
@given(PARTNERS, ASKED, st.integers(1, 7), st.sampled_from([10, 2**61]))
def test_a_row_matches_what_is_in_its_range_and_group(
    partners: list[tuple[int, int]], asked: list[tuple[int, int, int]], most: int, width: int
) -> None:
    groups, places = columns(partners, 2)
    rows, lows, lengths = columns(asked, 3)
    matches = within(groups, places, rows, lows, lows + lengths, width)
    wanted = sorted(
        (row, partner)
        for row, (mine, low, length) in enumerate(asked)
        for partner, (theirs, place) in enumerate(partners)
        if mine == theirs and low <= place <= low + length
    )
    assert pairs_of(matches, most) == pairs_of(matches, 10**6) == wanted
    assert np.flatnonzero(matches.has_match).tolist() == sorted({row for row, _ in wanted})
    assert sorted(matches.partners_matched.tolist()) == sorted({partner for _, partner in wanted})


@examples(100)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12), st.integers(0, 12), st.sampled_from([1, 2, 1000]))
def test_rows_of_equal_keys_match(keys: list[str | None], cut: int, distinct: int) -> None:
    cut = min(cut, len(keys))
    hashes = np.array([ord(key or "-") % distinct for key in keys], dtype=np.uint64)
    matchable = np.array([key is not None for key in keys[:cut]], dtype=np.bool_)
    matches = of_equal_keys(hashes, pa.table({"k": pa.array(keys, pa.string())}), cut, matchable)
    wanted = sorted(
        (row, partner)
        for row, mine in enumerate(keys[:cut])
        for partner, theirs in enumerate(keys[cut:])
        if mine is not None and mine == theirs
    )
    assert pairs_of(matches, 3) == wanted
    assert sorted(matches.partners_matched.tolist()) == sorted({partner for _, partner in wanted})


def test_times_never_wrap_round() -> None:
    times = np.array([LEAST, -1, 0, 1, MOST])
    assert shift(times, 2).tolist() == [LEAST + 2, 1, 2, 3, MOST]
    assert shift(times, -2).tolist() == [LEAST, -3, -2, -1, MOST - 2]
    assert shift(times, 0) is times


@pytest.mark.parametrize(("lower", "upper"), [(-3, 4), (0, 0), (2, 9), (-9, -2)])
def test_what_a_row_reaches_is_in_its_bucket_or_the_next_on_its_side(lower: int, upper: int) -> None:
    interval = Interval(lower, upper)
    times = np.arange(-50, 50)
    for number, step in ((LEFT, 1), (RIGHT, -1)):
        places = interval.places(number, times)
        lows, highs = interval.reach(number, places)
        mine = interval.buckets(places)
        first, last = interval.buckets(lows), interval.buckets(highs)
        near, far = (first, last) if number == LEFT else (last, first)
        assert (near == mine).all()
        assert np.isin(far - mine, (0, step)).all()
        theirs = interval.places(1 - number, times)
        for time, low, high in zip(times, lows, highs, strict=True):
            matching = times[(theirs >= low) & (theirs <= high)]
            earliest, latest = (lower, upper) if number == LEFT else (-upper, -lower)
            assert matching.tolist() == [at for at in times.tolist() if time + earliest <= at <= time + latest]
