from fractions import Fraction
from math import inf, isnan, nan

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.kinds.accumulator import GroupedRows
from dagster_ckpt.operators.aggregates.kinds.exact_sums import ExactSum, Pairs, round_total, stddev, variance
from dagster_ckpt.operators.shared.arrays import exact_numbers
from dagster_ckpt.operators.shared.arrays.exact_numbers import Whole
from tests.unit.operators.streams import aggregated
from tests.worlds.examples import examples

TINY, HUGE = 5e-324, 1.7976931348623157e308
ANY = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([TINY, -TINY, HUGE, -HUGE, 2.0**53, -0.0])
PAIRS = st.lists(st.tuples(st.integers(0, 3), ANY, ANY), min_size=1, max_size=30)


def rows(values: list[tuple[int, float, float]]) -> GroupedRows:
    """Rows by group; each group has at least one."""
    values = sorted([*values, *((group, 0.0, 0.0) for group in range(4))], key=lambda row: row[0])
    starts = np.array([[group for group, _, _ in values].index(group) for group in range(4)])
    columns = {"x": pa.array([x for _, x, _ in values]), "y": pa.array([y for _, _, y in values])}
    return GroupedRows(starts, np.diff(starts, append=len(values)), columns)


def one_group(*values: float | None) -> GroupedRows:
    return GroupedRows(np.array([0]), np.array([len(values)]), {"x": pa.array(values, pa.float64())})


def exact(values: list[tuple[int, float, float]], factors: int) -> list[Fraction]:
    sums = [Fraction(0)] * 4
    for group, x, y in values:
        sums[group] += Fraction(x) * (Fraction(y) if factors == 2 else 1)
    return sums


def as_double(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def state(accumulator: ExactSum, of: GroupedRows) -> dict[str, pa.Array]:
    return {accumulator.name: accumulator.of_rows(of)[0]}


@examples(200)
@given(PAIRS)
def test_a_total_is_rounded_once(values: list[tuple[int, float, float]]) -> None:
    [total] = ExactSum(("x",)).of_rows(rows(values))
    assert round_total(total).to_pylist() == list(map(as_double, exact(values, 1)))


@examples(200)
@given(PAIRS)
def test_products_are_exact(values: list[tuple[int, float, float]]) -> None:
    [total] = ExactSum(("x", "y")).of_rows(rows(values))
    [(_, (whole,))] = exact_numbers.blocks([total])
    numbers = [
        sum(int(digit) << 32 * (place + whole.place) for place, digit in enumerate(digits)) for digits in whole.digits.T
    ]
    assert [Fraction(number, 2**2252) for number in numbers] == exact(values, 2)


@examples(200)
@given(PAIRS, PAIRS, st.sampled_from([("x",), ("x", "y")]))
def test_what_is_taken_back_leaves_nothing(
    values: list[tuple[int, float, float]], others: list[tuple[int, float, float]], factors: tuple[str, ...]
) -> None:
    total = ExactSum(factors)
    some, more = state(total, rows(values)), state(total, rows(others))
    both = {total.name: total.merge(some, more)[0]}
    back = {total.name: exact_numbers.negate(more[total.name])}
    assert total.merge(both, back)[0] == some[total.name], "the same bytes, in any order of additions"
    gone = {total.name: exact_numbers.negate(some[total.name])}
    assert total.merge({total.name: total.merge(both, back)[0]}, gone)[0].to_pylist() == [[]] * 4


@examples(100)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_of_any_size(numbers: list[int], other: int) -> None:
    left, right = Whole.of(np.array(numbers)), Whole.of(np.full(len(numbers), other))
    found = left.times(right).times(left).minus(right.times(right))
    mantissas, exponents = found.to_doubles()
    assert np.ldexp(mantissas, exponents).tolist() == [float(n * n * other - other * other) for n in numbers]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0.1] * 10, 1.0),
        ([1e16, 1.0, -1e16], 1.0),
        ([HUGE, HUGE, -HUGE], HUGE),  # an intermediate total has no double
        ([HUGE, HUGE], inf),
        ([-HUGE, -HUGE], -inf),
        ([TINY, TINY, -TINY], TINY),
        ([-0.0, -0.0], 0.0),
        ([2.0**53, 1.0], 2.0**53),  # half way, to the even one
        ([2.0**53, 1.0, TINY], 2.0**53 + 2),
        ([-(2.0**53), -1.0, -TINY], -(2.0**53) - 2),
        ([2.0**53, 1.0, -TINY], 2.0**53),
        ([nan, 1.0], nan),
        ([inf, 1.0], inf),
        ([inf, -inf], nan),
        ([-inf, HUGE], -inf),
        ([None, 1.5], 1.5),
        ([None], 0.0),
    ],
)
def test_totals_by_hand(values: list[float | None], wanted: float) -> None:
    [total] = ExactSum(("x",)).of_rows(one_group(*values))
    [found] = round_total(total).to_pylist()
    assert repr(found) == repr(wanted)


