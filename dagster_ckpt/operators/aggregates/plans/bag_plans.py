"""Plans of aggregates that need all values of a group, or all distinct ones."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.aggregates.bags import bag_functions
from dagster_ckpt.operators.aggregates.bags.bags import BagFunction, BagResult, RowBag
from dagster_ckpt.operators.aggregates.bags.distinct import DistinctValues, MarkedValues
from dagster_ckpt.operators.aggregates.bags.distinct_totals import OfNewValues, of_new, totals_of_lists
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns
from dagster_ckpt.operators.aggregates.plans.aggregate_plan import AggregatePlan, Request, Types

OF_BAGS = (
    Function.PERCENTILE,
    Function.MEDIAN,
    Function.PERCENTILE_DISC,
    Function.MODE,
    Function.SKEWNESS,
    Function.KURTOSIS,
    Function.COLLECT_LIST,
    Function.COLLECT_SET,
    Function.USER_DEFINED,
)
"""Functions that need the bag of all values."""
OF_BAGS_WITH_RETRACTION = (*OF_BAGS, Function.BIT_AND, Function.BIT_OR, Function.COLLECT)
"""Those where rows are retracted."""
_OF_VALUES: Mapping[Function, BagFunction] = {
    Function.MODE: bag_functions.mode,
    Function.SKEWNESS: bag_functions.skewness,
    Function.KURTOSIS: bag_functions.kurtosis,
}
_MEDIAN = 0.5


@dataclass(frozen=True)
class _OfBag:
    """What to compute of the bag of some columns."""

    columns: tuple[str, ...]
    field: pa.Field
    function: BagFunction
    options: tuple[object, ...] = ()
    required: int | None = None
    empty: pa.Scalar | None = None
    limit: int | None = None


def request_of(name: str, aggregation: Aggregation, types: Types, event_time: str | None) -> Request | None:
    """The request for an aggregate of any columns; None for a count of rows."""
    column = aggregation.columns[0] if aggregation.columns else aggregation.column
    return None if column is None else Request(name, aggregation, column, types, event_time)


def beside(request: Request) -> AggregatePlan:
    """Of the bag in a table beside the row of the group."""
    of = _of_bag(request)
    name = f"_{request.aggregation.function}({json.dumps([*of.columns, *of.options])})"
    required = len(of.columns) if of.required is None else of.required
    result = BagResult(name, of.columns, of.field.type, of.function, required, of.empty)
    return AggregatePlan(of.field, (result,), lambda state: state[name])


def within(request: Request) -> AggregatePlan:
    """Of the bag in the row of the group."""
    of = _of_bag(request)
    required = len(of.columns) if of.required is None else of.required
    bag = RowBag(of.columns, tuple(request.types[name] for name in of.columns), required, of.limit)
    return AggregatePlan(of.field, (bag,), lambda state: of.function(bag.bags(state)))


def of_marked(request: Request, inner: Callable[[Request], AggregatePlan], marks: MarkedValues) -> AggregatePlan:
    """What `inner` plans, of the values of rows that bring a new one, or take the last one away."""
    planned = inner(_of_new(request))
    accumulators = tuple(OfNewValues(each, marks) for each in planned.accumulators)
    return AggregatePlan(planned.field, (marks, *accumulators), planned.result)


def of_listed(request: Request, inner: Callable[[Request], AggregatePlan]) -> AggregatePlan:
    """What `inner` plans, of the distinct values, which are a list in the row of the group."""
    planned, distinct = inner(_of_new(request)), DistinctValues(request.column, request.type)

    def result(state: Columns) -> pa.Array:
        if len(state[distinct.name]) == 0:
            return pa.nulls(0, planned.field.type)
        return planned.result(totals_of_lists(distinct, planned.accumulators, state))

    return AggregatePlan(planned.field, (distinct,), result)


def _of_new(request: Request) -> Request:
    column = of_new(request.column)
    return replace(request, column=column, types={**request.types, column: request.type})


def _of_bag(request: Request) -> _OfBag:
    one, column, name = request.aggregation, request.column, request.name
    match one.function:
        case Function.BIT_AND | Function.BIT_OR:
            together = np.bitwise_and if one.function is Function.BIT_AND else np.bitwise_or
            return _OfBag((column,), pa.field(name, request.type), bag_functions.bitwise(together))
        case Function.COLLECT:
            assert one.limit is not None, "checks require it"
            field = pa.field(name, pa.list_(request.type), nullable=False)
            first = bag_functions.first_values(one.limit, one.columns)
            required, empty = (None, 1)[one.columns is not None], pa.scalar([], field.type)
            return _OfBag(
                (request.by, *(one.columns or (column,))), field, first, (one.limit,), required, empty, one.limit
            )
        case Function.COLLECT_LIST | Function.COLLECT_SET:
            field = pa.field(name, pa.list_(request.type), nullable=False)
            listed = bag_functions.values(distinct=one.function is Function.COLLECT_SET)
            return _OfBag((column,), field, listed, empty=pa.scalar([], field.type))
        case Function.MODE | Function.SKEWNESS | Function.KURTOSIS:
            type_ = request.type if one.function is Function.MODE else pa.float64()
            return _OfBag((column,), pa.field(name, type_), _OF_VALUES[one.function])
        case Function.USER_DEFINED:
            assert one.columns is not None, "checks require it"
            assert one.returns is not None, "checks require it"
            function = bag_functions.user_defined(name, one.columns, one.returns, one.code)
            # By its name: two functions of the same columns are not one.
            return _OfBag(one.columns, pa.field(name, one.returns), function, (name,), required=0)
        case _:
            q = _MEDIAN if one.q is None else one.q
            is_value = one.function is Function.PERCENTILE_DISC
            make = bag_functions.percentile_disc if is_value else bag_functions.percentile
            return _OfBag((column,), pa.field(name, request.type if is_value else pa.float64()), make(q), (q,))
