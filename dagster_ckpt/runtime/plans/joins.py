"""Joins of a query as steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins.regular.regular_join import EVERY_ROW
from dagster_ckpt.runtime.catalyst.catalyst import Columns, Expression, Node
from dagster_ckpt.runtime.catalyst.query_plan import each_of
from dagster_ckpt.runtime.plans.keys import RowColumns, equal_columns, is_column, meets_all
from dagster_ckpt.runtime.plans.matches import beside_matches, not_in, with_flag
from dagster_ckpt.runtime.plans.partitions import without_limit
from dagster_ckpt.runtime.plans.parts import Part
from dagster_ckpt.runtime.plans.subqueries import of_single_join
from dagster_ckpt.runtime.plans.work_text import name_of_pair

if TYPE_CHECKING:
    from dagster_ckpt.runtime.plans.compiler import Compiler

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


def join_parts(compiler: "Compiler", node: Node) -> Part:
    """A join of two streams, or of a stream and a table that stays as it is."""
    catalyst = compiler.catalyst
    kind = str(node.joinType().toString()).split("(")[0]
    left, right = each_of(node.children())
    if not (left.isStreaming() and right.isStreaming()):
        made = _with_table(compiler, node, kind, left, right)
        if made is not None:
            return made
    other = _as_other_nodes(compiler, node, kind)
    if other is not None:
        return compiler.part(other)
    left_keys, right_keys, rest = catalyst.equi_join_of(node)
    keys = equal_columns(catalyst, left_keys, right_keys)
    pairs_all = kind in _GIVING_PAIRS and meets_all(catalyst, node)
    if not left_keys:
        keys = [catalyst.parsed("1")], [catalyst.parsed("1")]
    if kind in ("LeftSemi", "LeftAnti"):
        node = catalyst.on(node, left, without_limit(catalyst, right, right_keys))
    part = _by_keys(compiler, node, _HOW[kind], keys, pairs_all=pairs_all)
    return part if rest is None else part.then(lambda plan, _: catalyst.filtered(rest, plan), part.output)


def _as_other_nodes(compiler: "Compiler", node: Node, kind: str) -> Node | None:
    """What a join is made of that is more than pairs of equal keys; None: it is no more than that."""
    catalyst = compiler.catalyst
    compared = catalyst.null_aware_of(node)
    if compared is not None:
        return not_in(catalyst, node, *compared)
    if kind == "ExistenceJoin":
        return with_flag(catalyst, node)
    left_keys, right_keys, rest = catalyst.equi_join_of(node)
    if kind == "LeftSingle":
        if rest is not None or not left_keys:
            raise InvalidPipelineError(
                "this subquery may give several rows where one value is wanted: take one of them, by max(...) or by "
                f"ORDER BY ... LIMIT 1, or join it. found={node.condition().get().sql()}"
            )
        return of_single_join(catalyst, node, left_keys, right_keys)
    if kind not in _HOW:
        raise InvalidPipelineError(f"this kind of join cannot be kept up to date. found={kind}")
    return None if rest is None or kind in ("Inner", "Cross") else beside_matches(compiler, node, kind)


def _by_keys(
    compiler: "Compiler", node: Node, how: str, keys: Sequence[Sequence[Expression]], *, pairs_all: bool
) -> Part:
    """A join by equal keys alone; `keys` are those of both sides. `pairs_all`: one constant is."""
    catalyst, children = compiler.catalyst, list(each_of(node.children()))
    outputs = [list(each_of(child.output())) for child in children]
    read = [
        compiler.part_that_streams(child).named([*own, *output])
        for child, own, output in zip(children, keys, outputs, strict=True)
    ]
    pairs = dict[str, int]()
    for place, names in enumerate(zip(*(side.names[: len(keys[0])] for side in read), strict=True)):
        pairs.setdefault(name_of_pair(*names), place)
    # Both keys of an inner join have one value, and columns by one name are one in its output.
    one = [how == "inner" and all(is_column(catalyst, each) for each in pair) for pair in zip(*keys, strict=True)]
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
    output = list(each_of(node.output()))
    shown = columns.shown(catalyst, output)
    part = Part(catalyst, (), stream=made, attributes=tuple(columns.attributes.values()))
    return part.projected(shown, output)


def _with_table(compiler: "Compiler", node: Node, kind: str, left: Node, right: Node) -> Part | None:
    """A join with a table that does not stream, as Spark makes it. None: it is one of constants, a stream as others."""
    catalyst = compiler.catalyst
    output = list(each_of(node.output()))
    stream, table = (left, right) if left.isStreaming() else (right, left)
    if kind == "ExistenceJoin" and left.isStreaming():
        return compiler.part(with_flag(catalyst, node))
    fits = _LEFT_STREAMS if left.isStreaming() else _RIGHT_STREAMS
    part = compiler.part(stream)
    if (kind not in fits or part.changes) and catalyst.is_constant(table):
        return None
    if kind not in fits:
        raise InvalidPipelineError(
            "rows of a table that does not stream would come out for want of a match, which a stream cannot tell: read "
            f"the table as a stream, or keep the stream's rows alone. found={kind}"
        )
    if part.changes:
        columns = ", ".join(str(each.name()) for each in each_of(table.output()))
        raise InvalidPipelineError(
            "a table that does not stream may be another one when a row goes than it was when the row came: join it "
            "with rows that only come, below aggregates and the like, or read it as a stream. "
            f"found={node.nodeName()}, table={columns}"
        )

    own = catalyst.projection(output)

    def joined(plan: Node, beside: Columns) -> Node:
        sides = (plan, right) if stream is left else (left, plan)
        return own(catalyst.on(node, *sides), beside)

    return part.then(joined, output)
