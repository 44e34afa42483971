"""A part of a query on its way to steps: what Spark does with the rows of a stream, as plans."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from pyspark.sql import DataFrame

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import Columns, Expression, Java, Node, Projection
from dagster_ckpt.runtime.catalyst.work_text import WorkText, column_name
from dagster_ckpt.runtime.declared.row_work import RowWork, key_columns
from dagster_ckpt.runtime.declared.step_operator import check_initial
from dagster_ckpt.runtime.declared.stream import Stream, changes_of_step, rows_of, with_query_work
from dagster_ckpt.runtime.plans.keys import Dependency, key_among

Work = Callable[[Java, Columns], Java]
"""A plan on top of another. Columns that say what became of a row run along."""


@dataclass(frozen=True)
class Part:
    """The rows of a node of the query.

    They are those of `stream`, whose columns stand for `attributes`, with `work` on top; `output` are the node's own
    attributes. Without a stream the part is all Spark's, and is `plan`. `dependencies` are between columns of `stream`.
    """

    catalyst: Catalyst
    output: Sequence[Java]
    plan: Java | None = None
    stream: Stream | None = None
    attributes: Sequence[Java] = ()
    work: Work = lambda plan, _: plan
    dependencies: tuple[Dependency, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether its rows can be taken back."""
        return self.stream is not None and changes(self.stream)

    def then(self, work: Work, output: Sequence[Java]) -> "Part":
        """The part with more work of Spark's."""
        if self.plan is not None:
            return replace(self, plan=work(self.plan, self.catalyst.no_columns), output=output)
        before = self.work
        return replace(self, work=lambda plan, beside: work(before(plan, beside), beside), output=output)

    def project(self, columns: Sequence[Java], output: Sequence[Java]) -> "Part":
        """The part with these columns."""
        return self.then(self.catalyst.build.projection(columns), output)

    def with_names(self, expressions: Sequence[Java]) -> "NamedColumns":
        """These expressions over the rows, each with a name that says what it computes of what the part reads.

        Expressions of one meaning have one name.
        """
        made = self._work_text(expressions)
        names = tuple(map(column_name, made.columns))
        columns = dict(reversed(list(zip(names, expressions, strict=True))))
        return NamedColumns(self, names, columns, made.rows)

    def columns(self, expressions: Sequence[Java], names: Sequence[str]) -> Stream:
        """A stream of these expressions, under the user's names for them."""
        return self.stream_by(expressions, names, self._work_text(expressions).with_columns(names))

    def _work_text(self, expressions: Sequence[Java]) -> WorkText:
        catalyst, plan = self.catalyst, self.plan
        if plan is None:
            plan, _ = self._over(catalyst.plan_of(rows_of(self._stream).frame))
        named = catalyst.build.naming(expressions, [f"x{place}" for place in range(len(expressions))])
        return WorkText.of(catalyst, named(plan, catalyst.no_columns))

    @property
    def _stream(self) -> Stream:
        assert self.stream is not None, "without a stream it is a plan"
        return self.stream

    @cached_property
    def _columns(self) -> tuple[Columns, bool]:
        """The attributes as a sequence, and whether one is a text with a collation."""
        columns = self.catalyst.sequence(self.attributes)
        return columns, self.catalyst.convert.are_collated(columns)

    def _over(self, rows: Java) -> tuple[Java, Columns]:
        """The part's work on rows of the stream, and the columns that pass through unchanged."""
        columns, collated = self._columns
        beside = self.catalyst.build.columns_by_name(rows, CHANGE_TYPE)
        return self.work(self.catalyst.build.stand_on(rows, beside, columns, collated=collated), beside), beside

    def stream_by(self, expressions: Sequence[Java], names: Sequence[str], text: str) -> Stream:
        """The stream of these expressions by these names. `text` is in the fingerprint of the step that reads it."""
        catalyst, named = self.catalyst, self.catalyst.build.naming(expressions, names)
        if self.plan is not None:
            return Stream(catalyst.frame(named(self.plan, catalyst.no_columns)), work=text)

        def work(rows: DataFrame) -> DataFrame:
            return catalyst.frame(named(*self._over(catalyst.plan_of(rows))))

        stream = rows_of(self._stream)
        if stream.initial is not None:
            check_initial("", stream.frame, stream.initial)  # `work` knows columns by their places, and casts them
        return with_query_work(stream, work, text)

    def table(self, names: Sequence[str]) -> Stream:
        """The stream whose table has these rows, with these names for the part's own columns.

        If that is the output of the last step under other names, no step is added.
        """
        # A table's text has no collation: its rows are known by their bytes.
        made = self.columns([self.catalyst.convert.without_collation(each) for each in self.output], names)
        if self.stream is None or self.stream.step is None:
            return made
        origins = self._origins(made, names)
        if origins is None:
            return self._with_key(made)
        if [(name, name) for name in changes_of_step(self.stream).frame.columns if name != CHANGE_TYPE] == origins:
            return self.stream
        return replace(self.stream, columns=tuple(origins))

    def _with_key(self, made: Stream) -> Stream:
        """The stream after the last step with the columns that identify its rows, where some do."""
        before = rows_of(self.stream).upstream if self.stream is not None else None
        if made.upstream is None or made.earlier is None or before is None or before.row_key is None:
            return made
        catalyst = self.catalyst
        plan = catalyst.rules.collapse_structs(catalyst.plan_of(made.frame))
        there = RowWork(made.earlier.changes, catalyst.frame(plan)).names_after
        if there is None:
            return made
        possible = key_columns(made.frame)
        ordered = sorted((possible.index(name), own, name) for own, name in there.items() if name in possible)
        key = key_among({own: name for _, own, name in ordered}, before.row_key, self.dependencies)
        return made if key is None else replace(made, upstream=replace(made.upstream, row_key=key))

    def _origins(self, made: Stream, names: Sequence[str]) -> list[tuple[str, str]] | None:
        """For each name the column of the last step that it is, if the stream has just these, each once; else None."""
        assert made.earlier is not None, "it is after the step"
        catalyst = self.catalyst
        plan = catalyst.read(catalyst.rules.collapse(catalyst.plan_of(made.frame)))
        before = {number: name for name, number in catalyst.column_names(catalyst.plan_of(made.earlier.changes))}
        if not isinstance(plan, Projection) or plan.child.children:
            return None
        origins = []
        for name, each in zip(names, plan.columns, strict=False):
            own = each.value
            while own.kind == "Cast" and self._is_of_collations(own):
                [own] = own.children
            if own.kind != "AttributeReference" or own.number is None:
                return None
            origins.append((name, before[own.number]))
        whole = sorted(name for name in before.values() if name != CHANGE_TYPE)
        return origins if sorted(own for _, own in origins) == whole else None

    def _is_of_collations(self, cast: Expression) -> bool:
        """Whether a cast between types of text changes no more than the collation."""
        return self.catalyst.convert.differ_in_collations(cast.type, cast.children[0].type)


