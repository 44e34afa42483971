"""Aggregates of text with a collation, made of aggregates of plain text and of Spark's collation keys.

Which of several equal texts an aggregate gives SQL leaves open: one of the group's, the least by its bytes.
"""

from collections.abc import Iterable, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import each_of
from dagster_ckpt.runtime.catalyst.values import Java

_ANY_VALUE = ("AnyValue", "CollectList", "First", "Last", "PivotFirst")
"""They compare no values, if they are not of distinct ones."""
_COUNTS = ("Count", "HyperLogLogPlusPlus")
_BY = {"Max": "MaxBy", "Min": "MinBy"}


def without_collations(catalyst: Catalyst, call: Java) -> Java:
    """The call over values without collations. Its result has none, but is equal to that of the call by its collation.

    Raises `InvalidPipelineError` for a function that is not kept up to date by collations.
    """
    function = call.aggregateFunction()
    children = list(each_of(function.children()))
    if not any(catalyst.is_collated(each.dataType()) for each in children):
        return call
    made = _without(catalyst, call, catalyst.kind(function), function, children)
    _, *filters = each_of(call.children())
    return call.withNewChildren(catalyst.seq([made, *filters]))


def _without(catalyst: Catalyst, call: Java, name: str, function: Java, children: Sequence[Java]) -> Java:
    distinct = bool(call.isDistinct())
    if name in _COUNTS:
        compared = distinct or name != "Count"
        return function if not compared else _with(catalyst, function, map(catalyst.by_collation, children))
    if name in _ANY_VALUE and not distinct:
        return _with(catalyst, function, map(catalyst.without_collation, children))
    if name in _BY and str(children[0].dataType().typeName()) != "struct":
        [value] = children
        return catalyst.row_by(_BY[name], catalyst.without_collation(value), catalyst.by_collation(value))
    if name in _BY.values() and not distinct:
        value, by, *more = children
        return _with(catalyst, function, [catalyst.without_collation(value), catalyst.by_collation(by), *more])
    if name == "ListAgg" and not distinct:
        value, delimiter, *order = children
        plain = [catalyst.without_collation(each) for each in (value, delimiter)]
        return _with(catalyst, function, [*plain, *(catalyst.ordered_by_collation(each) for each in order)])
    what = "DISTINCT " if distinct else ""
    raise InvalidPipelineError(
        "this aggregate cannot be kept up to date by a collation: take the text by its bytes, s COLLATE UTF8_BINARY, "
        f"or lower(s) COLLATE UTF8_BINARY where case does not matter. found={what}{call.sql()}"
    )


def _with(catalyst: Catalyst, function: Java, children: Iterable[Java]) -> Java:
    return function.withNewChildren(catalyst.seq(children))
