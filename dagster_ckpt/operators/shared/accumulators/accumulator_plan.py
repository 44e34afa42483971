"""From a named aggregate and its column's type to what is kept for each key and what readers see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.shared.accumulators import output_columns
from dagster_ckpt.operators.shared.accumulators.accumulator import Accumulator, Columns
from dagster_ckpt.operators.shared.accumulators.collected import FirstValues
from dagster_ckpt.operators.shared.accumulators.counts import ROWS, ValueCount
from dagster_ckpt.operators.shared.accumulators.distinct import DistinctValues, NewValues
from dagster_ckpt.operators.shared.accumulators.edges import Edge
from dagster_ckpt.operators.shared.accumulators.extremes import End, Extreme
from dagster_ckpt.operators.shared.accumulators.moments import Moments
from dagster_ckpt.operators.shared.accumulators.sketches import DistinctSketch, QuantileSketch
from dagster_ckpt.operators.shared.accumulators.sums import DecimalSum, FloatSum, IntegerSum, WideSum

Types = Mapping[str, pa.DataType]
"""The input's column types by name."""


@dataclass(frozen=True)
class AggregatePlan:
    """One output column: its field, what it keeps in the state, and how it is read from there."""

    field: pa.Field
    accumulators: tuple[Accumulator, ...]
    result: Callable[[Columns], pa.Array]


Planner = Callable[[str, Aggregation, Types, str | None], AggregatePlan]
"""Makes the plan of an aggregate that `checks` has let pass, from its name, the input and the event-time column."""


def plan(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """The plan of an aggregate whose whole state lies with its group: a `Planner`."""
    if aggregation.column is None:  # a count of rows, and those are counted anyhow
        return AggregatePlan(pa.field(name, pa.int64(), nullable=False), (), lambda state: state[ROWS])
    return _PLANS[aggregation.function](_Asked(name, aggregation, aggregation.column, types, event_time))


def plan_with_tables(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """The plan of an aggregate that may have a state table of its own, see `distinct_table`: a `Planner`."""
    if aggregation.function is Function.COUNT_DISTINCT and aggregation.column is not None:
        new = NewValues(aggregation.column)
        return _counted(name, new, lambda state: state[new.name])
    return plan(name, aggregation, types, event_time)


@dataclass(frozen=True)
class _Asked:
    """An aggregate of a column."""

    name: str
    aggregation: Aggregation
    column: str
    types: Types
    event_time: str | None

    @property
    def type(self) -> pa.DataType:
        return self.types[self.column]

    @property
    def count(self) -> ValueCount:
        return ValueCount(self.column)

    @property
    def by(self) -> str:
        by = self.aggregation.by or self.event_time
        assert by is not None, "checks lets nothing pass that needs an order and has none"
        return by


def _counted(name: str, accumulator: Accumulator, result: Callable[[Columns], pa.Array]) -> AggregatePlan:
    return AggregatePlan(pa.field(name, pa.int64(), nullable=False), (accumulator,), result)


def _count(asked: _Asked) -> AggregatePlan:
    return _counted(asked.name, asked.count, lambda state: state[asked.count.name])


def _extreme(asked: _Asked) -> AggregatePlan:
    end = End.LEAST if asked.aggregation.function is Function.MIN else End.GREATEST
    extreme = Extreme(asked.column, asked.type, end)
    return AggregatePlan(pa.field(asked.name, asked.type), (extreme,), lambda state: state[extreme.name])


def _edge(asked: _Asked) -> AggregatePlan:
    end = End.LEAST if asked.aggregation.function is Function.FIRST else End.GREATEST
    edge = Edge(asked.column, asked.type, asked.by, asked.types[asked.by], end)
    value, _ = edge.names
    return AggregatePlan(pa.field(asked.name, edge.type), (edge,), lambda state: state[value])


def _collected(asked: _Asked) -> AggregatePlan:
    limit = asked.aggregation.limit
    assert limit is not None, "checks lets none pass without"
    first = FirstValues(asked.column, asked.type, asked.by, asked.types[asked.by], limit)
    values, _ = first.names
    return AggregatePlan(first.fields[0].with_name(asked.name), (first,), lambda state: state[values])


def _distinct(asked: _Asked) -> AggregatePlan:
    distinct = DistinctValues(asked.column, asked.type)
    return _counted(asked.name, distinct, lambda state: output_columns.sizes(state[distinct.name]))


def _about_distinct(asked: _Asked) -> AggregatePlan:
    error = asked.aggregation.error
    assert error is not None, "checks lets none pass without"
    sketch = DistinctSketch.within(asked.column, error)
    return _counted(asked.name, sketch, sketch.result)


def _quantile(asked: _Asked) -> AggregatePlan:
    q, accuracy = asked.aggregation.q, asked.aggregation.accuracy
    assert q is not None, "checks lets none pass without"
    assert accuracy is not None, "checks lets none pass without"
    sketch = QuantileSketch(asked.column, accuracy)
    return AggregatePlan(pa.field(asked.name, pa.float64()), (sketch,), lambda state: sketch.result(state, q))


def _total(column: str, type_: pa.DataType) -> IntegerSum | FloatSum | DecimalSum:
    if pa.types.is_decimal(type_):
        return DecimalSum(column, type_)
    return FloatSum(column) if pa.types.is_floating(type_) else IntegerSum(column)


def _sum(asked: _Asked) -> AggregatePlan:
    count, total = asked.count, _total(asked.column, asked.type)
    return AggregatePlan(
        pa.field(asked.name, total.fields[0].type),
        (count, total),
        lambda state: output_columns.null_if_none(state[total.name], state[count.name]),
    )


def _average(asked: _Asked) -> AggregatePlan:
    count, type_, double = asked.count, asked.type, pa.field(asked.name, pa.float64())
    if pa.types.is_int64(type_):
        wide = WideSum(asked.column)
        high, low = wide.names
        return AggregatePlan(
            double, (count, wide), lambda state: output_columns.wide_mean(state[high], state[low], state[count.name])
        )
    total = _total(asked.column, type_)
    if isinstance(total, DecimalSum):
        mean = output_columns.decimal_mean_type(type_)
        return AggregatePlan(
            pa.field(asked.name, mean),
            (count, total),
            lambda state: output_columns.decimal_mean(state[total.name], state[count.name], mean),
        )
    return AggregatePlan(
        double, (count, total), lambda state: output_columns.mean(state[total.name], state[count.name])
    )


def _spread(asked: _Asked) -> AggregatePlan:
    count, moments = asked.count, Moments(asked.column)
    _, m2 = moments.names
    result = output_columns.stddev if asked.aggregation.function is Function.STDDEV else output_columns.variance
    return AggregatePlan(
        pa.field(asked.name, pa.float64()), (count, moments), lambda state: result(state[m2], state[count.name])
    )


_PLANS: Mapping[Function, Callable[[_Asked], AggregatePlan]] = {
    Function.COUNT: _count,
    Function.SUM: _sum,
    Function.MIN: _extreme,
    Function.MAX: _extreme,
    Function.AVG: _average,
    Function.FIRST: _edge,
    Function.LAST: _edge,
    Function.STDDEV: _spread,
    Function.VARIANCE: _spread,
    Function.COUNT_DISTINCT: _distinct,
    Function.COLLECT: _collected,
    Function.APPROX_COUNT_DISTINCT: _about_distinct,
    Function.APPROX_QUANTILE: _quantile,
}
