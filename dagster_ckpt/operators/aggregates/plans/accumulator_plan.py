"""From a named aggregate and its column's type to its state for each key and its output."""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.aggregates.bags.distinct import DistinctValues, NewValues
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns
from dagster_ckpt.operators.aggregates.kinds.bits import Bits
from dagster_ckpt.operators.aggregates.kinds.collected import FirstValues
from dagster_ckpt.operators.aggregates.kinds.counts import TrueCount
from dagster_ckpt.operators.aggregates.kinds.edge_rows import EdgeRow
from dagster_ckpt.operators.aggregates.kinds.edges import Edge
from dagster_ckpt.operators.aggregates.kinds.exact_sums import Pairs
from dagster_ckpt.operators.aggregates.kinds.extremes import Extreme
from dagster_ckpt.operators.aggregates.kinds.moments import Moments
from dagster_ckpt.operators.aggregates.kinds.sketches import DistinctSketch, QuantileSketch
from dagster_ckpt.operators.aggregates.kinds.sums import DecimalSum, FloatSum, IntegerSum, WideSum
from dagster_ckpt.operators.aggregates.plans import bag_plans, output_columns
from dagster_ckpt.operators.aggregates.plans.aggregate_plan import AggregatePlan, Request, Types
from dagster_ckpt.operators.shared.arrays.value_order import End, is_orderable
from dagster_ckpt.operators.shared.state_columns import ROWS


