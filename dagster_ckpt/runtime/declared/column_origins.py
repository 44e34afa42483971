"""Which columns of what a stream reads Spark makes the columns of each step's inputs from, as its plans say."""

from collections.abc import Iterator, Mapping

from dagster_ckpt.operators.column_lineage import Work
from dagster_ckpt.runtime.catalyst.query_plan import leaves, node_of
from dagster_ckpt.runtime.catalyst.trees import are_same, give_same_rows
from dagster_ckpt.runtime.catalyst.values import Expression, Generate, Node, Projection
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
"""Plan nodes whose columns are those below, or expressions of them. The origin of a column of all others is unknown."""

_Origins = dict[int, tuple[str, ...]]
"""The columns of the base that a column is computed from, by Spark's number of it; not there: unknown."""


def work_of_inputs(stream: Stream) -> tuple[tuple[Work, ...], ...]:
    """What Spark does before each input of each step, in the order of `Stream.steps`.

    Its base is the table of an upstream or the changes of an earlier step. Inputs of sources have None.
    """
    return tuple(tuple(map(_input_work, step.inputs)) for step in stream.steps)


def _input_work(stream: Stream) -> Work:
    node = node_of(stream.frame)
    if stream.earlier is not None:
        return _columns_read(node, node_of(stream.earlier.changes))
    if stream.upstream is None:
        return None
    relations = [leaf.relation for leaf in leaves(node)]
    return _columns_read(node, relations[0]) if len(relations) == 1 else {}


def _columns_read(node: Node, base: Node) -> Mapping[str, tuple[str, ...]]:
    """For each column of the plan the columns of its node `base` that it is computed from, where that is known."""
    found = _origins(node, base)
    if found is None:
        return {}
    # The first of a name, as the tasks read it.
    return {name: found[number] for name, number in reversed(node.output) if number in found}


def _origins(node: Node, base: Node) -> _Origins | None:
    """The origins of all columns of a plan. None: it does not read the base."""
    if (node.kind, node.output) == (base.kind, base.output) and are_same(node.java, base.java):
        return {number: (name,) for name, number in node.output}
    if not node.children:
        return {} if give_same_rows(node.java, base.java) else None  # the base once more, under other numbers
    below = [_origins(child, base) for child in node.children]
    if all(each is None for each in below):
        return None
    if node.kind not in _BY_COLUMN:
        return {}
    found = _Origins()
    for child, its in zip(node.children, below, strict=True):
        found.update(dict.fromkeys((number for _, number in child.output), ()) if its is None else its)
    for number, expression in _new_columns(node):
        columns = [part.number for part in expression.parts() if part.kind == "AttributeReference"]
        if all(each in found for each in columns):
            found[number] = tuple(sorted({name for each in columns if each is not None for name in found[each]}))
    return found


def _new_columns(node: Node) -> Iterator[tuple[int, Expression]]:
    """The columns that a node adds, by Spark's number of each, and the expression that it is computed by."""
    match node:
        case Projection(columns=columns):
            pairs = ((each, each) for each in columns)
        case Generate(generator=generator, made=made):
            pairs = ((each, generator) for each in made)
        case _:
            return
    yield from ((each.number, value) for each, value in pairs if each.number is not None)
