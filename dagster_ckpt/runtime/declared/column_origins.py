"""Which columns of what a stream reads Spark makes the columns of each step's inputs from, as its plans say."""

from collections.abc import Iterator, Mapping
from typing import Any

from dagster_ckpt.operators.column_lineage import Work
from dagster_ckpt.runtime.catalyst.query_plan import column_number, columns_of, each_of, kind_of, leaves, plan_of
from dagster_ckpt.runtime.declared.stream import Stream

_BY_COLUMN = {
    "Filter",
    "Generate",
    "Join",
    "Project",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sample",
    "SubqueryAlias",
}
"""Plan nodes whose columns are those below, or expressions of them. Of all others no column's origin is known."""

_Origins = dict[int, tuple[str, ...]]
"""Of each column, by Spark's number of it, the columns of the base that it is computed from; not there: unknown."""


def work_of_inputs(stream: Stream) -> tuple[tuple[Work, ...], ...]:
    """What Spark does before each input of each step, in the order of `Stream.steps`.

    Its base is the table of an upstream or the changes of an earlier step. Inputs of sources have None.
    """
    return tuple(tuple(map(_work_of, step.inputs)) for step in stream.steps)


def _work_of(stream: Stream) -> Work:
    if stream.earlier is not None:
        return _columns_read(plan_of(stream.frame), plan_of(stream.earlier.changes))
    if stream.upstream is None:
        return None
    plan = plan_of(stream.frame)
    relations = [leaf.relation for leaf in leaves(plan)]
    return _columns_read(plan, relations[0]) if len(relations) == 1 else {}


def _columns_read(plan: Any, base: Any) -> Mapping[str, tuple[str, ...]]:
    """For each column of the plan the columns of its node `base` that it is computed from, where that is known."""
    found = _origins(plan, base)
    if found is None:
        return {}
    # The first of a name, as the tasks read it.
    columns = reversed(columns_of(plan.output()))
    return {name: found[number] for name, number in columns if number in found}


def _origins(node: Any, base: Any) -> _Origins | None:
    """The origins of all columns of a plan. None: it does not read the base."""
    if node.fastEquals(base):
        return {number: (name,) for name, number in columns_of(node.output())}
    children = list(each_of(node.children()))
    if not children:
        return {} if node.sameResult(base) else None  # the base once more, under other numbers
    below = [_origins(child, base) for child in children]
    if all(each is None for each in below):
        return None
    if kind_of(node) not in _BY_COLUMN:
        return {}
    found = _Origins()
    for child, its in zip(children, below, strict=True):
        numbers = [number for _, number in columns_of(child.output())]
        found.update(dict.fromkeys(numbers, ()) if its is None else its)
    for number, expression in _computed(node):
        read = [number for _, number in columns_of(expression.references().toSeq())]
        if all(each in found for each in read):
            found[number] = tuple(sorted({name for each in read for name in found[each]}))
    return found


def _computed(node: Any) -> Iterator[tuple[int, Any]]:
    """The columns that a node adds, by Spark's number of each, and the expression that it is computed by."""
    if kind_of(node) == "Project":
        for each in each_of(node.projectList()):
            yield column_number(each), each
    elif kind_of(node) == "Generate":
        for each in each_of(node.generatorOutput()):
            yield column_number(each), node.generator()
