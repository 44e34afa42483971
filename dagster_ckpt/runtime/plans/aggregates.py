"""Aggregates of a query: Spark's functions as the engine's."""

from collections.abc import Callable, Mapping, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node

_OF_ONE: Mapping[str, Callable[[str], Aggregation]] = {
    "Sum": agg.sum,
    "Average": agg.avg,
    "Min": agg.min,
    "Max": agg.max,
    "First": agg.min,
    "Last": agg.max,
    "AnyValue": agg.min,
    "StddevSamp": agg.stddev,
    "StddevPop": agg.stddev_pop,
    "VarianceSamp": agg.variance,
    "VariancePop": agg.var_pop,
    "BitAndAgg": agg.bit_and,
    "BitOrAgg": agg.bit_or,
    "BitXorAgg": agg.bit_xor,
}
"""By the name of Spark's class. Which row is the first or the last of a group SQL leaves open: any value will do."""
_OF_DISTINCT: Mapping[str, Callable[[str], Aggregation]] = {"Sum": agg.sum_distinct, "Average": agg.avg_distinct}
_OF_TWO: Mapping[str, Callable[[str, str], Aggregation]] = {
    "Corr": agg.corr,
    "CovPopulation": agg.covar_pop,
    "CovSample": agg.covar_samp,
    "RegrSlope": agg.regr_slope,
    "RegrIntercept": agg.regr_intercept,
    "RegrR2": agg.regr_r2,
}
_PERCENTILE = "Percentile"
_PIVOT = "PivotFirst"
_IDEMPOTENT = ("Min", "Max", "First", "Last", "AnyValue", "BitAndAgg", "BitOrAgg")
"""Functions to which it makes no difference how often a value is there."""


def arguments_of(catalyst: Catalyst, call: Expression) -> list[Expression]:
    """The columns that a call needs, null where it is to skip the row."""
    function = call.aggregateFunction()
    given, where = list(each_of(function.children())), catalyst.optional(call.filter())
    name = catalyst.kind(function)
    if name == "Count":
        open_ = [each for each in given if each.nullable()]
        if call.isDistinct():
            if len(given) > 1:
                raise InvalidPipelineError(
                    "count(DISTINCT a, b) counts combinations of columns: count the rows of a SELECT DISTINCT. "
                    f"found={call.sql()}"
                )
            open_ = given
        elif not open_:
            return [] if where is None else [where]
        elif len(open_) > 1:
            known = catalyst.all_of([catalyst.expressions.IsNotNull(each) for each in open_])
            return [known if where is None else catalyst.all_of([where, known])]
        given = open_
    if name == _PERCENTILE:
        given = given[:1]
    return given if where is None else [catalyst.only_if(where, each) for each in given]


def without_pivots(catalyst: Catalyst, node: Node) -> Node:
    """The aggregate without Spark's function for PIVOT, which picks from the rows of a group the one of each name."""

    def picked(expression: Expression) -> Expression | None:
        if catalyst.kind(expression) != "AggregateExpression":
            return None
        function = expression.aggregateFunction()
        return catalyst.pivoted(function) if catalyst.kind(function) == _PIVOT else None

    columns = [catalyst.replaced(each, picked) for each in each_of(node.aggregateExpressions())]
    return catalyst.aggregate(list(each_of(node.groupingExpressions())), columns, node.child())


def is_pivot(catalyst: Catalyst, call: Expression) -> bool:
    return catalyst.kind(call.aggregateFunction()) == _PIVOT


def aggregation_of(catalyst: Catalyst, call: Expression, columns: Sequence[str]) -> Aggregation:
    """The engine's function for a call over these columns, those of `arguments_of`."""
    function = call.aggregateFunction()
    name = catalyst.kind(function)
    found = _count(function, call, columns) if name == "Count" else _other(name, function, call, columns)
    if found is not None:
        return found
    distinct = "DISTINCT " if call.isDistinct() else ""
    raise InvalidPipelineError(
        "this aggregate cannot be kept up to date: use count, sum, avg, min, max, DISTINCT, stddev, variance, corr, "
        f"covar, regr or bit functions, percentile, or a process function. found={distinct}{call.sql()}"
    )


def _count(function: Expression, call: Expression, columns: Sequence[str]) -> Aggregation:
    if call.isDistinct():
        return agg.count_distinct(*columns)
    if not columns:
        return agg.count()
    open_ = [each for each in each_of(function.children()) if each.nullable()]
    return agg.count(*columns) if len(open_) == 1 else agg.count_if(*columns)


def _other(name: str, function: Expression, call: Expression, columns: Sequence[str]) -> Aggregation | None:
    """None: there is no such function."""
    if name in _OF_ONE and (not call.isDistinct() or name in _IDEMPOTENT):
        return _OF_ONE[name](columns[0])
    if name in _OF_DISTINCT:
        return _OF_DISTINCT[name](columns[0])
    if name == _PERCENTILE and not call.isDistinct():
        q, often = (each.eval(None) for each in (function.percentageExpression(), function.frequencyExpression()))
        if isinstance(q, float) and often == 1:
            return agg.percentile(columns[0], 1 - q if function.reverse() else q)
    return _OF_TWO[name](columns[0], columns[1]) if name in _OF_TWO else None
