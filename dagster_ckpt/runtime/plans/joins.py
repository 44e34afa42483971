"""Joins of a query as steps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node
from dagster_ckpt.runtime.plans.keys import Key
from dagster_ckpt.runtime.plans.partitions import without_limit
from dagster_ckpt.runtime.plans.parts import Part
from dagster_ckpt.runtime.plans.subqueries import of_single_join

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


def join_parts(compiler: "Compiler", node: Node) -> Part:
    """A join of two streams, or of a stream and a table that stays as it is."""
    catalyst = compiler.catalyst
    kind = str(node.joinType().toString()).split("(")[0]
    left, right = each_of(node.children())
    if not (left.isStreaming() and right.isStreaming()):
        return _with_table(compiler, node, kind, left, right)
    other = _as_other_nodes(catalyst, node, kind)
    if other is not None:
        return compiler.part(other)
    left_keys, right_keys, rest = catalyst.equi_join_of(node)
    keys = [[column for each in own for column in Key(catalyst, each).compared()] for own in (left_keys, right_keys)]
    if not keys[0]:
        keys = [[catalyst.parsed("1")], [catalyst.parsed("1")]]
    sides = []
    if kind in ("LeftSemi", "LeftAnti"):
        right = without_limit(catalyst, right)
    for own, child, letter in zip(keys, (left, right), "lr", strict=True):
        key_names = [f"{letter}k{number}" for number in range(len(own))]
        output = list(each_of(child.output()))
        names = [f"{letter}{number}" for number in range(len(output))]
        rows = compiler.part(child).columns([*own, *output], [*key_names, *names])
        sides.append((rows.key_by(*key_names), key_names, output))
    (ours, our_keys, our_output), (theirs, their_keys, their_output) = sides
    how = _HOW[kind]
    made = ours.join(theirs, how=how)
    stand = [catalyst.alias(each, name).toAttribute() for each, name in zip(keys[0], our_keys, strict=True)]
    other = [catalyst.alias(each, name).toAttribute() for each, name in zip(keys[1], their_keys, strict=True)]
    output = list(each_of(node.output()))
    ours_only = how in ("semi", "anti")
    attributes = [*stand, *our_output] if ours_only else [*stand, *our_output, *other, *their_output]
    part = Part(catalyst, (), stream=made, attributes=tuple(attributes))
    part = part.then(lambda plan, beside: catalyst.project([*output, *beside], plan), output)
    if rest is not None:
        part = part.then(lambda plan, _: catalyst.filtered(rest, plan), output)
    return part


def _as_other_nodes(catalyst: Catalyst, node: Node, kind: str) -> Node | None:
    """What a join is made of that is more than pairs of equal keys; None: it is no more than that."""
    compared = catalyst.null_aware_of(node)
    if compared is not None:
        return _not_in(catalyst, node, *compared)
    if kind == "ExistenceJoin":
        return _with_flag(catalyst, node)
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
    return None if rest is None or kind in ("Inner", "Cross") else _beside_matches(catalyst, node, kind)


def _beside_matches(catalyst: Catalyst, node: Node, kind: str) -> Node:
    """A join that asks more of a pair than equal keys, by the pairs that match and the rows that are in none.

    Rows that are equal have the same matches, so it is enough to know the distinct rows with a match.
    """
    left, right = each_of(node.children())
    condition = catalyst.optional(node.condition())
    ours, theirs = list(each_of(left.output())), list(each_of(right.output()))
    left, right = _with_a_column(catalyst, left), _with_a_column(catalyst, right)
    pairs = catalyst.joined(left, right, "Inner", condition)
    if kind in ("LeftSemi", "LeftAnti"):
        return _of_matched(catalyst, left, pairs, kind)
    wanted = list(each_of(node.output()))
    branches = [catalyst.project(wanted, pairs)]
    if kind in ("LeftOuter", "FullOuter"):
        nulls = [catalyst.alias(catalyst.null_of(each.dataType()), str(each.name())) for each in theirs]
        branches.append(catalyst.project([*ours, *nulls], _of_matched(catalyst, left, pairs, "LeftAnti")))
    if kind in ("RightOuter", "FullOuter"):
        nulls = [catalyst.alias(catalyst.null_of(each.dataType()), str(each.name())) for each in ours]
        branches.append(catalyst.project([*nulls, *theirs], _of_matched(catalyst, right, pairs, "LeftAnti")))
    return catalyst.united(*branches)


def _with_a_column(catalyst: Catalyst, side: Node) -> Node:
    """The rows of a side; if the query reads none of its columns, with one by which they are rows."""
    if not side.output().isEmpty():
        return side
    return catalyst.project([catalyst.alias(catalyst.constant(1), "any")], side)


def _of_matched(catalyst: Catalyst, side: Node, pairs: Node, kind: str) -> Node:
    """The rows of a side that are in a pair (LeftSemi), or in none (LeftAnti)."""
    own = list(each_of(side.output()))
    matched, theirs = catalyst.distinct(own, pairs)
    return catalyst.joined(side, matched, kind, catalyst.same(own, theirs))


def _with_flag(catalyst: Catalyst, node: Node) -> Node:
    """Each row of the left, and whether it has a match: those that have one, and those that have none."""
    left, right = each_of(node.children())
    condition, flag = catalyst.optional(node.condition()), node.joinType().exists()
    own = list(each_of(left.output()))
    branches = []
    for how, value in (("LeftSemi", True), ("LeftAnti", False)):
        rows = catalyst.joined(left, right, how, condition)
        branches.append(catalyst.project([*own, catalyst.alias(catalyst.constant(value), "exists", flag)], rows))
    return catalyst.united(*branches)


def _not_in(catalyst: Catalyst, node: Node, ours: Expression, theirs: Expression) -> Node:
    """`ours NOT IN (theirs)`: rows without a match, if no value of the right is null; all rows, if there is none."""
    left, right = each_of(node.children())
    rows, known, flags = catalyst.counted(theirs, right)
    nothing = catalyst.expressions.EqualTo(rows, catalyst.cast(catalyst.constant(0), rows.dataType()))
    empty = catalyst.any_of(catalyst.expressions.IsNull(rows), nothing)
    passes = catalyst.any_of(
        empty,
        catalyst.all_of([catalyst.expressions.IsNotNull(ours), catalyst.expressions.EqualTo(rows, known)]),
    )
    kept = catalyst.project(list(each_of(left.output())), catalyst.filtered(passes, catalyst.left_join(left, flags)))
    return catalyst.joined(kept, right, "LeftAnti", catalyst.expressions.EqualTo(ours, theirs))


def _with_table(compiler: "Compiler", node: Node, kind: str, left: Node, right: Node) -> Part:
    catalyst = compiler.catalyst
    output = list(each_of(node.output()))
    fits = (
        ("Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti")
        if left.isStreaming()
        else ("Inner", "Cross", "RightOuter")
    )
    if kind not in fits:
        raise InvalidPipelineError(
            "rows of a table that does not stream would come out for want of a match, which a stream cannot tell: read "
            f"the table as a stream, or keep the stream's rows alone. found={kind}"
        )
    stream, table = (left, right) if left.isStreaming() else (right, left)
    part = compiler.part(stream)
    if part.changes:
        columns = ", ".join(str(each.name()) for each in each_of(table.output()))
        raise InvalidPipelineError(
            "a table that does not stream may be another one when a row goes than it was when the row came: join it "
            "with rows that only come, below aggregates and the like, or read it as a stream. "
            f"found={node.nodeName()}, table={columns}"
        )

    def joined(plan: Node, beside: Sequence[Expression]) -> Node:
        sides = (plan, right) if left.isStreaming() else (left, plan)
        return catalyst.project([*output, *beside], catalyst.on(node, *sides))

    return part.then(joined, output)
