"""From a query of Spark's to a `Stream`: the optimised plan is cut at its nodes that keep state.

Below such a node the work stays Spark's, the node becomes a step, above it the work is Spark's again. Columns between
steps have names by position, so that neither aliases nor the order of columns are in a step's fingerprint. A node that
equals another one is one step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks.pipeline_checks import check_columns
from dagster_ckpt.operators.shared.ranked.order_by import quoted
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst, Columns, Expression, Node
from dagster_ckpt.runtime.catalyst.plan_text import whole_texts
from dagster_ckpt.runtime.catalyst.query_plan import column_number, columns_of, each_of, is_leaf, nodes
from dagster_ckpt.runtime.catalyst.reader import read
from dagster_ckpt.runtime.declared.moments import moment_in
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.constants import constants, one_row
from dagster_ckpt.runtime.plans.groups import aggregated
from dagster_ckpt.runtime.plans.joins import join_parts
from dagster_ckpt.runtime.plans.keys import Key, RowColumns
from dagster_ckpt.runtime.plans.partitions import limit_as_top, over_partition, top_of
from dagster_ckpt.runtime.plans.parts import Part, Work
from dagster_ckpt.runtime.plans.refusals import located, naming_columns, query_errors, refused
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of, stream_of_number
from dagster_ckpt.runtime.plans.subqueries import without_scalar_subqueries
from dagster_ckpt.runtime.plans.work_text import column_name, in_all
from dagster_ckpt.runtime.spark.session import as_active

_UNCHANGED = (
    "SubqueryAlias",
    "View",
    "EventTimeWatermark",
    "WindowGroupLimit",
    "RepartitionByExpression",
    "Repartition",
    "Sort",
)
"""Nodes that change no row: a table has no order, and steps have partitions of their own."""

NO_TABLES: Mapping[str, Stream | DataFrame] = {}


def stream_of(frame: DataFrame) -> Stream:
    """The stream whose table is what the DataFrame's query gives in batch, of all input so far.

    Raises `InvalidPipelineError` for a query that cannot be kept up to date.
    """
    return _compiled(frame.sparkSession, lambda catalyst: catalyst.analysed(frame))


def stream_of_sql(
    session: SparkSession | DataFrame, text: str, tables: Mapping[str, Stream | DataFrame] = NO_TABLES
) -> Stream:
    """The stream of a query in SQL. `session` is that in which its tables have names, or any DataFrame of it.

    `tables` gets names too, as temporary views of the session. A `Stream` among them stands for its table: rows of a
    `changes_from`, of any other step, or of an upstream come and go with those of that table.
    """
    session = session.sparkSession if isinstance(session, DataFrame) else session
    for name, table in tables.items():
        frame = dataframe_of(table, session) if isinstance(table, Stream) else table
        frame.createOrReplaceTempView(name)

    def plan_by(catalyst: Catalyst) -> Node:
        with query_errors(catalyst.views):
            return catalyst.of_sql(text)

    return _compiled(session, plan_by)


def _compiled(session: SparkSession, plan_by: Callable[[Catalyst], Node]) -> Stream:
    with as_active(session), whole_texts(session):  # whose settings Spark's parser, planner and texts then have
        catalyst = Catalyst(session)
        return _stream_of_plan(catalyst, plan_by(catalyst))


def _stream_of_plan(catalyst: Catalyst, plan: Node) -> Stream:
    names = [name for name, _ in columns_of(plan.output())]
    if not names:
        raise InvalidPipelineError("the query has no column, so its table could not have its rows: select one")
    with located(catalyst, plan):
        check_columns(pa.schema([(name, pa.null()) for name in names]))
    _refuse_moment(catalyst, plan)
    watermarks = catalyst.watermarks_in(plan)
    plan = catalyst.pruned(without_scalar_subqueries(catalyst, catalyst.rewritten(plan)))
    if not plan.isStreaming():
        raise InvalidPipelineError(
            "the query reads no stream, so its table would never change: read one, or make it an ordinary asset"
        )
    return replace(Compiler(catalyst, plan).part(plan).table(names), ignored_watermarks=watermarks)


def _refuse_moment(catalyst: Catalyst, plan: Node) -> None:
    # Asked of the plan as it was written: the optimizer makes a constant of the time of day.
    for node in read(catalyst.session, plan, replaced=True).with_subqueries():
        for each in node.parts():
            found = moment_in(each)
            if found is not None:
                with located(catalyst, each.java):
                    raise InvalidPipelineError(
                        "each row would have to change as time goes by: compare columns, or have the time of day in a "
                        f"column of the source. found={found}"
                    )


class Compiler:
    """Makes parts of the nodes of one plan."""

    def __init__(self, catalyst: Catalyst, plan: Node) -> None:
        self.catalyst, self._plan = catalyst, plan
        self._steps: list[tuple[Node, Part]] = []

    def part(self, node: Node) -> Part:
        """The rows of a node. Raises `InvalidPipelineError` for one that cannot be maintained."""
        if not node.isStreaming() or is_leaf(node):
            return self._leaf(node)
        make = _MAKERS.get(self.catalyst.kind(node))
        with located(self.catalyst, node):
            if make is None:
                raise refused(self.catalyst.kind(node), str(node.nodeName()))
            return make(self, node)

    def _leaf(self, node: Node) -> Part:
        """Rows that Spark reads, or those of a stream that the node stands for."""
        output = tuple(each_of(node.output()))
        number = self.catalyst.number_of(node)
        stream = None if number is None else stream_of_number(self.catalyst.session, number)
        if stream is None:
            return Part(self.catalyst, output, plan=node)
        return Part(self.catalyst, output, stream=stream, attributes=output)

    def part_that_streams(self, node: Node) -> Part:
        """The rows of a node, or constants. Raises `InvalidPipelineError` for a table that does not stream."""
        return self.part(node) if node.isStreaming() else constants(self, node)

    @cached_property
    def one_row(self) -> Part:
        """One row, beside which constants stand."""
        leaves = (each for each in nodes(self._plan) if each.isStreaming() and is_leaf(each))
        return one_row(self, next(leaves))

    def once(self, node: Node, make: Callable[[Node], Part]) -> Part:
        """The part that `make` makes of a node, or that of an equal node, if there was one."""
        catalyst, own = self.catalyst, tuple(each_of(node.output()))
        same = next((part for other, part in self._steps if node.sameResult(other)), None)
        if same is None:
            part = make(node)
            self._steps.append((node, part))
            return part
        return same.projected(catalyst.standing_for(same.output, own), own)

    def below(self, node: Node) -> Part:
        """The part of a node that changes no row."""
        return self.part(node.child())

    def filtered(self, node: Node) -> Part:
        """A filter, which may be one over a rank."""
        found = top_of(self, node)
        if found is not None:
            return found
        return self._above(node, lambda plan, _: self.catalyst.filtered(node.condition(), plan))

    def row_by_row(self, node: Node) -> Part:
        """Spark's work on each row."""
        return self._above(node, lambda plan, _: self.catalyst.on(node, plan))

    def projected(self, node: Node) -> Part:
        """Columns computed of a row."""
        own = node.projectList()
        return self._above(node, lambda plan, beside: self.catalyst.projected(own, beside, plan))

    def expanded(self, node: Node) -> Part:
        """Several rows of each."""
        catalyst, output = self.catalyst, list(each_of(node.output()))
        projections = [list(each_of(each)) for each in each_of(node.projections())]

        def work(plan: Node, beside: Columns) -> Node:
            along = list(each_of(beside))
            return catalyst.expanded([[*each, *along] for each in projections], [*output, *along], plan)

        return self._above(node, work)

    def limited(self, node: Node) -> Part:
        """The first rows of all."""
        return self.part(limit_as_top(self.catalyst, node))

    def _above(self, node: Node, work: Work) -> Part:
        return self.part(node.child()).then(work, tuple(each_of(node.output())))

    def united(self, node: Node) -> Part:
        """All rows of several nodes."""
        catalyst, output = self.catalyst, list(each_of(node.output()))
        parts = [self.part_that_streams(child) for child in each_of(node.children())]
        if all(part.plan is not None for part in parts):
            return Part(catalyst, tuple(output), plan=catalyst.on(node, *[part.plan for part in parts]))
        # Rows of which the query reads no column have one by which they are rows.
        stand = output or [catalyst.alias(catalyst.constant(1), "any").toAttribute()]
        read = [part.named(_as_types(catalyst, part.output, output)) for part in parts]
        names = [column_name(in_all(texts)) for texts in zip(*(each.names for each in read), strict=True)]
        places = {name: names.index(name) for name in sorted(names)}
        whole, *others = (
            each.stream_of({name: each.columns[each.names[place]] for name, place in places.items()}) for each in read
        )
        with naming_columns(names, stand):
            for other in others:
                whole = whole.union(other)
        attributes = {name: stand[place] for name, place in places.items()}
        own = [attributes[name] for name in names]
        shown = [catalyst.shown(*pair) for pair in zip(own, output, strict=False)]
        part = Part(catalyst, (), stream=whole, attributes=tuple(attributes.values()))
        return part.projected(shown, output)

    def deduplicated(self, node: Node) -> Part:
        """One row of each key. Which one SQL leaves open: the least by its columns."""
        catalyst, [child] = self.catalyst, each_of(node.children())
        output, wanted = list(each_of(node.output())), {column_number(each) for each in each_of(node.keys())}
        collated = [each for each in output if catalyst.is_collated(each.dataType())]
        if collated and all(column_number(each) in wanted for each in output):
            return self.part(catalyst.deduplicated(child))
        keys = [part for each in collated if column_number(each) in wanted for part in Key(catalyst, each).columns()]
        plain = [part for each in collated for part in Key(catalyst, catalyst.without_collation(each)).columns()]
        read = self.part(child).named([*keys, *plain, *output])
        leading = dict(zip(read.names, [*keys, *plain], strict=False))
        columns = RowColumns.of(catalyst, leading, output, read.names[len(keys) + len(plain) :])
        own = {column_number(each): columns.stand[column_number(each)] for each in output if each not in collated}
        key_names = sorted({*read.names[: len(keys)], *(name for number, name in own.items() if number in wanted)})
        by = [name for name in (*leading, *sorted(set(own.values()))) if name not in key_names]
        rows = read.stream_of(columns.expressions)
        with naming_columns(columns.expressions, columns.expressions.values()):
            made = rows.key_by(*key_names).top(1, by=[f"{quoted(name)} asc" for name in by]) if by else rows.distinct()
        shown = columns.shown(catalyst, output)
        part = Part(catalyst, (), stream=made, attributes=tuple(columns.attributes.values()))
        return part.projected(shown, output)


