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
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.shared.checks.pipeline_checks import check_columns
from dagster_ckpt.operators.shared.ranked.order_by import quote
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.moments import moment_in
from dagster_ckpt.runtime.catalyst.plan_text import whole_texts
from dagster_ckpt.runtime.catalyst.reader import read
from dagster_ckpt.runtime.catalyst.refusals import naming_columns, naming_line, query_errors, refusal
from dagster_ckpt.runtime.catalyst.values import (
    Aggregate,
    Columns,
    Deduplication,
    Expand,
    Filter,
    Generate,
    GlobalLimit,
    Java,
    Join,
    Node,
    Projection,
    Union,
    Window,
)
from dagster_ckpt.runtime.catalyst.work_text import column_name, in_all
from dagster_ckpt.runtime.declared.stream import Stream, global_aggregate
from dagster_ckpt.runtime.plans.groups import aggregate_part
from dagster_ckpt.runtime.plans.joins import join_parts
from dagster_ckpt.runtime.plans.keys import Key, RowColumns, plain_key
from dagster_ckpt.runtime.plans.partitions import limit_as_top, over_partition, top_of
from dagster_ckpt.runtime.plans.parts import Part, Work, types_of
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of, stream_of_number
from dagster_ckpt.runtime.plans.subqueries import without_scalar_subqueries
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
    return _compile(frame.sparkSession, lambda catalyst: catalyst.plan_of(frame))


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

    def plan_by(catalyst: Catalyst) -> Java:
        with query_errors(catalyst.sql.views):
            return catalyst.sql.plan_of(text)

    return _compile(session, plan_by)


def _compile(session: SparkSession, plan_by: Callable[[Catalyst], Java]) -> Stream:
    with as_active(session), whole_texts(session):  # whose settings Spark's parser, planner and texts then have
        catalyst = Catalyst(session)
        return _stream_of_plan(catalyst, plan_by(catalyst))


def _stream_of_plan(catalyst: Catalyst, plan: Java) -> Stream:
    names = [name for name, _ in catalyst.column_names(plan)]
    if not names:
        raise InvalidPipelineError(
            "the query selects no column, and a table without columns holds no rows: select at least one"
        )
    with naming_line(catalyst, plan):
        check_columns(pa.schema([(name, pa.null()) for name in names]))
    _refuse_moment(catalyst, plan)
    watermarks = catalyst.watermarks_in(plan)
    rows = catalyst.read(catalyst.rules.prune(without_scalar_subqueries(catalyst, catalyst.rules.rewrite(plan))))
    if not rows.streams:
        raise InvalidPipelineError(
            "the query reads no stream, so its table would never change: read one, or make it an ordinary asset"
        )
    return replace(PlanCompiler(catalyst, rows).part(rows).table(names), ignored_watermarks=watermarks)


def _refuse_moment(catalyst: Catalyst, plan: Java) -> None:
    # Asked of the plan as it was written: the optimizer makes a constant of the time of day.
    for node in read(catalyst.session, plan, replaced=True).with_subqueries():
        for each in node.parts():
            found = moment_in(each)
            if found is not None:
                with naming_line(catalyst, each):
                    raise InvalidPipelineError(
                        "each row would have to change as time goes by: compare columns, or have the time of day in a "
                        f"column of the source. found={found}"
                    )