@pytest.mark.parametrize("strange", [nan, inf, -inf])
def test_what_is_not_finite_can_be_taken_back(strange: float) -> None:
    total = ExactSum(("x",))
    before, now = state(total, one_group(strange, 0.5)), state(total, one_group(strange))
    [left] = total.merge(before, {total.name: exact_numbers.negate(now[total.name])})
    assert round_total(left).to_pylist() == [0.5]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1.0, 2.0, 3.0, 4.0], 5 / 3),
        ([1e15 + 1, 1e15 + 2, 1e15 + 3], 1.0),  # far from zero
        ([1e200, 1e200], 0.0),
        ([1e160, -1e160], inf),
        ([1e150, -1e150], 2e300),
        ([1.0], None),
        ([1.0, nan], nan),
        ([1.0, inf], nan),
    ],
)
def test_variances_by_hand(values: list[float], wanted: float | None) -> None:
    total, squares = (ExactSum(factors).of_rows(one_group(*values))[0] for factors in (("x",), ("x", "x")))
    count = pa.array([len(values)])
    [found], [spread] = (result(total, squares, count).to_pylist() for result in (variance, stddev))
    if wanted is None or isnan(wanted):
        assert repr(found) == repr(spread) == repr(wanted)
    else:
        assert found == pytest.approx(wanted, rel=1e-15)
        assert spread == pytest.approx(wanted**0.5, rel=1e-15)


PAIRS_BY_HAND: dict[str, list[tuple[float | None, float | None]]] = {
    "line": [(1.0, 2.0), (3.0, 4.0), (5.0, 6.0), (None, 9.0), (7.0, None)],
    "one": [(1.0, 2.0)],
    "same_x": [(1.0, 5.0), (2.0, 5.0)],
    "same_y": [(5.0, 1.0), (5.0, 2.0)],
    "none": [(None, 1.0), (1.0, None)],
    "nan": [(nan, 1.0), (2.0, 3.0)],
    "infinite": [(inf, 1.0), (2.0, 3.0)],
}
WANTED_OF_PAIRS = {  # as Spark has them; only the correlation with a constant is an error there
    "line": (8 / 3, 4.0, 1.0, 1.0, -1.0, 1.0),
    "one": (0.0, None, None, None, None, None),
    "same_x": (0.0, 0.0, None, None, None, None),
    "same_y": (0.0, 0.0, None, 0.0, 5.0, 1.0),
    "none": (None, None, None, None, None, None),
    "nan": (nan, nan, nan, nan, nan, nan),
    "infinite": (nan, nan, nan, nan, nan, nan),
}


@pytest.mark.parametrize("name", PAIRS_BY_HAND)
def test_functions_of_two_columns_by_hand(name: str) -> None:
    values = PAIRS_BY_HAND[name]
    table = pa.table({"k": ["a"] * len(values), "y": [y for y, _ in values], "x": [x for _, x in values]})
    table = table.cast(pa.schema([("k", pa.string()), ("y", pa.float64()), ("x", pa.float64())]))
    makes = (agg.covar_pop, agg.covar_samp, agg.corr, agg.regr_slope, agg.regr_intercept, agg.regr_r2)
    found = [aggregated(table, made=make("y", "x"))["a"] for make in makes]
    assert list(map(repr, found)) == list(map(repr, WANTED_OF_PAIRS[name]))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([True, None, True], (2, True, True)),
        ([True, False, None], (1, False, True)),
        ([False, False], (0, False, False)),
        ([None, None], (0, None, None)),
    ],
)
def test_functions_of_booleans_by_hand(values: list[bool | None], wanted: tuple[int, bool | None, bool | None]) -> None:
    table = pa.table({"k": ["a"] * len(values), "b": pa.array(values, pa.bool_())})
    found = tuple(aggregated(table, made=make("b"))["a"] for make in (agg.count_if, agg.bool_and, agg.bool_or))
    assert found == wanted


def test_spreads_of_a_population_by_hand() -> None:
    table = pa.table({"k": ["a", "a", "a", "b"], "v": pa.array([1, 2, 6, 5], pa.int32())})
    assert aggregated(table, made=agg.var_pop("v")) == {"a": pytest.approx(14 / 3), "b": 0.0}
    assert aggregated(table, made=agg.stddev_pop("v")) == {"a": pytest.approx((14 / 3) ** 0.5), "b": 0.0}


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (agg.corr("v", "k"), "corr needs numbers: .*column=k, type=string"),
        (agg.regr_r2("k", "v"), "regr_r2 needs numbers: .*column=k, type=string"),
        (agg.covar_pop("v", "w"), "the input has no such column.*column=w"),
        (agg.count_if("v"), "count_if needs a boolean column: .*column=v, type=int32"),
    ],
)
def test_columns_of_another_type_are_refused(aggregation: agg.Aggregation, message: str) -> None:
    table = pa.table({"k": ["a"], "v": pa.array([1], pa.int32())})
    with pytest.raises(InvalidPipelineError, match=message):
        aggregated(table, made=aggregation)


def test_a_covariance_may_fit_where_its_sum_does_not() -> None:
    values = {"y": pa.array([0.0, 1e300]), "x": pa.array([0, 359538627])}
    pairs = Pairs("y", "x")
    grouped = GroupedRows(np.array([0]), np.array([2]), values)
    accumulators = (pairs.count, *pairs.totals(), pairs.products())
    state = {
        field.name: one for each in accumulators for field, one in zip(each.fields, each.of_rows(grouped), strict=True)
    }
    assert pairs.covariance(state, 0).to_pylist() == [pytest.approx(359538627 / 4 * 1e300, rel=1e-13)]