def _as_types(catalyst: Catalyst, columns: Sequence[Expression], wanted: Sequence[Expression]) -> list[Expression]:
    """Columns with the types of others, text by its bytes; a constant if there are none."""
    typed = (catalyst.cast(one, each.dataType()) for one, each in zip(columns, wanted, strict=True))
    cast = list(map(catalyst.without_collation, typed))
    return cast or [catalyst.constant(1)]


_MAKERS: Mapping[str, Callable[[Compiler, Node], Part]] = {
    **dict.fromkeys(_UNCHANGED, Compiler.below),
    "Aggregate": aggregated,
    "Deduplicate": lambda compiler, node: compiler.once(node, compiler.deduplicated),
    "DeduplicateWithinWatermark": lambda compiler, node: compiler.once(node, compiler.deduplicated),
    "Expand": Compiler.expanded,
    "Filter": Compiler.filtered,
    "Generate": Compiler.row_by_row,
    "GlobalLimit": Compiler.limited,
    "Join": lambda compiler, node: compiler.once(node, lambda join: join_parts(compiler, join)),
    "Project": Compiler.projected,
    "Union": Compiler.united,
    "Window": lambda compiler, node: compiler.once(node, lambda window: over_partition(compiler, window)),
}
"""The nodes that can be maintained."""