def plan(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` that keeps all state in the row of the group."""
    if aggregation.function is Function.USER_DEFINED:
        raise InvalidPipelineError(
            "a user-defined aggregate keeps all rows of a key in a table beside, which neither a window nor a key that "
            "expires has: leave expire_after out; for windows make their start a column, and a key. "
            f"aggregate={name}"
        )
    request = bag_plans.request_of(name, aggregation, types, event_time)
    if request is None:  # a count of rows, which every aggregate keeps
        return AggregatePlan(pa.field(name, pa.int64(), nullable=False), (), lambda state: state[ROWS])
    return _PLANS[aggregation.function](request)


def plan_with_tables(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> AggregatePlan:
    """A `Planner` that may use a separate state table: see `distinct_table` and `bag_table`."""
    request = bag_plans.request_of(name, aggregation, types, event_time)
    if request is None:
        return plan(name, aggregation, types, event_time)
    if aggregation.function is Function.COUNT_DISTINCT:
        new = NewValues(request.column)
        return _counted(name, new, lambda state: state[new.name])
    if aggregation.function in bag_plans.OF_BAGS:
        return bag_plans.beside(request)
    if aggregation.function in _OF_DISTINCT:
        return bag_plans.of_marked(request, _OF_DISTINCT[aggregation.function], NewValues(request.column))
    return plan(name, aggregation, types, event_time)


def _counted(name: str, accumulator: Accumulator, result: Callable[[Columns], pa.Array]) -> AggregatePlan:
    return AggregatePlan(pa.field(name, pa.int64(), nullable=False), (accumulator,), result)


def _count(request: Request) -> AggregatePlan:
    return _counted(request.name, request.count, lambda state: state[request.count.name])


def _extreme(request: Request) -> AggregatePlan:
    end = End.LEAST if request.aggregation.function is Function.MIN else End.GREATEST
    extreme = Extreme(request.column, request.type, end)
    return AggregatePlan(pa.field(request.name, request.type), (extreme,), lambda state: state[extreme.name])


def _edge(request: Request) -> AggregatePlan:
    end = End.LEAST if request.aggregation.function is Function.FIRST else End.GREATEST
    if request.aggregation.columns is not None:
        columns = request.aggregation.columns
        types = tuple(request.types[name] for name in columns)
        row = EdgeRow(columns, types, request.by, request.types[request.by], end)
        return AggregatePlan(pa.field(request.name, row.type), (row,), row.result)
    edge = Edge(request.column, request.type, request.by, request.types[request.by], end)
    value, _ = edge.names
    return AggregatePlan(pa.field(request.name, edge.type), (edge,), lambda state: state[value])


def _collected(request: Request) -> AggregatePlan:
    if request.aggregation.columns is not None:
        return bag_plans.within(request)
    limit = request.aggregation.limit
    assert limit is not None, "checks require it"
    first = FirstValues(request.column, request.type, request.by, request.types[request.by], limit)
    values, _ = first.names
    return AggregatePlan(first.fields[0].with_name(request.name), (first,), lambda state: state[values])


def _distinct(request: Request) -> AggregatePlan:
    if not is_orderable(request.type):
        raise InvalidPipelineError(
            "distinct structs are kept in a table beside, which neither a window nor a key that expires has: leave "
            f"expire_after out; for windows make their start a column, and a key. aggregate={request.name}, "
            f"column={request.column}, type={request.type}"
        )
    distinct = DistinctValues(request.column, request.type)
    return _counted(request.name, distinct, lambda state: output_columns.sizes(state[distinct.name]))


def _of_listed(request: Request) -> AggregatePlan:
    return bag_plans.of_listed(request, _OF_DISTINCT[request.aggregation.function])


def _bits(request: Request) -> AggregatePlan:
    bits, count = Bits(request.aggregation.function, request.column, request.type), request.count
    return AggregatePlan(
        pa.field(request.name, request.type),
        (count, bits),
        lambda state: output_columns.null_if_none(state[bits.name], state[count.name]),
    )


def _about_distinct(request: Request) -> AggregatePlan:
    error = request.aggregation.error
    assert error is not None, "checks require it"
    sketch = DistinctSketch.within(request.column, error)
    return _counted(request.name, sketch, sketch.result)


def _quantile(request: Request) -> AggregatePlan:
    q, accuracy = request.aggregation.q, request.aggregation.accuracy
    assert q is not None, "checks require it"
    assert accuracy is not None, "checks require it"
    sketch = QuantileSketch(request.column, accuracy)
    return AggregatePlan(pa.field(request.name, pa.float64()), (sketch,), lambda state: sketch.result(state, q))


def _total(column: str, type_: pa.DataType) -> IntegerSum | FloatSum | DecimalSum:
    if pa.types.is_decimal(type_):
        return DecimalSum(column, type_)
    return FloatSum(column) if pa.types.is_floating(type_) else IntegerSum(column)


def _sum(request: Request) -> AggregatePlan:
    count, total = request.count, _total(request.column, request.type)
    return AggregatePlan(
        pa.field(request.name, total.fields[0].type),
        (count, total),
        lambda state: output_columns.null_if_none(state[total.name], state[count.name]),
    )


def _average(request: Request) -> AggregatePlan:
    count, type_, double = request.count, request.type, pa.field(request.name, pa.float64())
    if pa.types.is_int64(type_):
        wide = WideSum(request.column)
        high, low = wide.names
        return AggregatePlan(
            double, (count, wide), lambda state: output_columns.wide_mean(state[high], state[low], state[count.name])
        )
    total = _total(request.column, type_)
    if isinstance(total, DecimalSum):
        mean = output_columns.decimal_mean_type(type_)
        return AggregatePlan(
            pa.field(request.name, mean),
            (count, total),
            lambda state: output_columns.decimal_mean(state[total.name], state[count.name], mean),
        )
    return AggregatePlan(
        double, (count, total), lambda state: output_columns.mean(state[total.name], state[count.name])
    )


def _spread(request: Request) -> AggregatePlan:
    count, moments, ddof = request.count, Moments(request.column), ddof_of(request)
    _, m2 = moments.names
    result = output_columns.stddev if is_stddev(request) else output_columns.variance
    return AggregatePlan(
        pa.field(request.name, pa.float64()), (count, moments), lambda state: result(state[m2], state[count.name], ddof)
    )


def is_stddev(request: Request) -> bool:
    """Whether a spread is a standard deviation, not a variance."""
    return request.aggregation.function in (Function.STDDEV, Function.STDDEV_POP)


def ddof_of(request: Request) -> int:
    """0 for the spread of a population, 1 for that of a sample."""
    return 0 if request.aggregation.function in (Function.STDDEV_POP, Function.VAR_POP) else 1


def _count_if(request: Request) -> AggregatePlan:
    true = TrueCount(request.column)
    return _counted(request.name, true, lambda state: state[true.name])


def _bool(request: Request) -> AggregatePlan:
    count, true = request.count, TrueCount(request.column)
    is_and = request.aggregation.function is Function.BOOL_AND

    def result(state: Columns) -> pa.Array:
        n = state[count.name]
        return output_columns.null_if_none(pc.greater_equal(state[true.name], n if is_and else pa.scalar(1)), n)

    return AggregatePlan(pa.field(request.name, pa.bool_()), (count, true), result)


def _pairs(request: Request) -> AggregatePlan:
    assert request.aggregation.other is not None, "checks require it"
    pairs = Pairs(request.column, request.aggregation.other)
    _, x2 = pairs.squares()
    both = (pairs.count, *pairs.totals(), pairs.products())
    results: Mapping[Function, tuple[tuple[Accumulator, ...], Callable[[Columns], pa.Array]]] = {
        Function.COVAR_POP: (both, lambda state: pairs.covariance(state, 0)),
        Function.COVAR_SAMP: (both, lambda state: pairs.covariance(state, 1)),
        Function.CORR: ((*both, *pairs.squares()), pairs.correlation),
        Function.REGR_SLOPE: ((*both, x2), pairs.slope),
        Function.REGR_INTERCEPT: ((*both, x2), pairs.intercept),
        Function.REGR_R2: ((*both, *pairs.squares()), pairs.r2),
    }
    return AggregatePlan(pa.field(request.name, pa.float64()), *results[request.aggregation.function])


_OF_DISTINCT: Mapping[Function, Callable[[Request], AggregatePlan]] = {
    Function.SUM_DISTINCT: _sum,
    Function.AVG_DISTINCT: _average,
}
"""The function of the distinct values."""
_PLANS: Mapping[Function, Callable[[Request], AggregatePlan]] = {
    Function.COUNT: _count,
    Function.SUM: _sum,
    Function.MIN: _extreme,
    Function.MAX: _extreme,
    Function.AVG: _average,
    Function.FIRST: _edge,
    Function.LAST: _edge,
    Function.STDDEV: _spread,
    Function.VARIANCE: _spread,
    Function.STDDEV_POP: _spread,
    Function.VAR_POP: _spread,
    Function.COUNT_IF: _count_if,
    Function.BOOL_AND: _bool,
    Function.BOOL_OR: _bool,
    Function.CORR: _pairs,
    Function.COVAR_POP: _pairs,
    Function.COVAR_SAMP: _pairs,
    Function.REGR_SLOPE: _pairs,
    Function.REGR_INTERCEPT: _pairs,
    Function.REGR_R2: _pairs,
    Function.COUNT_DISTINCT: _distinct,
    Function.COLLECT: _collected,
    Function.BIT_AND: _bits,
    Function.BIT_OR: _bits,
    Function.BIT_XOR: _bits,
    Function.SUM_DISTINCT: _of_listed,
    Function.AVG_DISTINCT: _of_listed,
    Function.PERCENTILE: bag_plans.within,
    Function.MEDIAN: bag_plans.within,
    Function.PERCENTILE_DISC: bag_plans.within,
    Function.MODE: bag_plans.within,
    Function.SKEWNESS: bag_plans.within,
    Function.KURTOSIS: bag_plans.within,
    Function.COLLECT_LIST: bag_plans.within,
    Function.COLLECT_SET: bag_plans.within,
    Function.APPROX_COUNT_DISTINCT: _about_distinct,
    Function.APPROX_QUANTILE: _quantile,
}