class NodeCompiler(Protocol):
    """Makes parts of the nodes of one plan."""

    catalyst: Catalyst

    def part(self, node: Node) -> Part:
        """The rows of a node. Raises `InvalidPipelineError` for one that cannot be maintained."""
        ...

    def part_that_streams(self, node: Node) -> Part:
        """The rows of a node, or constants. Raises `InvalidPipelineError` for a table that does not stream."""
        ...

    def once(self, node: Java, make: Callable[[], Part]) -> Part:
        """The part that `make` makes of a node, or that of an equal node, if there was one."""
        ...


@dataclass(frozen=True)
class NamedColumns:
    """Columns of a part by what they compute: `names` has that of each expression, `columns` each name once.

    `rows` is the text of which rows there are.
    """

    part: Part
    names: tuple[str, ...]
    columns: Mapping[str, Java]
    rows: str

    def stream(self) -> Stream:
        """Their stream, the columns by their names."""
        return self.stream_of({name: self.columns[name] for name in sorted(self.columns)})

    def stream_of(self, columns: Mapping[str, Java]) -> Stream:
        """The stream of the same rows with these columns, which have other names for some."""
        return self.part.stream_by(list(columns.values()), list(columns), self.rows)


def changes(stream: Stream) -> bool:
    """Whether rows of the stream, which ends in a step or is an upstream's table, can be taken back."""
    return rows_of(stream).updating


def types_of(stream: Stream, count: int) -> list[str]:
    """The types, as Spark's JSON, of the last columns of a step's output."""
    if not count:
        return []
    fields = [field for field in changes_of_step(stream).frame.schema.fields if field.name != CHANGE_TYPE]
    return [field.dataType.json() for field in fields][-count:]
