"""Mean and variance, kept so that two parts can be merged without loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.kinds.counts import ValueCount
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import fill_null, has_value

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments(PartialAccumulator):
    """The mean of a numeric column and the sum of squared distances from it (M2): doubles, 0 where there is no value.

    Needs the `ValueCount` of the same column. Parts are merged by the formula of Chan, Golub and LeVeque,
    "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979), equation 2.1.
    """

    column: str

    keeps: ClassVar[Keeps] = Keeps("means and squared deviations")

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: mean and M2."""
        return f"_mean({self.column})", f"_m2({self.column})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(name, pa.float64(), nullable=False) for name in self.names)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        column = rows.columns[self.column]
        valid = has_value(column)
        count = np.maximum(np.add.reduceat(valid.astype(np.int64), rows.starts), 1)
        # Unsafe only means that an integer beyond 2**53 is rounded to a double, as Spark rounds it.
        values = fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy()
        with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaN end as NaN, as in Spark
            mean = np.add.reduceat(values, rows.starts) / count
            distance = np.where(valid, values - mean[rows.group_of_row], 0.0)
            # The distances would add up to 0 if the mean were exact: their remainder corrects it.
            error = np.add.reduceat(distance, rows.starts) / count
            mean = mean + error
            m2 = np.add.reduceat(distance * distance, rows.starts) - count * error * error
        return pa.array(mean), pa.array(m2)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        count = ValueCount(self.column).name
        n_old, n_new = (fill_null(side[count], 0).to_numpy().astype(np.float64) for side in (old, new))
        (mean_old, m2_old), (mean_new, m2_new) = (self._of(side) for side in (old, new))
        n = np.maximum(n_old + n_new, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = mean_new - mean_old
            mean = mean_old + apart * (n_new / n)
            m2 = m2_old + m2_new + apart * apart * (n_old * n_new / n)
        # A side without values must not add NaN by 0 * infinity, and must not change a bit of the other side.
        mean = np.where(n_old == 0, mean_new, np.where(n_new == 0, mean_old, mean))
        m2 = np.where(n_old == 0, m2_new, np.where(n_new == 0, m2_old, m2))
        return pa.array(mean), pa.array(m2)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        value = f"CAST({name(self.column)} AS DOUBLE)"
        return tuple(Partial(each, pa.float64()) for each in (f"avg({value})", f"var_pop({value}) * count({value})"))

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        mean, m2 = (fill_null(each, 0.0) for each in columns)
        return pc.if_else(pc.is_nan(m2), m2, mean), m2  # no number has an infinite mean and a known distance from it

    def _of(self, side: Columns) -> tuple[Doubles, Doubles]:
        mean, m2 = (fill_null(side[name], 0.0).to_numpy() for name in self.names)
        return mean, m2
