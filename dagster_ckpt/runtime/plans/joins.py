"""Joins of a query as steps."""

from collections.abc import Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins.regular.regular_join import EVERY_ROW
from dagster_ckpt.runtime.catalyst.values import Columns, Java, Join, Node
from dagster_ckpt.runtime.catalyst.work_text import name_of_pair
from dagster_ckpt.runtime.plans.keys import RowColumns, equal_columns, meets_all
from dagster_ckpt.runtime.plans.matches import beside_matches, not_in, with_flag
from dagster_ckpt.runtime.plans.partitions import without_limit
from dagster_ckpt.runtime.plans.parts import NodeCompiler, Part
from dagster_ckpt.runtime.plans.subqueries import of_single_join

_HOW = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
_GIVING_PAIRS = ("Inner", "Cross", "LeftOuter", "RightOuter", "FullOuter")
_LEFT_STREAMS = ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
_RIGHT_STREAMS = ("Inner", "Cross", "RightOuter")
"""What Spark joins a stream with a table by, row by row of the stream."""


def join_parts(compiler: NodeCompiler, node: Join) -> Part:
    """A join of two streams, or of a stream and a table that stays as it is."""
    catalyst, (left, right) = compiler.catalyst, node.children
    if not (left.streams and right.streams):
        made = _with_table(compiler, node, left, right)
        if made is not None:
            return made
    other = _as_other_nodes(compiler, node)
    if other is not None:
        return compiler.part(catalyst.read(other))
    left_keys, right_keys, rest = catalyst.equi_join_of(node)
    keys = equal_columns(catalyst, left_keys, right_keys)
    pairs_all = node.how in _GIVING_PAIRS and meets_all(catalyst, node)
    if not left_keys:
        keys = [catalyst.make.parse("1")], [catalyst.make.parse("1")]
    if node.how in ("LeftSemi", "LeftAnti"):
        right = without_limit(catalyst, right, right_keys)
    part = _by_keys(compiler, node, (left, right), keys, pairs_all=pairs_all)
    return part if rest is None else part.then(lambda plan, _: catalyst.build.filter(rest, plan), part.output)


def _as_other_nodes(compiler: NodeCompiler, node: Join) -> Java | None:
    """What a join is made of that is more than pairs of equal keys; None: it is no more than that."""
    catalyst = compiler.catalyst
    compared = catalyst.null_aware_of(node)
    if compared is not None:
        return not_in(catalyst, node, *compared)
    if node.how == "ExistenceJoin":
        return with_flag(catalyst, node)
    left_keys, right_keys, rest = catalyst.equi_join_of(node)
    if node.how == "LeftSingle":
        if rest is not None or not left_keys:
            condition = "" if node.condition is None else catalyst.sql_of(node.condition.java)
            raise InvalidPipelineError(
                "this subquery may give several rows where one value is wanted: take one of them, by max(...) or by "
                f"ORDER BY ... LIMIT 1, or join it. found={condition}"
            )
        return of_single_join(catalyst, node, left_keys, right_keys)
    if node.how not in _HOW:
        raise InvalidPipelineError(f"this kind of join cannot be kept up to date. found={node.how}")
    return None if rest is None or node.how in ("Inner", "Cross") else beside_matches(compiler, node)


def _by_keys(
    compiler: NodeCompiler,
    node: Join,
    children: tuple[Node, Node],
    keys: Sequence[Sequence[Java]],
    *,
    pairs_all: bool,
) -> Part:
    """A join of these sides by equal keys alone; `keys` are those of both. `pairs_all`: one constant is."""
    catalyst, how = compiler.catalyst, _HOW[node.how]
    outputs = [catalyst.output_of(child) for child in children]
    read = [
        compiler.part_that_streams(child).with_names([*own, *output])
        for child, own, output in zip(children, keys, outputs, strict=True)
    ]
    pairs = dict[str, int]()
    for place, names in enumerate(zip(*(side.names[: len(keys[0])] for side in read), strict=True)):
        pairs.setdefault(name_of_pair(*names), place)
    # Both keys of an inner join have one value, and columns by one name are one in its output.
    one = [
        how == "inner" and all(catalyst.column_number(each) is not None for each in pair)
        for pair in zip(*keys, strict=True)
    ]
    sides = []
    for own, output, side, letter in zip(keys, outputs, read, "lr", strict=True):
        leading = (
            {EVERY_ROW: own[0]}
            if pairs_all
            else {name if one[place] else f"{letter}.{name}": own[place] for name, place in sorted(pairs.items())}
        )
        own_names = [f"{letter}.{name}" for name in side.names[len(own) :]]
        columns = RowColumns.of(catalyst, leading, output, own_names)
        sides.append((side.stream_of(columns.expressions).key_by(*leading), columns))
    (left, mine), (right, theirs) = sides
    made = left.join(right, how=how)
    columns = mine if how in ("semi", "anti") else mine.beside(theirs)
    output = catalyst.output_of(node)
    shown = columns.show(catalyst, output)
    part = Part(catalyst, (), stream=made, attributes=tuple(columns.attributes.values()))
    return part.project(shown, output)


def _with_table(compiler: NodeCompiler, node: Join, left: Node, right: Node) -> Part | None:
    """A join with a table that does not stream, as Spark makes it. None: it is one of constants, a stream as others."""
    catalyst = compiler.catalyst
    stream, table = (left, right) if left.streams else (right, left)
    if node.how == "ExistenceJoin" and left.streams:
        return compiler.part(catalyst.read(with_flag(catalyst, node)))
    fits = _LEFT_STREAMS if left.streams else _RIGHT_STREAMS
    part = compiler.part(stream)
    if (node.how not in fits or part.changes) and catalyst.is_constant(table):
        return None
    if node.how not in fits:
        raise InvalidPipelineError(
            "rows of a table that does not stream would come out for want of a match, which a stream cannot tell: read "
            f"the table as a stream, or keep the stream's rows alone. found={node.how}"
        )
    if part.changes:
        raise InvalidPipelineError(
            "a table that does not stream may be another one when a row goes than it was when the row came: join it "
            "with rows that only come, below aggregates and the like, or read it as a stream. "
            f"found={catalyst.name_of(node)}, table={', '.join(name for name, _ in table.output)}"
        )
    output, join, other = catalyst.output_of(node), node.java, table.java
    own = catalyst.build.projection(output)

    def join_table(plan: Java, beside: Columns) -> Java:
        return own(catalyst.build.on(join, *((plan, other) if stream is left else (other, plan))), beside)

    return part.then(join_table, output)
