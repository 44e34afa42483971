"""Totals: of integers and decimals exactly, of floats as doubles."""

from abc import abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.operators.aggregates.kinds.accumulator import SUMS, Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.shared.arrays.nulls import fill_null
from dagster_ckpt.split_totals import HALF, HALF_BITS, half_names, total_name

DECIMAL_DIGITS_MAX = 38
_SUMMABLE_DIGITS = 28
"""Spark's total of any ten billion decimals with so many digits has no more than 38."""
_LOW_DIGITS = 20
"""The lower part of a longer decimal. The upper one, of 18 digits, is a bigint."""


@dataclass(frozen=True)
class _Sum(OneColumn, PartialAccumulator):
    column: str

    keeps: ClassVar[Keeps] = SUMS

    @property
    def field(self) -> pa.Field:
        return pa.field(total_name(self.column), self.total, nullable=False)

    @property
    @abstractmethod
    def total(self) -> pa.DataType:
        """The type of the total."""


@dataclass(frozen=True)
class IntegerSum(_Sum):
    """The total of an integer column as one int64; 0 where there is no value. `OverflowError` where it does not fit."""

    total: ClassVar[pa.DataType] = pa.int64()

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        values = _integers(rows.columns[self.column])
        furthest = max(int(values.max()), -int(values.min()))
        if furthest * int(rows.sizes.max()) > np.iinfo(np.int64).max:
            self._check(_halves(values, rows.starts)[0])
        return (pa.array(np.add.reduceat(values, rows.starts)),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        try:
            return (pc.add_checked(fill_null(old[self.name], 0), new[self.name]),)
        except pa.ArrowInvalid as error:
            raise _does_not_fit(self.column, "bigint") from error

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return _partial_halves(name(self.column))

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        high, low = _of_partial_halves(columns)
        self._check(high)
        return (pa.array((high << HALF_BITS) + low),)

    def _check(self, high: Positions) -> None:
        """Raise `OverflowError` where a total with this upper half is no int64."""
        if (high != high.astype(np.int32)).any():
            raise _does_not_fit(self.column, "bigint")


@dataclass(frozen=True)
class WideSum(PartialAccumulator):
    """The total of an integer column in two `halves`: for means.

    A mean must not fail because its total overflows 64 bits, as that of a few nanosecond timestamps does. Where the
    column was narrower before, or was summed alone, older state has the total in one: it is halved as it is read.
    """

    column: str

    keeps: ClassVar[Keeps] = SUMS

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: high and low."""
        return half_names(self.column)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return tuple(pa.field(name, pa.int64(), nullable=False) for name in self.names)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        high, low = _halves(_integers(rows.columns[self.column]), rows.starts)
        return pa.array(high), pa.array(low)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        high, low = (fill_null(old[name], 0).to_numpy() + new[name].to_numpy() for name in self.names)
        high, low = _carry(high, low)
        return pa.array(high), pa.array(low)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return _partial_halves(name(self.column))

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        high, low = _of_partial_halves(columns)
        return pa.array(high), pa.array(low)


@dataclass(frozen=True)
class FloatSum(_Sum):
    """The total of a float column as a double; 0 where there is no value, and never -0.0.

    NaN and infinities count as in IEEE 754.
    """

    total: ClassVar[pa.DataType] = pa.float64()

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        values = fill_null(rows.columns[self.column], 0.0).to_numpy().astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            # A total starts at 0.0, so it is never -0.0: otherwise adding 0.0 for a null would change it.
            return (pa.array(np.add.reduceat(values, rows.starts) + 0.0),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (pc.add(fill_null(old[self.name], 0.0), new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"sum(CAST({name(self.column)} AS DOUBLE))", pa.float64()),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        [total] = columns
        return (pc.add(fill_null(total, 0.0), 0.0),)


@dataclass(frozen=True)
class DecimalSum(_Sum):
    """The exact total of a decimal column; 0 where there is no value. `OverflowError` where it has too many digits."""

    type: pa.Decimal128Type

    @property
    def total(self) -> pa.Decimal128Type:
        return decimal_total_type(self.type)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        values = rows.columns[self.column].cast(self._wide())
        groups = pa.table({"group": rows.group_of_row, "value": fill_null(values, 0)})
        totals = groups.group_by("group", use_threads=False).aggregate([("value", "sum")])
        return (self._narrow(totals["value_sum"].combine_chunks()),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        before, now = (fill_null(side[self.name].cast(self._wide()), 0) for side in (old, new))
        return (self._narrow(pc.add(before, now)),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        """Values of more than 28 digits, which are rare, are summed in two parts, exact for ten billion rows.

        Spark's total of them may outgrow 38 digits on the way to one that has fewer.
        """
        column = name(self.column)
        if self.type.precision <= _SUMMABLE_DIGITS:
            return Partial(f"try_sum({column})", self.total), Partial(f"count({column})", pa.int64())
        scale = self.type.scale
        least = f"{_power_of_10(_SUMMABLE_DIGITS - scale):f}BD"
        unit = f"{self._unit:f}BD"
        short = f"CASE WHEN {column} BETWEEN -{least} AND {least} THEN"  # the same thrice: Spark judges it once

        def of_long(part: str, precision: int, scale: int) -> Partial:
            total = decimal_total_type(pa.decimal128(precision, scale))
            return Partial(f"sum({short} NULL ELSE CAST({part} AS DECIMAL({precision}, {scale})) END)", total)

        return (
            Partial(f"sum({short} {column} END)", self.total),
            of_long(f"{column} div {unit}", 19, 0),
            of_long(f"{column} % {unit}", max(_LOW_DIGITS, scale), scale),
        )

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        if self.type.precision <= _SUMMABLE_DIGITS:
            total, count = columns
            if pc.any(pc.and_(pc.is_null(total), pc.greater(count, 0))).as_py():
                raise self._outgrown()
            return (fill_null(total, 0),)
        short, high, low = (fill_null(each, 0) for each in columns)
        upper = pc.multiply(high.cast(pa.decimal256(29, 0)), pa.scalar(self._unit))
        wide = [each.cast(self._wide()) for each in (short, upper, low)]
        return (self._narrow(reduce(pc.add, wide)),)

    @property
    def _unit(self) -> Decimal:
        """How much one is in the upper part of a long decimal."""
        return _power_of_10(_LOW_DIGITS - self.type.scale)

    def _wide(self) -> pa.Decimal256Type:
        # 128 bits would wrap round silently; 256 hold any total of 38-digit numbers.
        return pa.decimal256(DECIMAL_DIGITS_MAX + 20, self.type.scale)

    def _narrow(self, totals: pa.Array) -> pa.Array:
        try:
            return totals.cast(self.total)
        except pa.ArrowInvalid as error:
            raise self._outgrown() from error

    def _outgrown(self) -> OverflowError:
        return _does_not_fit(self.column, f"decimal({self.total.precision}, {self.total.scale})")


def decimal_total_type(type_: pa.Decimal128Type) -> pa.Decimal128Type:
    """Spark's type for the total of a decimal column: ten more digits."""
    return pa.decimal128(min(type_.precision + 10, DECIMAL_DIGITS_MAX), type_.scale)


def _power_of_10(exponent: int) -> Decimal:
    return Decimal(1).scaleb(exponent)


def _integers(column: pa.Array) -> Positions:
    values: Positions = fill_null(column, 0).to_numpy().astype(np.int64, copy=False)
    return values


def _halves(values: Positions, starts: Positions) -> tuple[Positions, Positions]:
    """Each group's total as `high * 2**32 + low`, exact for up to 2**31 rows."""
    high = np.add.reduceat(values >> HALF_BITS, starts)
    low = np.add.reduceat(values & HALF, starts)
    return _carry(high, low)


def _partial_halves(column: str) -> tuple[Partial, ...]:
    """The same in SQL. Spark's own total of a bigint wraps round, or fails where parts of it overflow on the way."""
    whole = f"CAST({column} AS BIGINT)"
    halves = f"sum(shiftright({whole}, {HALF_BITS}))", f"sum({whole} & {HALF}L)"
    return tuple(Partial(half, pa.int64()) for half in halves)


def _of_partial_halves(columns: tuple[pa.Array, ...]) -> tuple[Positions, Positions]:
    high, low = (fill_null(each, 0).to_numpy() for each in columns)
    return _carry(high, low)


def _carry(high: Positions, low: Positions) -> tuple[Positions, Positions]:
    return high + (low >> HALF_BITS), low & HALF


def _does_not_fit(column: str, type_name: str) -> OverflowError:
    return OverflowError(
        f"a total outgrew its type: cast the column to a wider decimal or to double before it is summed. "
        f"column={column}, aggregate=sum, type={type_name}"
    )
