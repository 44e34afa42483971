"""The bits of integers."""

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.bags import bag_functions
from dagster_ckpt.operators.aggregates.functions.of_bags import BagPlan, beside
from dagster_ckpt.operators.aggregates.functions.results import null_if_none
from dagster_ckpt.operators.aggregates.kinds.bits import AND, OR, XOR, Bits, Bitwise
from dagster_ckpt.operators.aggregates.spec import INTEGERS, AggregatePlan, AggregateSpec, Plan, Request

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
