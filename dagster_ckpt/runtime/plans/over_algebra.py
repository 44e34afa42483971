"""Functions over a partition that are made of plainer ones, of groups and of joins."""

from collections.abc import Callable, Sequence

from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node
from dagster_ckpt.runtime.plans.over_functions import AGGREGATES, BESIDE, PLAIN, arguments_of


def in_plainer_functions(catalyst: Catalyst, node: Node, calls: Sequence[Expression]) -> Node | None:
    """The window, whose functions are `calls`, without those of one such kind; None where all are plain."""
    for is_one, without in _KINDS.items():
        found = [each for each in calls if is_one(catalyst, each.child())]
        if found:
            others = [each for each in calls if each not in found]
            plan, values = without(catalyst, node, others, found)
            named = catalyst.standing_for(values, [each.toAttribute() for each in found])
            kept = [*each_of(node.child().output()), *(each.toAttribute() for each in others)]
            return catalyst.project([*kept, *named], plan)
    return None


def _is_of_groups(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is an aggregate of whole partitions that the engine has over groups alone."""
    function = call.windowFunction()
    if catalyst.kind(function) != "AggregateExpression" or catalyst.kind(function.aggregateFunction()) in AGGREGATES:
        return False
    return _ends(catalyst, call) == ("UnboundedPreceding", "UnboundedFollowing")


def _skips_nulls(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is the first or the last value up to each row that is no null."""
    function = call.windowFunction()
    if catalyst.kind(function) != "AggregateExpression" or not call.windowSpec().orderSpec().size():
        return False
    called = function.aggregateFunction()
    skips = catalyst.kind(called) in ("First", "Last") and bool(called.ignoreNulls())
    return skips and _ends(catalyst, call) == ("UnboundedPreceding", "CurrentRow")


def _ends(catalyst: Catalyst, call: Expression) -> tuple[str, str]:
    """The kinds of the frame's two bounds."""
    frame = call.windowSpec().frameSpecification()
    return catalyst.kind(frame.lower()), catalyst.kind(frame.upper())


def _has_other_default(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is `lag` or `lead` with a default that the engine has not: of the row, or of another type."""
    function = call.windowFunction()
    if catalyst.kind(function) not in BESIDE or function.ignoreNulls():
        return False
    default = function.default()
    if not default.foldable():
        return True
    return default.eval(None) is not None and catalyst.kind(default.dataType()) not in PLAIN


_Made = tuple[Node, list[Expression]]
"""The rows with the other functions, and beside them the values of those that are made."""


def _joined_with_groups(
    catalyst: Catalyst, node: Node, others: Sequence[Expression], of_groups: Sequence[Expression]
) -> _Made:
    """The rows beside the aggregates of their partition; the other functions stay over it."""
    child, keys = node.child(), list(each_of(node.partitionSpec()))
    rows = catalyst.window(others, keys, list(each_of(node.orderSpec())), child) if others else child
    groups = catalyst.groups(keys, [each.child().windowFunction() for each in of_groups], child)
    found = list(each_of(groups.output()))
    beside = catalyst.joined(rows, groups, "Inner", catalyst.same(keys, found[: len(keys)]) if keys else None)
    return beside, found[len(keys) :]


def _by_values_so_far(
    catalyst: Catalyst, node: Node, others: Sequence[Expression], skipping: Sequence[Expression]
) -> _Made:
    """First and last values that are no null, found by how many values there are up to a row.

    The last one is the only one of the rows with the same number; the first one is that of the partition, if there is
    one so far.
    """
    keys, order = list(each_of(node.partitionSpec())), list(each_of(node.orderSpec()))
    values = [arguments_of(catalyst, each.child().windowFunction())[0] for each in skipping]
    over = catalyst.expressions.WindowExpression
    counts = [
        catalyst.alias(over(catalyst.count_of(value), each.child().windowSpec()), "n")
        for value, each in zip(values, skipping, strict=True)
    ]
    plan = catalyst.window([*others, *counts], keys, order, node.child())
    found = []
    for call, value, count in zip(skipping, values, counts, strict=True):
        number = count.toAttribute()
        if catalyst.kind(call.child().windowFunction().aggregateFunction()) == "Last":
            alike = [*keys, number]
            last = catalyst.over_rows(catalyst.greatest_of(value), alike, [], "UnboundedFollowing")
            plan = catalyst.window([last], alike, [], plan)
            found.append(last.toAttribute())
        else:
            known_first = [catalyst.ascending(catalyst.expressions.IsNull(value)), *order]
            first = catalyst.over_rows(catalyst.first_of(value), keys, known_first, "CurrentRow")
            plan = catalyst.window([first], keys, known_first, plan)
            nothing = catalyst.cast(catalyst.constant(0), number.dataType())
            found.append(catalyst.only_if(catalyst.expressions.GreaterThan(number, nothing), first.toAttribute()))
    return plan, found


def _or_default(catalyst: Catalyst, node: Node, others: Sequence[Expression], defaulted: Sequence[Expression]) -> _Made:
    """`lag` and `lead` without a default, and the default where the partition ends before the row that they look at."""
    values = [catalyst.alias(catalyst.beside(each.child()), "value") for each in defaulted]
    # Of a column without nulls it is null where there is no such row.
    there = [catalyst.alias(catalyst.beside(each.child(), catalyst.constant(1)), "there") for each in defaulted]
    keys, order = list(each_of(node.partitionSpec())), list(each_of(node.orderSpec()))
    plan = catalyst.window([*others, *values, *there], keys, order, node.child())
    found = [
        catalyst.expressions.If(
            catalyst.expressions.IsNull(known.toAttribute()),
            call.child().windowFunction().default(),
            value.toAttribute(),
        )
        for call, value, known in zip(defaulted, values, there, strict=True)
    ]
    return plan, found


_Without = Callable[[Catalyst, Node, Sequence[Expression], Sequence[Expression]], _Made]
_KINDS: dict[Callable[[Catalyst, Expression], bool], _Without] = {
    _is_of_groups: _joined_with_groups,
    _skips_nulls: _by_values_so_far,
    _has_other_default: _or_default,
}
