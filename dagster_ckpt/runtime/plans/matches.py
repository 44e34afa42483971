"""Joins that ask more than equal keys, made of those that do not."""

from collections.abc import Sequence

from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Java, Join
from dagster_ckpt.runtime.plans.keys import FLOATS
from dagster_ckpt.runtime.plans.parts import NodeCompiler


def beside_matches(compiler: NodeCompiler, node: Join) -> Java:
    """A join that asks more of a pair than equal keys, by the pairs that match and the rows that are in none.

    Rows that are equal have the same matches, so each distinct row is known with the number of its matches.
    """
    catalyst, kind = compiler.catalyst, node.how
    left, right = (each.java for each in node.children)
    condition = None if node.condition is None else node.condition.java
    ours, theirs = catalyst.columns(left), catalyst.columns(right)
    left, right = _with_a_column(catalyst, left), _with_a_column(catalyst, right)
    pairs, wanted = catalyst.build.join(left, right, "Inner", condition), catalyst.output_of(node)
    collated = any(each.collated for each in catalyst.types_of(ours))  # such rows are not equal in all they have
    if kind == "LeftSemi" and not (collated or any(compiler.part_that_streams(each).changes for each in node.children)):
        # A row that has a match keeps it. So its rows only come, which what follows can do with less.
        own = catalyst.columns(left)
        matched, same = catalyst.build.distinct_values(own, pairs)
        return catalyst.build.project(wanted, catalyst.build.join(left, matched, kind, catalyst.make.same(own, same)))
    if kind in ("LeftSemi", "LeftAnti"):
        return catalyst.build.project(wanted, _by_matches(catalyst, left, pairs, matched=kind == "LeftSemi"))
    branches = [catalyst.build.project(wanted, pairs)]
    if kind in ("LeftOuter", "FullOuter"):
        nulls = [catalyst.make.null_column(each) for each in theirs]
        branches.append(catalyst.build.project([*ours, *nulls], _by_matches(catalyst, left, pairs, matched=False)))
    if kind in ("RightOuter", "FullOuter"):
        nulls = [catalyst.make.null_column(each) for each in ours]
        branches.append(catalyst.build.project([*nulls, *theirs], _by_matches(catalyst, right, pairs, matched=False)))
    return catalyst.build.union_all(*branches)


def _with_a_column(catalyst: Catalyst, side: Java) -> Java:
    """The rows of a side; if the query reads none of its columns, with one by which they are rows."""
    if catalyst.column_names(side):
        return side
    return catalyst.build.project([catalyst.make.alias(catalyst.make.constant(1), "any")], side)


def _by_matches(catalyst: Catalyst, side: Java, pairs: Java, *, matched: bool) -> Java:
    """The rows of a side that are in a pair, or (not `matched`) in none, each as often as it is there.

    For each distinct row this counts how often it is there, and how many pairs have it.
    """
    own = catalyst.columns(side)
    columns, rows, matches, counted = _count_matches(catalyst, own, side, pairs)
    zero = catalyst.convert.cast_like(catalyst.make.constant(0), rows)
    wanted = catalyst.make.greater(matches, zero) if matched else catalyst.make.equal(matches, zero)
    kept = catalyst.build.filter(catalyst.make.all_of([catalyst.make.greater(rows, zero), wanted]), counted)
    yes = catalyst.make.constant(True)
    often = catalyst.make.repeat(yes, catalyst.convert.cast_to_int(rows))
    repeated = catalyst.build.generate(catalyst.make.explode(often), [catalyst.make.new_column("once", yes)], kept)
    # A column of a step may be null where that of the query cannot. Two readers of this have to have the same type.
    values = [catalyst.convert.cast_like(*pair) for pair in zip(columns, own, strict=True)]
    known = [
        one if catalyst.make.may_be_null(each) else catalyst.make.never_null(one)
        for one, each in zip(values, own, strict=True)
    ]
    return catalyst.build.project(catalyst.make.standing_for(known, own), repeated)


def _count_matches(
    catalyst: Catalyst, own: Sequence[Java], side: Java, pairs: Java
) -> tuple[list[Java], Java, Java, Java]:
    """The columns of distinct rows, how often each is there, how many pairs have it, and the plan with all of that."""
    yes, no = catalyst.make.constant(True), catalyst.make.no_boolean()
    # Rows that differ in the sign of a zero, or are equal by a collation, are not one, as they would be in GROUP BY.
    exact = [
        catalyst.convert.cast_to_text(each) if type_.name in FLOATS else catalyst.convert.without_collation(each)
        for each, type_ in zip(own, catalyst.types_of(own), strict=True)
    ]
    columns = [catalyst.make.alias(each, "c") for each in exact]
    branches = [
        catalyst.build.project([*columns, catalyst.make.alias(row, "row"), catalyst.make.alias(match, "match")], plan)
        for row, match, plan in ((yes, no, side), (no, yes, pairs))
    ]
    every = catalyst.build.union_all(*branches)
    *keys, row, match = catalyst.columns(every)
    rows, matches = (catalyst.make.alias(catalyst.calls.count_of(each), "n") for each in (row, match))
    counted = catalyst.build.aggregate(keys, [*keys, rows, matches], every)
    return keys, catalyst.make.column_of(rows), catalyst.make.column_of(matches), counted


def with_flag(catalyst: Catalyst, node: Join) -> Java:
    """Each row of the left, and whether it has a match: those that have one, and those that have none."""
    left, right = (each.java for each in node.children)
    condition, own = None if node.condition is None else node.condition.java, catalyst.columns(left)
    branches = []
    for how, value in (("LeftSemi", True), ("LeftAnti", False)):
        rows = catalyst.build.join(left, right, how, condition)
        branches.append(
            catalyst.build.project([*own, catalyst.build.flag_of(node, catalyst.make.constant(value))], rows)
        )
    return catalyst.build.union_all(*branches)


def not_in(catalyst: Catalyst, node: Join, ours: Java, theirs: Java) -> Java:
    """`ours NOT IN (theirs)`: rows without a match, if no value of the right is null; all rows, if there is none."""
    left, right = (each.java for each in node.children)
    rows, known, counted = catalyst.build.count_rows(theirs, right)
    nothing = catalyst.make.equal(rows, catalyst.convert.cast_like(catalyst.make.constant(0), rows))
    # All rows of the left meet this one row, so it has what they ask of it, which seldom changes, and not the counts.
    asked = [catalyst.make.alias(nothing, "empty"), catalyst.make.alias(catalyst.make.equal(rows, known), "complete")]
    empty, complete = map(catalyst.make.column_of, asked)
    flags = catalyst.build.project(asked, counted)
    passes = catalyst.make.any_of(
        catalyst.make.any_of(catalyst.make.is_null(empty), empty),
        catalyst.make.all_of([catalyst.make.is_not_null(ours), complete]),
    )
    kept = catalyst.build.project(
        catalyst.columns(left), catalyst.build.filter(passes, catalyst.build.left_join(left, flags))
    )
    return catalyst.build.join(kept, right, "LeftAnti", catalyst.make.equal(ours, theirs))
