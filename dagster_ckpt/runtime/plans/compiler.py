"""From a query of Spark's to a `Stream`: the optimised plan is cut at its nodes that keep state.

Below such a node the work stays Spark's, the node becomes a step, above it the work is Spark's again. Columns between
steps have names by position, so that neither aliases nor the order of columns are in a step's fingerprint. A node that
equals another one is one step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.runtime.declared.query_plan import column_number, each_of, nodes
from dagster_ckpt.runtime.declared.stream import Stream, global_aggregate
from dagster_ckpt.runtime.plans.aggregates import call_of
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression, Node
from dagster_ckpt.runtime.plans.joins import join_parts
from dagster_ckpt.runtime.plans.keys import Key
from dagster_ckpt.runtime.plans.partitions import limit_as_top, over_partition, top_of
from dagster_ckpt.runtime.plans.parts import Part, Work, types_of
from dagster_ckpt.runtime.plans.refusals import refused
from dagster_ckpt.runtime.plans.sessions import SessionKey, of_sessions
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of, stream_of_number
from dagster_ckpt.runtime.plans.work_text import in_canonical_order

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
_OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")


NO_TABLES: Mapping[str, Stream | DataFrame] = {}


def stream_of(frame: DataFrame) -> Stream:
    """The stream whose table is what the DataFrame's query gives in batch, of all input so far.

    Raises `InvalidPipelineError` for a query that cannot be kept up to date.
    """
    catalyst = Catalyst(frame.sparkSession)
    return _compiled(catalyst, catalyst.analysed(frame))


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
    catalyst = Catalyst(session)
    return _compiled(catalyst, catalyst.of_sql(text))


def _compiled(catalyst: Catalyst, plan: Node) -> Stream:
    _refuse_moment(catalyst, plan)
    plan = catalyst.rewritten(plan)
    part = Compiler(catalyst, plan).part(plan)
    output = list(each_of(plan.output()))
    return part.table([str(each.name()) for each in output])


def _refuse_moment(catalyst: Catalyst, plan: Node) -> None:
    # Asked of the plan as it was written: the optimizer makes a constant of the time of day.
    for node in catalyst.with_subqueries(plan):
        for each in catalyst.expressions_of(node):
            if catalyst.kind(each) in _OF_THE_MOMENT:
                raise InvalidPipelineError(
                    "each row would have to change as time goes by: compare columns, or have the time of day in a "
                    f"column of the source. found={each.sql()}"
                )


class Compiler:
    """Makes parts of the nodes of one plan."""

    def __init__(self, catalyst: Catalyst, plan: Node) -> None:
        self.catalyst = catalyst
        self._leaves = [each for each in nodes(plan) if each.isStreaming() and not list(each_of(each.children()))]
        self._steps: list[tuple[Node, Part]] = []

    def part(self, node: Node) -> Part:
        """The rows of a node. Raises `InvalidPipelineError` for one that cannot be maintained."""
        if not node.isStreaming() or not list(each_of(node.children())):
            return self._leaf(node)
        node = self._without_scalar_subqueries(node)
        make = _MAKERS.get(self.catalyst.kind(node))
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
        """The rows of a node, which may be constants: these come in the first epoch, and stay.

        Raises `InvalidPipelineError` for another table that does not stream.
        """
        catalyst = self.catalyst
        if node.isStreaming():
            return self.part(node)
        output = tuple(each_of(node.output()))
        if not catalyst.is_constant(node):
            columns = ", ".join(str(each.name()) for each in output)
            raise InvalidPipelineError(
                "rows of a table that does not stream would be added once more in each epoch: read the table as a "
                f"stream. found={node.nodeName()}, columns={columns}"
            )
        inline = catalyst.expressions.Inline(catalyst.constants_of(node))
        return self._one_row.then(
            lambda plan, beside: catalyst.project([*output, *beside], catalyst.generated(inline, output, plan)), output
        )

    @cached_property
    def _one_row(self) -> Part:
        """One row that is there from the first epoch on: that of an aggregate, as in SQL, here of no rows."""
        catalyst = self.catalyst
        nothing = self.part(catalyst.filtered(catalyst.constant(False), self._leaves[0]))
        column = catalyst.null_of(catalyst.type_of("boolean"))
        made = global_aggregate(nothing.columns([column], ["v0"]), {"a0": agg.count("v0")})
        [type_] = types_of(made, 1)
        return Part(catalyst, (), stream=made, attributes=(catalyst.attribute("a0", type_),))

    def once(self, node: Node, make: Callable[[Node], Part]) -> Part:
        """The part that `make` makes of a node, or that of an equal node, if there was one."""
        catalyst, own = self.catalyst, tuple(each_of(node.output()))
        same = next((part for other, part in self._steps if node.sameResult(other)), None)
        if same is None:
            part = make(node)
            self._steps.append((node, part))
            return part
        pairs = zip(same.output, own, strict=True)
        named = [catalyst.alias(one, str(each.name()), each) for one, each in pairs]
        return same.then(lambda plan, beside: catalyst.project([*named, *beside], plan), own)

    def below(self, node: Node) -> Part:
        """The part of a node that changes no row."""
        return self.part(node.child())

    def filtered(self, node: Node) -> Part:
        """A filter, which may be one over a rank."""
        found = top_of(self, node)
        return self.row_by_row(node) if found is None else found

    def row_by_row(self, node: Node) -> Part:
        """Spark's work on each row."""
        return self._above(node, lambda plan, _: self.catalyst.on(node, plan))

    def projected(self, node: Node) -> Part:
        """Columns computed of a row."""
        expressions = list(each_of(node.projectList()))
        return self._above(node, lambda plan, beside: self.catalyst.project([*expressions, *beside], plan))

    def expanded(self, node: Node) -> Part:
        """Several rows of each."""
        catalyst, output = self.catalyst, list(each_of(node.output()))
        projections = [list(each_of(each)) for each in each_of(node.projections())]

        def work(plan: Node, beside: Sequence[Expression]) -> Node:
            return catalyst.expanded([[*each, *beside] for each in projections], [*output, *beside], plan)

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
        names = [f"c{number}" for number in range(len(output))]
        typed = [
            part.columns(
                [catalyst.cast(one, own.dataType()) for one, own in zip(part.output, output, strict=True)], names
            )
            for part in parts
        ]
        whole = typed[0]
        for other in typed[1:]:
            whole = whole.union(other)
        return Part(catalyst, tuple(output), stream=whole, attributes=tuple(output))

    def aggregated(self, node: Node) -> Part:
        """Aggregates of groups, and what is computed of them."""
        catalyst = self.catalyst
        grouping, calls, results, below = catalyst.aggregate_of(node)
        grouping = in_canonical_order(grouping, below)
        calls = in_canonical_order(calls, below)
        groups = catalyst.groups(grouping, calls, below)
        part = self.once(groups, lambda _: self._groups(groups, grouping, calls, below))
        wanted = [*grouping, *(call.resultAttribute() for call in calls)]
        pairs = zip(part.output, wanted, strict=True)
        named = [catalyst.alias(one, str(each.name()), each) for one, each in pairs]
        part = part.then(lambda plan, beside: catalyst.project([*named, *beside], plan), wanted)
        output = tuple(each_of(node.output()))
        return part.then(lambda plan, beside: catalyst.project([*results, *beside], plan), output)

    def _groups(self, node: Node, grouping: Sequence[Expression], calls: Sequence[Expression], below: Node) -> Part:
        """A row for each group: its key, then the results of the calls; the distinct keys if there are none."""
        catalyst = self.catalyst
        # A session's columns come last.
        ordered = sorted(grouping, key=SessionKey.is_one)
        keys = [(SessionKey if SessionKey.is_one(each) else Key)(catalyst, each) for each in ordered]
        of_keys = [key.columns() for key in keys]
        flat = [each for own in of_keys for each in own]
        key_names = [f"k{number}" for number in range(len(flat))]
        known = _Read(dict(zip(key_names, flat, strict=True)))
        made_of = [call_of(catalyst, call) for call in calls]
        of_calls = [one.aggregations([known.name_of(each) for each in one.arguments]) for one in made_of]
        aggregations = {f"a{number}": one for number, one in enumerate(chain.from_iterable(of_calls))}
        rows = self.part(below).columns(list(known.columns.values()), list(known.columns))
        if keys and isinstance(keys[-1], SessionKey):
            made = of_sessions(rows, key_names, aggregations)
        elif not calls:
            made = rows.distinct()
        elif keys:
            made = rows.key_by(*key_names).aggregate(**aggregations)
        else:
            made = global_aggregate(rows, aggregations)
        output = tuple(each_of(node.output()))
        stand = [catalyst.alias(each, name).toAttribute() for each, name in zip(flat, key_names, strict=True)]
        raw = [catalyst.attribute("a", type_) for type_ in types_of(made, len(aggregations))]
        results = iter(raw)
        pairs = zip(made_of, of_calls, strict=True)
        made_values = [one.value([next(results) for _ in own]) for one, own in pairs]
        columns = iter(stand)
        of_ordered = [key.value([next(columns) for _ in own]) for key, own in zip(keys, of_keys, strict=True)]
        values = [of_ordered[ordered.index(each)] for each in grouping]
        cast = [catalyst.cast(one, each.dataType()) for one, each in zip([*values, *made_values], output, strict=True)]
        named = [catalyst.alias(one, str(each.name()), each) for one, each in zip(cast, output, strict=True)]
        part = Part(catalyst, (), stream=made, attributes=(*stand, *raw))
        return part.then(lambda plan, beside: catalyst.project([*named, *beside], plan), output)

    def deduplicated(self, node: Node) -> Part:
        """One row of each key. Which one SQL leaves open: the least by its columns."""
        catalyst, [child] = self.catalyst, each_of(node.children())
        output = list(each_of(node.output()))
        names = [f"c{number}" for number in range(len(output))]
        rows = self.part(child).columns(output, names)
        wanted = {column_number(each) for each in each_of(node.keys())}
        keys = [name for name, each in zip(names, output, strict=True) if column_number(each) in wanted]
        if len(keys) == len(names):
            made = rows.distinct()
        else:
            by = [f"{name} asc" for name in names if name not in keys]
            made = rows.key_by(*keys).top(1, by=by)
        return Part(catalyst, tuple(output), stream=made, attributes=tuple(output))

    def _without_scalar_subqueries(self, node: Node) -> Node:
        """A subquery that gives one value becomes a join with its one row."""
        catalyst = self.catalyst
        if catalyst.kind(node) not in ("Filter", "Project"):
            return node
        [below] = each_of(node.children())
        found: list[Expression] = []

        def joined(expression: Expression) -> Expression | None:
            nonlocal below
            if catalyst.kind(expression) != "ScalarSubquery" or not expression.plan().isStreaming():
                return None
            [first, *_] = each_of(expression.plan().output())
            value = catalyst.alias(first, "value")
            below = catalyst.left_join(below, catalyst.project([value], expression.plan()))
            found.append(value)
            return value.toAttribute()

        new = [catalyst.replaced(each, joined) for each in each_of(node.expressions())]
        if not found:
            return node
        if catalyst.kind(node) == "Filter":
            return catalyst.project(list(each_of(node.output())), catalyst.filtered(new[0], below))
        return catalyst.project(new, below)


@dataclass
class _Read:
    """What an aggregate reads, by name: keys, then `v0`... Arguments that are equal are one, so they have one state."""

    columns: dict[str, Expression]
    values: int = 0

    def name_of(self, argument: Expression) -> str:
        """The name of an argument, which may be a key as it is."""
        same = (name for name, each in self.columns.items() if each.semanticEquals(argument))
        found = next(same, None)
        if found is None:
            found = f"v{self.values}"
            self.values += 1
            self.columns[found] = argument
        return found


_MAKERS: Mapping[str, Callable[[Compiler, Node], Part]] = {
    **dict.fromkeys(_UNCHANGED, Compiler.below),
    "Aggregate": Compiler.aggregated,
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
