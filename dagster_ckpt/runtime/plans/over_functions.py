"""Functions over a partition: Spark's as the engine's."""

from collections.abc import Callable, Mapping, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Frame, Over
from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression

_RANKS: Mapping[str, Callable[[], Over]] = {
    "RowNumber": over.row_number,
    "Rank": over.rank,
    "DenseRank": over.dense_rank,
    "PercentRank": over.percent_rank,
    "CumeDist": over.cume_dist,
}
_AGGREGATES: Mapping[str, Callable[..., Over]] = {
    "Sum": over.sum,
    "Average": over.avg,
    "Min": over.min,
    "Max": over.max,
    "Count": over.count,
    "First": over.first_value,
    "Last": over.last_value,
}
_BESIDE: Mapping[str, Callable[..., Over]] = {"Lag": over.lag, "Lead": over.lead}


def arguments_of(catalyst: Catalyst, function: Expression) -> list[Expression]:
    """The column that the function needs, if any."""
    kind = catalyst.kind(function)
    if kind in _BESIDE or kind == "NthValue":
        return [function.input()]
    if kind != "AggregateExpression":
        return []
    given, where = list(each_of(function.aggregateFunction().children())), catalyst.optional(function.filter())
    if catalyst.kind(function.aggregateFunction()) == "Count" and not given[0].nullable() and where is None:
        return []
    return [given[0] if where is None else catalyst.only_if(where, given[0])]


def function_of(catalyst: Catalyst, call: Expression, columns: Sequence[str]) -> Over:
    """The engine's function for Spark's, over the column that `arguments_of` has."""
    function = call.windowFunction()
    kind = catalyst.kind(function)
    if kind in _RANKS:
        return _RANKS[kind]()
    if kind == "NTile":
        return over.ntile(_number(catalyst, function.buckets(), call))
    if kind in _BESIDE and not function.ignoreNulls():
        default = function.default()
        if catalyst.kind(default) != "Literal" or default.value() is not None:
            raise _refused(call, "a default other than null: write coalesce around it")
        return _BESIDE[kind](columns[0], abs(_number(catalyst, function.inputOffset(), call)))
    frame = _frame(catalyst, call)
    if kind == "NthValue" and not function.ignoreNulls():
        return over.nth_value(columns[0], _number(catalyst, function.offset(), call), **frame)
    if kind == "AggregateExpression" and not function.isDistinct():
        name = catalyst.kind(function.aggregateFunction())
        skips = name in ("First", "Last") and function.aggregateFunction().ignoreNulls()
        if name in _AGGREGATES and not skips:
            return _AGGREGATES[name](*columns, **frame)
    raise _refused(call, "this function")


def _frame(catalyst: Catalyst, call: Expression) -> dict[str, Frame]:
    frame = call.windowSpec().frameSpecification()
    bounds = (_bound(catalyst, frame.lower(), call), _bound(catalyst, frame.upper(), call))
    if catalyst.kind(frame.frameType()) == "RowFrame":
        return {"rows": bounds}
    if any(each not in (None, 0) for each in bounds):
        raise _refused(call, "RANGE with a distance: use ROWS, or a join on the range")
    return {"range": bounds}


def _bound(catalyst: Catalyst, bound: Expression, call: Expression) -> int | None:
    kind = catalyst.kind(bound)
    if kind.startswith("Unbounded"):
        return None
    return 0 if kind == "CurrentRow" else _number(catalyst, bound, call)


def _number(catalyst: Catalyst, expression: Expression, call: Expression) -> int:
    if catalyst.kind(expression) == "UnaryMinus":
        return -_number(catalyst, expression.child(), call)
    if catalyst.kind(expression) != "Literal" or not isinstance(expression.value(), int):
        raise _refused(call, "a bound that is not a whole number")
    return int(expression.value())


def _refused(call: Expression, what: str) -> InvalidPipelineError:
    return InvalidPipelineError(f"over a partition this cannot be kept up to date: {what}. found={call.sql()}")
