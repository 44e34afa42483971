"""The bits of integers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.bags import bag_functions
from dagster_ckpt.operators.aggregates.functions.of_bags import BagPlan, beside
from dagster_ckpt.operators.aggregates.functions.results import null_if_none
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns, GroupedRows, Keeps, OneColumn
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator, SqlName
from dagster_ckpt.operators.aggregates.spec import INTEGERS, AggregatePlan, AggregateSpec, Plan, Request
from dagster_ckpt.operators.shared.arrays.nulls import fill_null


@dataclass(frozen=True)
class Bitwise:
    """An operation on integers: of the values of groups, of two columns, and a value that changes no other."""

    name: str
    reduce: np.ufunc
    together: Callable[[pa.Array, pa.Array], pa.Array]
    nothing: int


AND = Bitwise("bit_and", np.bitwise_and, pc.bit_wise_and, -1)
OR = Bitwise("bit_or", np.bitwise_or, pc.bit_wise_or, 0)
XOR = Bitwise("bit_xor", np.bitwise_xor, pc.bit_wise_xor, 0)


@dataclass(frozen=True)
class Bits(OneColumn, PartialAccumulator):
    """All values of a column of integers so far; without one, what changes no value: all bits set for AND, else 0."""

    bitwise: Bitwise
    column: str
    type: pa.DataType

    keeps: ClassVar[Keeps] = Keeps("bits", subtracts=False)

    @property
    def field(self) -> pa.Field:
        return pa.field(f"_{self.bitwise.name}({self.column})", self.type, nullable=False)

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        values = fill_null(rows.columns[self.column], self.bitwise.nothing).to_numpy()
        return (pa.array(self.bitwise.reduce.reduceat(values, rows.starts)).cast(self.type),)

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        return (self.bitwise.together(fill_null(old[self.name], self.bitwise.nothing), new[self.name]),)

    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        return (Partial(f"{self.bitwise.name}({name(self.column)})", self.type),)

    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        return (fill_null(columns[0], self.bitwise.nothing),)


__all__ = ["bit_and", "bit_or", "bit_xor"]


def bit_and(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that all values of a column of integers have, in its type.

    Over a table whose rows change this and `bit_or` keep each distinct value of a key: see `percentile`.
    """
    return Aggregation("bit_and", column, since=since)


def bit_or(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that any value of a column of integers has, in its type."""
    return Aggregation("bit_or", column, since=since)


def bit_xor(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that an odd number of values of a column of integers have, in its type."""
    return Aggregation("bit_xor", column, since=since)


def _bits(bitwise: Bitwise) -> Plan:
    def plan(request: Request) -> AggregatePlan:
        bits, count = Bits(bitwise, request.column, request.type), request.count
        return AggregatePlan(
            pa.field(request.name, request.type),
            (count, bits),
            lambda state: null_if_none(state[bits.name], state[count.name]),
        )

    return plan


def _of_bag(bitwise: Bitwise) -> Plan:
    """Where a value is taken back that others may share bits with."""
    return beside(
        lambda request: BagPlan(
            (request.column,), pa.field(request.name, request.type), bag_functions.bitwise(bitwise.reduce)
        )
    )


SPECS = (
    AggregateSpec(bit_and, INTEGERS, _bits(AND), retracted=_of_bag(AND), spark=("BitAndAgg",), idempotent=True),
    AggregateSpec(bit_or, INTEGERS, _bits(OR), retracted=_of_bag(OR), spark=("BitOrAgg",), idempotent=True),
    AggregateSpec(bit_xor, INTEGERS, _bits(XOR), spark=("BitXorAgg",)),
)
