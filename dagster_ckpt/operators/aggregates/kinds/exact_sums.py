"""Exact sums of numbers as doubles, from which rows can be retracted: of a column, or of the products of two."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, take_array
from dagster_ckpt.operators.aggregates.kinds.accumulator import SUMS, Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.counts import PairCount
from dagster_ckpt.operators.shared.arrays import exact_numbers
from dagster_ckpt.operators.shared.arrays.exact_numbers import EXACT, Doubles, Whole
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null


@dataclass(frozen=True)
class ExactSum(OneColumn):
    """The total of a number column, or of the products of two (which may be one column twice), without rounding.

    Rows with a null in a factor, or in a column `beside` them, are skipped. Numbers that are not doubles become doubles
    first, as in Spark.
    """

    factors: tuple[str, ...]
    beside: tuple[str, ...] = ()

    keeps: ClassVar[Keeps] = SUMS

    @property
    def field(self) -> pa.Field:
        return pa.field(
            f"_exact({', '.join(map(json.dumps, filter(None, (self.factors, self.beside))))})", EXACT, nullable=False
        )

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        usable = _all_known(rows, (*self.factors, *self.beside))
        groups, columns = rows.group_of_row, [rows.columns[name] for name in self.factors]
        if not usable.all():
            at = np.flatnonzero(usable)
            groups, columns = groups[at], [take_array(column, at) for column in columns]
        return (exact_numbers.total(groups, [_doubles(column) for column in columns], len(rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (exact_numbers.add(old[self.name], new[self.name]),)


def round_total(total: pa.Array) -> pa.Array:
    """The total of one column as a double, rounded once. NaN and infinities count as in IEEE 754."""
    found = np.zeros(len(total))
    for part, (whole,) in exact_numbers.blocks([total]):
        found[part] = exact_numbers.doubles(*whole.to_doubles(), factors=1)
    nan, infinite, minus_infinite = (counts > 0 for counts in exact_numbers.not_finite(total))
    found[infinite] = np.inf
    found[minus_infinite] = -np.inf
    found[nan | (infinite & minus_infinite)] = np.nan
    return pa.array(found)


def variance(total: pa.Array, squares: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The variance, a double: of a sample (`ddof` 1) or of the population (0); null for `ddof` values or fewer."""
    n = count.to_numpy()
    return or_null(pa.array(_moment((total, total), squares, n, np.maximum(n - ddof, 1))), n > ddof)


