"""Subqueries of one value, wherever a query has them, as joins with their one row."""

from collections.abc import Callable, Mapping, Sequence

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import each_of, nodes
from dagster_ckpt.runtime.catalyst.refusals import located, refused
from dagster_ckpt.runtime.catalyst.values import Java, Join

_SEVERAL = "a subquery that stands for one value gave several rows"


def without_scalar_subqueries(catalyst: Catalyst, node: Java) -> Java:
    """The plan with a join below each node that has such a subquery, if the subquery streams.

    Raises `InvalidPipelineError` for a node that cannot have one.
    """
    if not catalyst.has_any(node, "PLAN_EXPRESSION"):
        return node
    children = list(each_of(node.children()))
    new = [without_scalar_subqueries(catalyst, child) for child in children]
    if any(one is not other for one, other in zip(new, children, strict=True)):
        node = catalyst.on(node, *new)
    if not any(each.isStreaming() for each in each_of(node.subqueries())):
        return node
    with located(catalyst, node):
        if catalyst.kind(node) == "Aggregate" and (parted := _parted(catalyst, node)) is not None:
            return without_scalar_subqueries(catalyst, parted)
        return _Hoisted(catalyst, node).made()


def _parted(catalyst: Catalyst, node: Java) -> Java | None:
    """Groups, and above them what is computed of each, where that has a subquery; else None.

    Its value is one for all groups, and no key of theirs: it is joined with the groups, not with the rows.
    """
    grouping, calls, results = catalyst.aggregate_of(node)
    if not any(_streams(catalyst, part) for each in results for part in nodes(each)):
        return None
    keys = [each.child() if catalyst.kind(each) == "Alias" else each for each in grouping]
    groups = catalyst.groups(keys, calls, node.child())
    wanted = [*grouping, *(call.resultAttribute() for call in calls)]
    named = catalyst.project(catalyst.standing_for(each_of(groups.output()), wanted), groups)
    return catalyst.project(results, named)


def _streams(catalyst: Catalyst, expression: Java) -> bool:
    """Whether it is a subquery of one value, which streams."""
    return catalyst.kind(expression) == "ScalarSubquery" and bool(expression.plan().isStreaming())


class _Hoisted:
    """A node whose subqueries become columns of the node below."""

    def __init__(self, catalyst: Catalyst, node: Java) -> None:
        self._catalyst, self._node = catalyst, node
        # Of a join it is one side: rows of either may have a value beside them.
        self._below, *self._others = each_of(node.children())
        self._values: list[tuple[Java, Java]] = []

    def made(self) -> Java:
        """The node over the values; its output is what it was."""
        catalyst, node = self._catalyst, self._node
        make = _MAKERS.get(catalyst.kind(node))
        if make is None:
            raise refused("ScalarSubquery", f"a subquery in {node.nodeName()}")
        new = make(self, node)
        output = list(each_of(node.output()))
        return new if new.output().size() == len(output) else catalyst.project(output, new)

    def filter(self, node: Java) -> Java:
        condition = self._of(node.condition())
        return self._catalyst.filtered(condition, self._below)

    def project(self, node: Java) -> Java:
        columns = self._each(node.projectList())
        return self._catalyst.project(columns, self._below)

    def aggregate(self, node: Java) -> Java:
        keys, columns = self._each(node.groupingExpressions()), self._each(node.aggregateExpressions())
        return self._catalyst.aggregate(keys, columns, self._below)

    def window(self, node: Java) -> Java:
        calls, keys = self._each(node.windowExpressions()), self._each(node.partitionSpec())
        return self._catalyst.window(calls, keys, self._each(node.orderSpec()), self._below)

    def sort(self, node: Java) -> Java:
        order = self._each(node.order())
        return self._catalyst.sorted(order, self._below)

    def generate(self, node: Java) -> Java:
        generator = self._of(node.generator())
        return self._catalyst.generated_as(node, generator, self._below)

    def join(self, node: Java) -> Java:
        condition = self._of(self._catalyst.optional(node.condition()))
        return self._catalyst.joined_as(node, self._below, self._others[0], condition)

    def _each(self, expressions: object) -> list[Java]:
        return [self._of(each) for each in each_of(expressions)]

    def _of(self, expression: Java) -> Java:
        return self._catalyst.replaced(expression, self._value)

    def _value(self, expression: Java) -> Java | None:
        """What stands for a subquery; one that is there twice, as a key and a column, is one value."""
        if not _streams(self._catalyst, expression):
            return None
        for other, value in self._values:
            if other.semanticEquals(expression):
                return value
        value = self._joined(expression.plan())
        self._values.append((expression, value))
        return value

    def _joined(self, plan: Java) -> Java:
        catalyst = self._catalyst
        plan = without_scalar_subqueries(catalyst, plan)
        [first, *_] = each_of(plan.output())
        value = catalyst.alias(first, "value")
        self._below = catalyst.left_join(self._below, catalyst.project([value], plan))
        if catalyst.has_at_most(1, plan):
            return value.toAttribute()
        rows, _, counted = catalyst.counted(first, plan)
        self._below = catalyst.left_join(self._below, counted)
        return catalyst.unless_several(rows, value.toAttribute(), _SEVERAL)


_MAKERS: Mapping[str, Callable[[_Hoisted, Java], Java]] = {
    "Aggregate": _Hoisted.aggregate,
    "Filter": _Hoisted.filter,
    "Generate": _Hoisted.generate,
    "Join": _Hoisted.join,
    "Project": _Hoisted.project,
    "Sort": _Hoisted.sort,
    "Window": _Hoisted.window,
}


def of_single_join(catalyst: Catalyst, node: Join, ours: Sequence[Java], theirs: Sequence[Java]) -> Java:
    """The join of rows with the one row that a subquery gives for each, by equal keys, where none is no value."""
    left, right = (each.java for each in node.children)
    rows, counted = catalyst.with_count(theirs, right)
    pairs = catalyst.joined(left, counted, "LeftOuter", catalyst.all_equal(ours, theirs))
    theirs_now = list(each_of(right.output()))
    values = catalyst.standing_for([catalyst.unless_several(rows, each, _SEVERAL) for each in theirs_now], theirs_now)
    return catalyst.project([*each_of(left.output()), *values], pairs)
