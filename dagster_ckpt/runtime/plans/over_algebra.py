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
            return without(catalyst, node, calls, found)
    return None


def _is_of_groups(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is an aggregate of whole partitions that the engine has over groups alone."""
    function, frame = call.windowFunction(), call.windowSpec().frameSpecification()
    if catalyst.kind(function) != "AggregateExpression" or catalyst.kind(function.aggregateFunction()) in AGGREGATES:
        return False
    ends = (catalyst.kind(frame.lower()), catalyst.kind(frame.upper()))
    return ends == ("UnboundedPreceding", "UnboundedFollowing")


def _skips_nulls(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is the first or the last value up to each row that is no null."""
    function, frame = call.windowFunction(), call.windowSpec().frameSpecification()
    if catalyst.kind(function) != "AggregateExpression" or not call.windowSpec().orderSpec().size():
        return False
    called = function.aggregateFunction()
    ends = (catalyst.kind(frame.lower()), catalyst.kind(frame.upper()))
    skips = catalyst.kind(called) in ("First", "Last") and bool(called.ignoreNulls())
    return skips and ends == ("UnboundedPreceding", "CurrentRow")


def _has_other_default(catalyst: Catalyst, call: Expression) -> bool:
    """Whether it is `lag` or `lead` with a default that the engine has not: of the row, or of another type."""
    function = call.windowFunction()
    if catalyst.kind(function) not in BESIDE or function.ignoreNulls():
        return False
    default = function.default()
    if not default.foldable():
        return True
    return default.eval(None) is not None and catalyst.kind(default.dataType()) not in PLAIN


def _joined_with_groups(
    catalyst: Catalyst, node: Node, calls: Sequence[Expression], of_groups: Sequence[Expression]
) -> Node:
    """The rows beside the aggregates of their partition; the other functions stay over it."""
    [child] = each_of(node.children())
    keys = list(each_of(node.partitionSpec()))
    others = [each for each in calls if each not in of_groups]
    rows = catalyst.window(others, keys, list(each_of(node.orderSpec())), child) if others else child
    groups = catalyst.groups(keys, [each.child().windowFunction() for each in of_groups], child)
    found = list(each_of(groups.output()))
    beside = catalyst.joined(rows, groups, "Inner", catalyst.same(keys, found[: len(keys)]) if keys else None)
    values = catalyst.standing_for(found[len(keys) :], [each.toAttribute() for each in of_groups])
    return catalyst.project([*each_of(rows.output()), *values], beside)


def _by_values_so_far(
    catalyst: Catalyst, node: Node, calls: Sequence[Expression], skipping: Sequence[Expression]
) -> Node:
    """First and last values that are no null, found by how many values there are up to a row.

    The last one is the only one of the rows with the same number; the first one is that of the partition, if there is
    one so far.
    """
    [child] = each_of(node.children())
    keys, order = list(each_of(node.partitionSpec())), list(each_of(node.orderSpec()))
    values = [arguments_of(catalyst, each.child().windowFunction())[0] for each in skipping]
    over = catalyst.expressions.WindowExpression
    counts = [
        catalyst.alias(over(catalyst.count_of(value), each.child().windowSpec()), "n")
        for value, each in zip(values, skipping, strict=True)
    ]
    others = [each for each in calls if each not in skipping]
    plan = catalyst.window([*others, *counts], keys, order, child)
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
    named = catalyst.standing_for(found, [each.toAttribute() for each in skipping])
    kept = [*each_of(child.output()), *(each.toAttribute() for each in others)]
    return catalyst.project([*kept, *named], plan)


def _or_default(catalyst: Catalyst, node: Node, calls: Sequence[Expression], defaulted: Sequence[Expression]) -> Node:
    """`lag` and `lead` without a default, and the default where the partition ends before the row that they look at."""
    [child] = each_of(node.children())
    others = [each for each in calls if each not in defaulted]
    values = [catalyst.alias(catalyst.beside(each.child()), "value") for each in defaulted]
    # Of a column without nulls it is null where there is no such row.
    there = [catalyst.alias(catalyst.beside(each.child(), catalyst.constant(1)), "there") for each in defaulted]
    windows = [*others, *values, *there]
    plan = catalyst.window(windows, list(each_of(node.partitionSpec())), list(each_of(node.orderSpec())), child)
    found = [
        catalyst.expressions.If(
            catalyst.expressions.IsNull(known.toAttribute()),
            call.child().windowFunction().default(),
            value.toAttribute(),
        )
        for call, value, known in zip(defaulted, values, there, strict=True)
    ]
    named = catalyst.standing_for(found, [each.toAttribute() for each in defaulted])
    kept = [*each_of(child.output()), *(each.toAttribute() for each in others)]
    return catalyst.project([*kept, *named], plan)


_Without = Callable[[Catalyst, Node, Sequence[Expression], Sequence[Expression]], Node]
_KINDS: dict[Callable[[Catalyst, Expression], bool], _Without] = {
    _is_of_groups: _joined_with_groups,
    _skips_nulls: _by_values_so_far,
    _has_other_default: _or_default,
}