class PlanCompiler:
    """Makes parts of the nodes of one plan."""

    def __init__(self, catalyst: Catalyst, plan: Node) -> None:
        self.catalyst, self._plan = catalyst, plan
        self._steps: list[tuple[Java, Part]] = []

    def part(self, node: Node) -> Part:
        """The rows of a node. Raises `InvalidPipelineError` for one that cannot be maintained."""
        if not node.streams or not node.children:
            return self._leaf(node)
        with naming_line(self.catalyst, node):
            return self._part(node)

    def _part(self, node: Node) -> Part:  # noqa: C901, PLR0911  (a case for each kind of node)
        match node:
            case Projection(child=below):
                return self._above(node, below, self.catalyst.build.projection([each.java for each in node.columns]))
            case Filter():
                return top_of(self, node) or self._filter(node)
            case Aggregate():
                return aggregate_part(self, node)
            case Join():
                return self.once(node.java, lambda: join_parts(self, node))
            case Window():
                return self.once(node.java, lambda: over_partition(self, node))
            case Union():
                return self._unite(node)
            case Expand():
                return self._expand(node)
            case Generate(child=below):
                return self._above(node, below, lambda plan, _: self.catalyst.build.on(node.java, plan))
            case Deduplication():
                return self.once(node.java, lambda: self._deduplicate(node))
            case GlobalLimit():
                return self.part(self.catalyst.read(limit_as_top(self.catalyst, node)))
            case Node(kind=kind) if kind in _UNCHANGED:
                return self.part(node.child)
        raise refusal(node.kind, self.catalyst.name_of(node))

    def _leaf(self, node: Node) -> Part:
        """Rows that Spark reads, or those of a stream that the node stands for."""
        output = self.catalyst.output_of(node)
        number = self.catalyst.number_of(node)
        stream = None if number is None else stream_of_number(self.catalyst.session, number)
        if stream is None:
            return Part(self.catalyst, output, plan=node.java)
        return Part(self.catalyst, output, stream=stream, attributes=output)

    def part_that_streams(self, node: Node) -> Part:
        """The rows of a node, or constants. Raises `InvalidPipelineError` for a table that does not stream."""
        return self.part(node) if node.streams else self._constants(node)

    def _constants(self, plan: Node) -> Part:
        """Rows that a query has in its text, such as VALUES: they come with the first epoch, and stay."""
        catalyst = self.catalyst
        if not catalyst.is_constant(plan):
            raise InvalidPipelineError(
                "rows of a table that does not stream would be added again in every epoch: read the table as a "
                f"stream. found={catalyst.name_of(plan)}, columns={', '.join(name for name, _ in plan.output)}"
            )
        output = catalyst.output_of(plan)
        inline, own = catalyst.make.inline(catalyst.constants_of(plan)), catalyst.build.projection(output)
        return self._one_row.then(
            lambda below, beside: own(catalyst.build.generate(inline, output, below), beside), output
        )

    @cached_property
    def _one_row(self) -> Part:
        """One row that is there from the first epoch on: that of an aggregate, as in SQL, here of no rows of a leaf."""
        catalyst = self.catalyst
        leaf = next(each for each in self._plan.nodes() if each.streams and not each.children)
        nothing = self.part(catalyst.read(catalyst.build.filter(catalyst.make.constant(False), leaf.java)))
        made = global_aggregate(nothing.columns([catalyst.make.no_boolean()], ["v0"]), {"a0": agg.count("v0")})
        [type_] = types_of(made, 1)
        return Part(catalyst, (), stream=made, attributes=(catalyst.make.column_of_type("a0", type_),))

    def once(self, node: Java, make: Callable[[], Part]) -> Part:
        """The part that `make` makes of a node, or that of an equal node, if there was one."""
        same = next((part for other, part in self._steps if self.catalyst.give_same_rows(node, other)), None)
        if same is None:
            part = make()
            self._steps.append((node, part))
            return part
        own = self.catalyst.columns(node)
        return same.project(self.catalyst.make.standing_for(same.output, own), own)

    def _above(self, node: Node, below: Node, work: Work) -> Part:
        """The rows of the node below with Spark's work on each."""
        return self.part(below).then(work, self.catalyst.output_of(node))

    def _filter(self, node: Filter) -> Part:
        condition = node.condition.java
        return self._above(node, node.child, lambda plan, _: self.catalyst.build.filter(condition, plan))

    def _expand(self, node: Expand) -> Part:
        """Several rows of each."""
        catalyst, output = self.catalyst, self.catalyst.output_of(node)
        projections = [[each.java for each in columns] for columns in node.projections]

        def work(plan: Java, beside: Columns) -> Java:
            along = catalyst.each_of(beside)
            return catalyst.build.expand([[*each, *along] for each in projections], [*output, *along], plan)

        return self._above(node, node.child, work)

    def _unite(self, node: Union) -> Part:
        """All rows of several nodes."""
        catalyst, output = self.catalyst, self.catalyst.output_of(node)
        parts = [self.part_that_streams(child) for child in node.children]
        plans = [part.plan for part in parts if part.plan is not None]
        if len(plans) == len(parts):
            return Part(catalyst, output, plan=catalyst.build.on(node.java, *plans))
        # Rows of which the query reads no column have one by which they are rows.
        stand = list(output) or [catalyst.make.new_column("any", catalyst.make.constant(1))]
        read = [part.with_names(_as_types(catalyst, part.output, output)) for part in parts]
        names = [column_name(in_all(texts)) for texts in zip(*(each.names for each in read), strict=True)]
        places = {name: names.index(name) for name in sorted(names)}
        whole, *others = (
            each.stream_of({name: each.columns[each.names[place]] for name, place in places.items()}) for each in read
        )
        with naming_columns(catalyst, names, stand):
            for other in others:
                whole = whole.union(other)
        attributes = {name: stand[place] for name, place in places.items()}
        own = [attributes[name] for name in names]
        shown = [catalyst.make.show_as(*pair) for pair in zip(own, output, strict=False)]
        part = Part(catalyst, (), stream=whole, attributes=tuple(attributes.values()))
        return part.project(shown, output)

    def _deduplicate(self, node: Deduplication) -> Part:
        """One row of each key. Which one SQL leaves open: the least by its columns."""
        catalyst, output, wanted = self.catalyst, self.catalyst.output_of(node), {each.number for each in node.keys}
        collated = [each for each in catalyst.read_expressions(*output) if each.type.collated]
        of_texts = {each.number for each in collated}
        if collated and wanted.issuperset(output.numbers):
            return self.part(catalyst.read(catalyst.build.distinct_rows(node.child.java)))
        keys = [part for each in collated if each.number in wanted for part in Key(catalyst, each).columns()]
        plain = [part for each in collated for part in plain_key(catalyst, each).columns()]
        read = self.part(node.child).with_names([*keys, *plain, *output])
        leading = dict(zip(read.names, [*keys, *plain], strict=False))
        columns = RowColumns.of(catalyst, leading, output, read.names[len(keys) + len(plain) :])
        own = {number: columns.stand[number] for number in output.numbers if number not in of_texts}
        key_names = sorted({*read.names[: len(keys)], *(name for number, name in own.items() if number in wanted)})
        by = [name for name in (*leading, *sorted(set(own.values()))) if name not in key_names]
        rows = read.stream_of(columns.expressions)
        with naming_columns(catalyst, columns.expressions, columns.expressions.values()):
            made = rows.key_by(*key_names).top(1, by=[f"{quote(name)} asc" for name in by]) if by else rows.distinct()
        shown = columns.show(catalyst, output)
        part = Part(catalyst, (), stream=made, attributes=tuple(columns.attributes.values()))
        return part.project(shown, output)


def _as_types(catalyst: Catalyst, columns: Sequence[Java], wanted: Sequence[Java]) -> list[Java]:
    """Columns with the types of others, text by its bytes; a constant if there are none."""
    typed = (catalyst.convert.cast_like(*pair) for pair in zip(columns, wanted, strict=True))
    cast = list(map(catalyst.convert.without_collation, typed))
    return cast or [catalyst.make.constant(1)]
