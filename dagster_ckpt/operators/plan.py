"""From a named aggregate and its column's type to what is kept for each key and what readers see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators import results
from dagster_ckpt.operators.accumulators.accumulator import Accumulator, Columns
from dagster_ckpt.operators.accumulators.counts import ROWS, ValueCount
from dagster_ckpt.operators.accumulators.edges import Edge
from dagster_ckpt.operators.accumulators.extremes import End, Extreme
from dagster_ckpt.operators.accumulators.moments import Moments
from dagster_ckpt.operators.accumulators.sums import DecimalSum, FloatSum, IntegerSum, WideSum
from dagster_ckpt.operators.agg import Aggregation, Function

Types = Mapping[str, pa.DataType]
"""The input's column types by name."""


@dataclass(frozen=True)
class AggregatePlan:
    """One output column: its field, what it keeps in the state, and how it is read from there."""

    field: pa.Field
    accumulators: tuple[Accumulator, ...]
    result: Callable[[Columns], pa.Array]


def plan(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """The plan of an aggregate that `checks` has let pass."""
    column = aggregation.column
    if column is None:
        return _count(name, None)
    type_, count = types[column], ValueCount(column)
    match aggregation.function:
        case Function.COUNT:
            return _count(name, count)
        case Function.SUM | Function.AVG:
            return (_sum if aggregation.function is Function.SUM else _average)(name, count, type_)
        case Function.MIN | Function.MAX:
            extreme = Extreme(column, type_, End.LEAST if aggregation.function is Function.MIN else End.GREATEST)
            return AggregatePlan(pa.field(name, type_), (extreme,), lambda state: state[extreme.name])
        case Function.FIRST | Function.LAST:
            by = aggregation.by or event_time
            assert by is not None, "checks lets no first or last pass that has no order"
            end = End.LEAST if aggregation.function is Function.FIRST else End.GREATEST
            return _edge(name, Edge(column, type_, by, types[by], end))
        case Function.VARIANCE | Function.STDDEV:
            return _spread(name, count, aggregation.function)


def _count(name: str, count: ValueCount | None) -> AggregatePlan:
    field = pa.field(name, pa.int64(), nullable=False)
    if count is None:  # of rows, and those are counted anyhow
        return AggregatePlan(field, (), lambda state: state[ROWS])
    return AggregatePlan(field, (count,), lambda state: state[count.name])


def _edge(name: str, edge: Edge) -> AggregatePlan:
    value, _ = edge.names
    return AggregatePlan(pa.field(name, edge.type), (edge,), lambda state: state[value])


def _total(column: str, type_: pa.DataType) -> IntegerSum | FloatSum | DecimalSum:
    if pa.types.is_decimal(type_):
        return DecimalSum(column, type_)
    return FloatSum(column) if pa.types.is_floating(type_) else IntegerSum(column)


def _sum(name: str, count: ValueCount, type_: pa.DataType) -> AggregatePlan:
    total = _total(count.column, type_)
    return AggregatePlan(
        pa.field(name, total.fields[0].type),
        (count, total),
        lambda state: results.null_if_none(state[total.name], state[count.name]),
    )


def _average(name: str, count: ValueCount, type_: pa.DataType) -> AggregatePlan:
    if pa.types.is_int64(type_):
        wide = WideSum(count.column)
        high, low = wide.names
        return AggregatePlan(
            pa.field(name, pa.float64()),
            (count, wide),
            lambda state: results.wide_mean(state[high], state[low], state[count.name]),
        )
    total = _total(count.column, type_)
    if isinstance(total, DecimalSum):
        mean = results.decimal_mean_type(type_)
        return AggregatePlan(
            pa.field(name, mean),
            (count, total),
            lambda state: results.decimal_mean(state[total.name], state[count.name], mean),
        )
    return AggregatePlan(
        pa.field(name, pa.float64()), (count, total), lambda state: results.mean(state[total.name], state[count.name])
    )


def _spread(name: str, count: ValueCount, function: Function) -> AggregatePlan:
    moments = Moments(count.column)
    _, m2 = moments.names
    result = results.stddev if function is Function.STDDEV else results.variance
    return AggregatePlan(
        pa.field(name, pa.float64()), (count, moments), lambda state: result(state[m2], state[count.name])
    )