def stddev(total: pa.Array, squares: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The square root of `variance`."""
    return pc.sqrt(variance(total, squares, count, ddof))


@dataclass(frozen=True)
class Pairs:
    """The exact sums of two number columns y and x, over the rows that have both, and what is computed from them."""

    y: str
    x: str

    @property
    def count(self) -> PairCount:
        """How many rows have both."""
        return PairCount((self.y, self.x))

    def totals(self) -> tuple[ExactSum, ExactSum]:
        """The sums of y and of x."""
        return ExactSum((self.y,), (self.x,)), ExactSum((self.x,), (self.y,))

    def squares(self) -> tuple[ExactSum, ExactSum]:
        """The sums of the squares of y and of x."""
        return ExactSum((self.y, self.y), (self.x,)), ExactSum((self.x, self.x), (self.y,))

    def products(self) -> ExactSum:
        """The sum of y times x."""
        return ExactSum((self.y, self.x))

    def covariance(self, state: Columns, ddof: int) -> pa.Array:
        """The covariance of a sample (`ddof` 1) or of the population (0), a double; null for `ddof` rows or fewer."""
        n = self._n(state)
        return or_null(pa.array(self._of_both(state, np.maximum(n - ddof, 1))), n > ddof)

    def correlation(self, state: Columns) -> pa.Array:
        """Pearson's, a double; null for fewer than two rows, and where y or x is always the same.

        NaN where a value is not finite, though the other column is always the same: 0 times NaN is not 0.
        """
        y2, x2 = (self._around_mean(at, state) for at in (0, 1))
        root = _root_of_product(y2, x2)
        return or_null(pa.array(self._correlation(state, root)), (self._n(state) > 1) & (root != 0))

    def slope(self, state: Columns) -> pa.Array:
        """The slope of the line that best fits y by x, a double; null where x is always the same, as it is in one row.

        NaN where x is not finite, even in one row: its distance from the mean is not 0 then.
        """
        slope, is_line = self._slope(state)
        return or_null(pa.array(slope), is_line)

    def intercept(self, state: Columns) -> pa.Array:
        """Where that line is at x = 0, a double; null where x is always the same."""
        slope, is_line = self._slope(state)
        n = np.maximum(self._n(state), 1)
        y, x = (round_total(state[total.name]).to_numpy() / n for total in self.totals())
        with np.errstate(invalid="ignore"):
            return or_null(pa.array(y - slope * x), is_line)

    def r2(self, state: Columns) -> pa.Array:
        """How well that line fits, a double; null where x is always the same, 1 where only y is."""
        y2, x2 = (self._around_mean(at, state) for at in (0, 1))
        found = np.where(y2 == 0, 1.0, self._correlation(state, _root_of_product(y2, x2)) ** 2)
        return or_null(pa.array(found), x2 != 0)

    def _correlation(self, state: Columns, root: Doubles) -> Doubles:
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Doubles = self._of_both(state) / root
        return found

    def _slope(self, state: Columns) -> tuple[Doubles, Mask]:
        x2 = self._around_mean(1, state)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._of_both(state) / x2, x2 != 0

    def _n(self, state: Columns) -> Positions:
        n: Positions = state[self.count.name].to_numpy()
        return n

    def _of_both(self, state: Columns, over: Positions | None = None) -> Doubles:
        y, x = (state[total.name] for total in self.totals())
        return _moment((y, x), state[self.products().name], self._n(state), over)

    def _around_mean(self, at: int, state: Columns) -> Doubles:
        """The sum of squared distances from the mean, of y (0) or x (1)."""
        total = state[self.totals()[at].name]
        return _moment((total, total), state[self.squares()[at].name], self._n(state))


def _moment(
    totals: tuple[pa.Array, pa.Array], products: pa.Array, n: Positions, over: Positions | None = None
) -> Doubles:
    """The sum of (x - mean of x) * (y - mean of y), to the last bits; NaN where a value is not finite.

    Divided by `over`: the sum itself may be too large for a double.
    """
    found = np.zeros(len(n))
    for part, (x, y, xy) in exact_numbers.blocks([*totals, products]):
        mantissas, exponents = xy.times(Whole.of(n[part])).minus(x.times(y)).to_doubles()
        means = mantissas / np.maximum(n[part], 1)
        found[part] = exact_numbers.doubles(means if over is None else means / over[part], exponents, factors=2)
    strange = [counts > 0 for column in (*totals, products) for counts in exact_numbers.not_finite(column)]
    found[np.logical_or.reduce(strange)] = np.nan
    return found


def _root_of_product(left: Doubles, right: Doubles) -> Doubles:
    """The square root of the product, which may be too large or too small for a double: x for two equal x."""
    (left, left_bits), (right, right_bits) = np.frexp(left), np.frexp(right)
    bits = left_bits + right_bits
    root: Doubles = np.ldexp(np.sqrt(left * right * (1 + bits % 2)), (bits - bits % 2) // 2)
    return root


def _all_known(rows: GroupedRows, names: tuple[str, ...]) -> Mask:
    usable: Mask = np.logical_and.reduce([has_value(rows.columns[name]) for name in names])
    return usable


def _doubles(column: pa.Array) -> Doubles:
    # Unsafe only means that an integer beyond 2**53 is rounded to a double, as Spark rounds it.
    values: Doubles = column.cast(pa.float64(), safe=False).to_numpy()
    return values
