"""Subqueries of one value, wherever a query has them, as joins with their one row."""

from collections.abc import Sequence

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.refusals import naming_line, refusal
from dagster_ckpt.runtime.catalyst.values import (
    Aggregate,
    Expression,
    Filter,
    Generate,
    Java,
    Join,
    Node,
    Projection,
    Sort,
    Window,
)

_SEVERAL = "a subquery that stands for one value gave several rows"


def without_scalar_subqueries(catalyst: Catalyst, plan: Java) -> Java:
    """The plan with a join below each node that has such a subquery, if the subquery streams.

    Raises `InvalidPipelineError` for a node that cannot have one.
    """
    if not catalyst.has_any(plan, "PLAN_EXPRESSION"):
        return plan
    new = _rewritten(catalyst, catalyst.read(plan))
    return plan if new is None else new


def _rewritten(catalyst: Catalyst, node: Node) -> Java | None:
    """What a node becomes; None: it stays, with all that is below it."""
    new = [_rewritten(catalyst, child) for child in node.children]
    below = [child.java if one is None else one for one, child in zip(new, node.children, strict=True)]
    if not any(part.plan is not None and part.plan.streams for part in node.parts()):
        return catalyst.build.on(node.java, *below) if any(one is not None for one in new) else None
    with naming_line(catalyst, node):
        if isinstance(node, Aggregate) and (split := _split_groups(catalyst, node, *below)) is not None:
            return without_scalar_subqueries(catalyst, split)
        return _Hoisted(catalyst, node, below).plan()


def _split_groups(catalyst: Catalyst, node: Aggregate, below: Java) -> Java | None:
    """Groups, and above them what is computed of each, where that has a subquery; else None.

    Its value is one for all groups, and no key of theirs: it is joined with the groups, not with the rows.
    """
    grouping, calls, results = catalyst.aggregate_of(catalyst.build.on(node.java, below))
    if not any(_streams(part) for each in results for part in each.parts()):
        return None
    keys = [each.value.java for each in grouping]
    groups = catalyst.build.groups(keys, [each.java for each in calls], below)
    wanted = [*(each.java for each in grouping), *map(catalyst.make.result_of, calls)]
    named = catalyst.build.project(catalyst.make.standing_for(catalyst.columns(groups), wanted), groups)
    return catalyst.build.project([each.java for each in results], named)


def _streams(expression: Expression) -> bool:
    """Whether it is a subquery of one value, which streams."""
    return expression.kind == "ScalarSubquery" and expression.plan is not None and expression.plan.streams


class _Hoisted:
    """A node whose subqueries become columns of the rows below, which are `below`, and of a join its left side."""

    def __init__(self, catalyst: Catalyst, node: Node, below: Sequence[Java]) -> None:
        self._catalyst, self._node = catalyst, node
        self._own = catalyst.build.on(node.java, *below)
        self._below, *self._others = below
        self._values: list[tuple[Expression, Java]] = []

    def plan(self) -> Java:
        """The node over the values; its output is what it was."""
        new = self._over_values()
        if len(self._catalyst.column_names(new)) == len(self._node.output):
            return new
        return self._catalyst.build.project(self._catalyst.columns(self._own), new)

    def _over_values(self) -> Java:  # noqa: PLR0911  (a case for each kind of node)
        # Values first: each is joined with the rows below when it is found.
        catalyst, node = self._catalyst, self._node
        match node:
            case Filter():
                condition = self._of(node.condition)
                return catalyst.build.filter(condition, self._below)
            case Projection():
                columns = self._each(node.columns)
                return catalyst.build.project(columns, self._below)
            case Aggregate():
                keys, columns = self._each(node.keys), self._each(node.columns)
                return catalyst.build.aggregate(keys, columns, self._below)
            case Window():
                calls, keys, order = self._each(node.calls), self._each(node.keys), self._each(node.order)
                return catalyst.build.window(calls, keys, order, self._below)
            case Sort():
                order = self._each(node.order)
                return catalyst.build.sort(order, self._below)
            case Generate():
                generator = self._of(node.generator)
                return catalyst.build.generate_like(node.java, generator, self._below)
            case Join(condition=Expression() as asked):
                condition = self._of(asked)
                return catalyst.build.join_like(node.java, self._below, self._others[0], condition)
        raise refusal("ScalarSubquery", f"a subquery in {catalyst.name_of(node)}")

    def _each(self, expressions: Sequence[Expression]) -> list[Java]:
        return list(map(self._of, expressions))

    def _of(self, expression: Expression) -> Java:
        return self._catalyst.make.replace_parts(expression, self._value)

    def _value(self, expression: Expression) -> Java | None:
        """The column that stands for a subquery; one that occurs twice, as a key and a column, has one."""
        if not _streams(expression) or expression.plan is None:
            return None
        for other, value in self._values:
            if self._catalyst.are_equal(other.java, expression.java):
                return value
        value = self._join(expression.plan)
        self._values.append((expression, value))
        return value

    def _join(self, node: Node) -> Java:
        catalyst = self._catalyst
        new = _rewritten(catalyst, node)
        plan = node.java if new is None else new
        [first, *_] = catalyst.columns(plan)
        value = catalyst.make.alias(first, "value")
        self._below = catalyst.build.left_join(self._below, catalyst.build.project([value], plan))
        if catalyst.has_at_most(1, plan):
            return catalyst.make.column_of(value)
        rows, _, counted = catalyst.build.count_rows(first, plan)
        self._below = catalyst.build.left_join(self._below, counted)
        return catalyst.convert.scalar_or_error(rows, catalyst.make.column_of(value), _SEVERAL)


def of_single_join(catalyst: Catalyst, node: Join, ours: Sequence[Expression], theirs: Sequence[Expression]) -> Java:
    """The join of rows with the one row that a subquery gives for each, by equal keys, where none is no value."""
    left, right = (each.java for each in node.children)
    keys, equal = [each.java for each in theirs], [each.java for each in ours]
    rows, counted = catalyst.build.with_count(keys, right)
    pairs = catalyst.build.join(left, counted, "LeftOuter", catalyst.make.all_equal(equal, keys))
    columns = catalyst.columns(right)
    values = catalyst.make.standing_for(
        [catalyst.convert.scalar_or_error(rows, each, _SEVERAL) for each in columns], columns
    )
    return catalyst.build.project([*catalyst.columns(left), *values], pairs)
