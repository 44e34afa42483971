"""Functions over a partition that are made of plainer ones, of groups and of joins."""

from collections.abc import Callable, Sequence

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import AggregateCall, Expression, Java, Window, WindowCall
from dagster_ckpt.runtime.plans.functions.over_functions import AGGREGATES, BESIDE, PLAIN, call_in, ignores_nulls
from dagster_ckpt.runtime.plans.functions.skipped_nulls import Made, by_values_so_far, ends_of, skips_nulls


def in_plainer_functions(catalyst: Catalyst, node: Window, calls: Sequence[Expression]) -> Java | None:
    """The window with the functions of one kind among `calls` made of plainer ones; None where all are plain."""
    for is_one, without in _KINDS.items():
        found = [each for each in calls if is_one(catalyst, call_in(each))]
        if found:
            others = [each for each in calls if each not in found]
            plan, values = without(catalyst, node, others, found)
            own = [catalyst.make.column_of(each.java) for each in found]
            named = dict(zip((each.number for each in found), catalyst.make.standing_for(values, own), strict=True))
            below = catalyst.output_of(node.child)
            kept = dict(zip(below.numbers, below, strict=True))
            columns = kept | {each.number: catalyst.make.column_of(each.java) for each in others} | named
            # In the order of the query: a table or a union reads them by their places.
            return catalyst.build.project([columns[number] for _, number in node.output if number in columns], plan)
    return None


def _is_of_groups(_: Catalyst, call: WindowCall) -> bool:
    """Whether it is an aggregate of whole partitions that the engine has over groups alone."""
    if not isinstance(call.function, AggregateCall) or call.function.function.kind in AGGREGATES:
        return False
    return ends_of(call) == ("UnboundedPreceding", "UnboundedFollowing")


def _has_other_default(catalyst: Catalyst, call: WindowCall) -> bool:
    """Whether it is `lag` or `lead` with a default that the engine has not: of the row, or of another type."""
    if call.function.kind not in BESIDE or ignores_nulls(call.function):
        return False
    default = call.function.children[2]
    if not default.foldable:
        return True
    return default.type.name not in PLAIN and catalyst.constant_of(default) is not None


def _join_groups(
    catalyst: Catalyst, node: Window, others: Sequence[Expression], of_groups: Sequence[Expression]
) -> Made:
    """The rows joined with the aggregates of their partition; the other functions stay window functions."""
    child, keys = node.child.java, [each.java for each in node.keys]
    order = [each.java for each in node.order]
    rows = catalyst.build.window([each.java for each in others], keys, order, child) if others else child
    groups = catalyst.build.groups(keys, [call_in(each).function.java for each in of_groups], child)
    found = catalyst.columns(groups)
    beside = catalyst.build.join(rows, groups, "Inner", catalyst.make.same(keys, found[: len(keys)]) if keys else None)
    return beside, found[len(keys) :]


def _or_default(
    catalyst: Catalyst, node: Window, others: Sequence[Expression], defaulted: Sequence[Expression]
) -> Made:
    """`lag` and `lead` without a default, and the default where the partition ends before the row that they look at."""
    calls = list(map(call_in, defaulted))
    values = [catalyst.make.alias(catalyst.calls.without_default(each), "value") for each in calls]
    # Of a column without nulls it is null where there is no such row.
    there = [
        catalyst.make.alias(catalyst.calls.without_default(each, catalyst.make.constant(1)), "there") for each in calls
    ]
    keys, order = [each.java for each in node.keys], [each.java for each in node.order]
    plan = catalyst.build.window([*(each.java for each in others), *values, *there], keys, order, node.child.java)
    found = [
        catalyst.make.if_else(
            catalyst.make.is_null(catalyst.make.column_of(known)),
            call.function.children[2].java,
            catalyst.make.column_of(value),
        )
        for call, value, known in zip(calls, values, there, strict=True)
    ]
    return plan, found


_Without = Callable[[Catalyst, Window, Sequence[Expression], Sequence[Expression]], Made]
_KINDS: dict[Callable[[Catalyst, WindowCall], bool], _Without] = {
    _is_of_groups: _join_groups,
    skips_nulls: by_values_so_far,
    _has_other_default: _or_default,
}
