"""Functions over a partition that are made of plainer ones, of groups and of joins."""

from collections.abc import Callable, Sequence

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import column_number, columns_of, each_of
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.plans.functions.over_functions import AGGREGATES, BESIDE, PLAIN
from dagster_ckpt.runtime.plans.functions.skipped_nulls import Made, by_values_so_far, ends_of, skips_nulls


def in_plainer_functions(catalyst: Catalyst, node: Java, calls: Sequence[Java]) -> Java | None:
    """The window, whose functions are `calls`, without those of one such kind; None where all are plain."""
    for is_one, without in _KINDS.items():
        found = [each for each in calls if is_one(catalyst, each.child())]
        if found:
            others = [each for each in calls if each not in found]
            plan, values = without(catalyst, node, others, found)
            named = catalyst.standing_for(values, [each.toAttribute() for each in found])
            kept = [*each_of(node.child().output()), *(each.toAttribute() for each in others)]
            # In the order of the query: a table or a union reads them by their places.
            columns = {column_number(each): each for each in (*kept, *named)}
            wanted = columns_of(node.output())
            return catalyst.project([columns[number] for _, number in wanted if number in columns], plan)
    return None


def _is_of_groups(catalyst: Catalyst, call: Java) -> bool:
    """Whether it is an aggregate of whole partitions that the engine has over groups alone."""
    function = call.windowFunction()
    if catalyst.kind(function) != "AggregateExpression" or catalyst.kind(function.aggregateFunction()) in AGGREGATES:
        return False
    return ends_of(catalyst, call) == ("UnboundedPreceding", "UnboundedFollowing")


def _has_other_default(catalyst: Catalyst, call: Java) -> bool:
    """Whether it is `lag` or `lead` with a default that the engine has not: of the row, or of another type."""
    function = call.windowFunction()
    if catalyst.kind(function) not in BESIDE or function.ignoreNulls():
        return False
    default = function.default()
    if not default.foldable():
        return True
    return default.eval(None) is not None and catalyst.kind(default.dataType()) not in PLAIN


def _joined_with_groups(catalyst: Catalyst, node: Java, others: Sequence[Java], of_groups: Sequence[Java]) -> Made:
    """The rows beside the aggregates of their partition; the other functions stay over it."""
    child, keys = node.child(), list(each_of(node.partitionSpec()))
    rows = catalyst.window(others, keys, list(each_of(node.orderSpec())), child) if others else child
    groups = catalyst.groups(keys, [each.child().windowFunction() for each in of_groups], child)
    found = list(each_of(groups.output()))
    beside = catalyst.joined(rows, groups, "Inner", catalyst.same(keys, found[: len(keys)]) if keys else None)
    return beside, found[len(keys) :]


def _or_default(catalyst: Catalyst, node: Java, others: Sequence[Java], defaulted: Sequence[Java]) -> Made:
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


_Without = Callable[[Catalyst, Java, Sequence[Java], Sequence[Java]], Made]
_KINDS: dict[Callable[[Catalyst, Java], bool], _Without] = {
    _is_of_groups: _joined_with_groups,
    skips_nulls: by_values_so_far,
    _has_other_default: _or_default,
}
