"""Exact sums of numbers as doubles, from which rows can be retracted: of a column, or of the products of two."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, taken
from dagster_ckpt.operators.shared.accumulators import exact_numbers
from dagster_ckpt.operators.shared.accumulators.accumulator import Columns, GroupedRows, known, or_null
from dagster_ckpt.operators.shared.accumulators.exact_numbers import EXACT, Doubles, Whole


@dataclass(frozen=True)
class ExactSum:
    """The total of a number column, or of the products of two (which may be one column twice), without rounding.

    Rows with a null in a factor, or in a column `beside` them, are skipped. Numbers that are not doubles become doubles
    first, as in Spark.
    """

    factors: tuple[str, ...]
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its state column."""
        return f"_exact({', '.join(map(json.dumps, filter(None, (self.factors, self.beside))))})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (pa.field(self.name, EXACT, nullable=False),)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        usable = _all_known(rows, (*self.factors, *self.beside))
        groups, columns = rows.group_of_row, [rows.columns[name] for name in self.factors]
        if not usable.all():
            at = np.flatnonzero(usable)
            groups, columns = groups[at], [taken(column, at) for column in columns]
        return (exact_numbers.total(groups, [_doubles(column) for column in columns], len(rows.starts)),)

    def merged(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (exact_numbers.added(old[self.name], new[self.name]),)


def rounded(total: pa.Array) -> pa.Array:
    """The total of one column as a double, rounded once. NaN and infinities count as in IEEE 754."""
    found = np.zeros(len(total))
    for part, (whole,) in exact_numbers.blocks([total]):
        found[part] = exact_numbers.doubles(*whole.rounded(), factors=1)
    nan, infinite, minus_infinite = (counts > 0 for counts in exact_numbers.not_finite(total))
    found[infinite] = np.inf
    found[minus_infinite] = -np.inf
    found[nan | (infinite & minus_infinite)] = np.nan
    return pa.array(found)


def variance(total: pa.Array, squares: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The variance, a double: of a sample (`ddof` 1) or of the population (0); null for `ddof` values or fewer."""
    n = count.to_numpy()
    return or_null(pa.array(_moment((total, total), squares, n) / np.maximum(n - ddof, 1)), n > ddof)


def stddev(total: pa.Array, squares: pa.Array, count: pa.Array, ddof: int = 1) -> pa.Array:
    """The square root of `variance`."""
    return pc.sqrt(variance(total, squares, count, ddof))


def _moment(totals: tuple[pa.Array, pa.Array], products: pa.Array, n: Positions) -> Doubles:
    """The sum of (x - mean of x) * (y - mean of y), to the last bits; NaN where a value is not finite."""
    found = np.zeros(len(n))
    for part, (x, y, xy) in exact_numbers.blocks([*totals, products]):
        mantissas, exponents = xy.times(Whole.of(n[part])).minus(x.times(y)).rounded()
        found[part] = exact_numbers.doubles(mantissas / np.maximum(n[part], 1), exponents, factors=2)
    strange = [counts > 0 for column in (*totals, products) for counts in exact_numbers.not_finite(column)]
    found[np.logical_or.reduce(strange)] = np.nan
    return found


def _all_known(rows: GroupedRows, names: tuple[str, ...]) -> Mask:
    usable: Mask = np.logical_and.reduce([known(rows.columns[name]) for name in names])
    return usable


def _doubles(column: pa.Array) -> Doubles:
    # Unsafe only means that an integer beyond 2**53 is rounded to a double, as Spark rounds it.
    values: Doubles = column.cast(pa.float64(), safe=False).to_numpy()
    return values
