"""Aggregates of text with a collation, made of aggregates of plain text and of Spark's collation keys.

Which of several equal texts an aggregate gives SQL leaves open: one of the group's, the least by its bytes.
"""

from collections.abc import Iterable, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import AggregateCall, Expression, Java

_ANY_VALUE = ("AnyValue", "CollectList", "First", "Last", "PivotFirst")
"""They compare no values, if they are not of distinct ones."""
_COUNTS = ("Count", "HyperLogLogPlusPlus")
_BY = {"Max": "MaxBy", "Min": "MinBy"}


def without_collations(catalyst: Catalyst, call: AggregateCall) -> AggregateCall:
    """The call over values without collations. Its result has none, but is equal to that of the call by its collation.

    Raises `InvalidPipelineError` for a function that is not kept up to date by collations.
    """
    function = call.function
    if not any(each.type.collated for each in function.children):
        return call
    plain = _without(catalyst, call, function.kind, function.children)
    filters = [] if call.where is None else [call.where.java]
    [made] = catalyst.read_expressions(catalyst.make.with_children(call.java, [plain, *filters]))
    assert isinstance(made, AggregateCall), "it was one"
    return made


def _without(catalyst: Catalyst, call: AggregateCall, name: str, children: Sequence[Expression]) -> Java:
    values = [each.java for each in children]
    if name in _COUNTS:
        compared = call.distinct or name != "Count"
        return _with(catalyst, call, map(catalyst.convert.by_collation, values)) if compared else call.function.java
    if name in _ANY_VALUE and not call.distinct:
        return _with(catalyst, call, map(catalyst.convert.without_collation, values))
    if name in _BY and children[0].type.name != "struct":
        [value] = values
        return catalyst.calls.row_by(
            _BY[name], catalyst.convert.without_collation(value), catalyst.convert.by_collation(value)
        )
    if name in _BY.values() and not call.distinct:
        value, by, *more = values
        return _with(
            catalyst, call, [catalyst.convert.without_collation(value), catalyst.convert.by_collation(by), *more]
        )
    if name == "ListAgg" and not call.distinct:
        plain = map(catalyst.convert.without_collation, values[:2])
        return _with(catalyst, call, [*plain, *(_by_collation(catalyst, each) for each in children[2:])])
    what = "DISTINCT " if call.distinct else ""
    raise InvalidPipelineError(
        "this aggregate cannot be kept up to date by a collation: take the text by its bytes, s COLLATE UTF8_BINARY, "
        f"or lower(s) COLLATE UTF8_BINARY where case does not matter. found={what}{catalyst.sql_of(call.java)}"
    )


def _by_collation(catalyst: Catalyst, term: Expression) -> Java:
    """A term of ORDER BY over the keys of its texts."""
    return catalyst.make.with_children(term.java, [catalyst.convert.by_collation(each.java) for each in term.children])


def _with(catalyst: Catalyst, call: AggregateCall, children: Iterable[Java]) -> Java:
    return catalyst.make.with_children(call.function.java, children)
