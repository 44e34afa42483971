"""What Spark does with the rows of a table one by one: its text, and whether it depends on a row's values alone."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks.pipeline_checks import is_key
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.plan_text import with_variables_by_place
from dagster_ckpt.runtime.catalyst.query_plan import (
    columns_of,
    each_of,
    kind_of,
    plan_of,
    texts_of,
    with_functions_replaced,
)
from dagster_ckpt.runtime.declared.moments import moment_in
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema, to_spark_schema
from dagster_ckpt.runtime.spark.jvm import java_class, java_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

_OF_ANOTHER_TABLE = ("ScalarSubquery", "InSubquery", "Exists")
"""Expressions that read other rows, which may change."""
_ROW_BY_ROW = {
    "Expand": "EXPAND",
    "Filter": "WHERE",
    "Generate": "GENERATE",
    "Project": "SELECT",
    "SubqueryAlias": None,
}
"""Plan nodes that make of each row what follows from it, and what a text calls them; None: it changes nothing."""
_AT_MOST_ONE = ("Filter", "Project", "SubqueryAlias")
"""Those of them that make no more than one row of each."""
_MOVES = {"RebalancePartitions", "Repartition", "RepartitionByExpression", "Union"}
"""Plan nodes that bring rows to other partitions."""
_PLAIN = ("Alias", "AttributeReference")
_ZONE_AWARE = "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"
_zone_aware: dict[str, bool] = {}
"""Whether the expressions of a class compute with a time zone: one call for each class."""
_ZONE = "spark.sql.session.timeZone"
_UTC = "Z"
"""Java's normalized name of the zone without offset."""


def selected(rows: "DataFrame", columns: "Sequence[str | Column]") -> "DataFrame":
    """The columns, texts in Spark's SQL; and the kind of each row, where rows have one."""
    kind = [CHANGE_TYPE] if CHANGE_TYPE in rows.columns else []
    texts = [each for each in columns if isinstance(each, str)]
    if len(texts) == len(columns):
        return rows.selectExpr(*texts, *kind)
    return rows.select(*map(_column, (*columns, *kind)))


def with_columns(rows: "DataFrame", columns: "Mapping[str, str | Column]") -> "DataFrame":
    """The rows with these columns, texts in Spark's SQL."""
    return rows.withColumns({name: _column(each) for name, each in columns.items()})


def stand_in(session: "SparkSession", schema: pa.Schema) -> "DataFrame":
    """No row, with these columns."""
    from pyspark.sql import DataFrame

    # In Python it would start a job of no tasks.
    own, nothing = java_session(session), java_class(session, "java.util.ArrayList")()
    return DataFrame(own.createDataFrame(nothing, own.parseDataType(to_spark_schema(schema).json())), session)


class RowWork:
    """What was done with rows one by one: the plan's nodes that came on top of theirs, with their expressions.

    Each is looked at once, since to ask Spark's planner takes time.
    """

    def __init__(self, rows: "DataFrame", worked: "DataFrame") -> None:
        self._rows, self._worked = rows, worked

    @cached_property
    def _added(self) -> list["_Node"]:
        """The last first."""
        return [_Node(kind_of(node), node) for node in _added(self._rows, self._worked)]

    @cached_property
    def text(self) -> str:
        """The work, from the first on: `SELECT a, (b + 1) AS c WHERE (a > 2)`."""
        steps = ((_ROW_BY_ROW.get(node.kind, node.kind), node) for node in reversed(self._added))
        session = self._worked.sparkSession
        told = [(word, ", ".join(each.text(session) for each in node.expressions)) for word, node in steps if word]
        return " ".join(f"{word} {expressions}" for word, expressions in told)

    def with_zone(self, text: str) -> str:
        """The text of the work on the rows as the stream's fingerprint has it.

        Where the result depends on the time zone, the text includes the session's, unless that is UTC: a row's
        insertion and its deletion must be evaluated in the same zone.
        """
        session = self._worked.sparkSession
        context: Any = session.sparkContext
        if not any(each.depends_on_zone(context._gateway) for node in self._added for each in node.expressions):  # noqa: SLF001
            return text
        times = java_class(session, "org.apache.spark.sql.catalyst.util.DateTimeUtils")
        zone = times.getZoneId(session.conf.get(_ZONE))
        name = str(zone.normalized().getId())
        return text if name == _UTC else f"{text} [in time zone {name}]"

    def check_judges_by_values(self, text: str) -> None:
        """Raise `InvalidPipelineError` for work that may make one thing of a row when it comes, another when it goes.

        `text` describes the work in the error.
        """
        if not self.keeps([CHANGE_TYPE]):
            raise InvalidPipelineError(
                "this column says whether a row comes or goes, which the next step must know: keep it as it is. "
                f"column={CHANGE_TYPE}, work={text}"
            )
        for node in self._added:
            if node.kind not in _ROW_BY_ROW:
                raise InvalidPipelineError(
                    "the table updates and deletes rows, and this reads more than the row itself, which may be "
                    "different when the row goes than when it came: use the row's values only, and join streams by a "
                    f"step. found={node.kind}, work={text}"
                )
            written_out = with_functions_replaced(self._worked.sparkSession, node.node)
            for expression in _Node(node.kind, written_out).expressions:
                _check_expression(expression, text)

    def check_partitions(self) -> None:
        """Raise `InvalidPipelineError` for work that moves the changes of a step: each task works on its own."""
        moved = {node.kind for node in self._added} & _MOVES
        if moved:
            raise InvalidPipelineError(
                "the rows of a step stay in their partitions until the next one brings them to its keys: leave out "
                f"repartition, coalesce and union. found={', '.join(sorted(moved))}"
            )

    @cached_property
    def names_after(self) -> Mapping[str, str] | None:
        """The name that each column of the rows has afterwards, where it is still there, unchanged.

        None where a row may have become several, so that nothing identifies it any more.
        """
        if any(node.kind not in _AT_MOST_ONE for node in self._added):
            return None
        origins = {number: name for name, number in _attributes(self._rows).items()}
        for node in reversed(self._added):
            if node.kind == "Project":
                made = zip(columns_of(node.node.output()), node.expressions, strict=True)
                origins = {
                    number: origins[of]
                    for (_, number), each in made
                    if (of := each.number) is not None and of in origins
                }
        found: dict[str, str] = {}
        for name, number in columns_of(plan_of(self._worked).output()):
            if number in origins:
                found.setdefault(origins[number], name)
        return found

    def key_after(self, key: Sequence[str]) -> tuple[str, ...] | None:
        """The columns that identify a row afterwards, if these did before; None: some are gone."""
        names = self.names_after
        return None if names is None or not set(key) <= names.keys() else tuple(names[column] for column in key)

    def keeps(self, columns: Sequence[str]) -> bool:
        """Whether each of these columns of the rows is still there, unchanged."""
        before, after = self._numbers
        return all(before.get(column) is not None and before.get(column) == after.get(column) for column in columns)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        return _attributes(self._rows), _attributes(self._worked)


@dataclass(frozen=True)
class _Node:
    """A node of a plan."""

    kind: str
    node: Any

    @cached_property
    def expressions(self) -> list["_Expression"]:
        found, below = self.node.expressions(), set(texts_of(self.node.inputSet().toSeq()))
        named = (text.partition(" AS ") for text in texts_of(found))
        return [
            _Expression(found, place, column if column in below else None, renamed=bool(name))
            for place, (column, _, name) in enumerate(named)
        ]


@dataclass(frozen=True)
class _Expression:
    """An expression of a node: the one at `place` of `found`.

    `column` is the text of a column of the node below, where it is no more than that, `renamed` or not: most are, and
    nothing more has to be asked of them.
    """

    found: Any
    place: int
    column: str | None
    renamed: bool

    @property
    def number(self) -> int | None:
        """Spark's number of that column."""
        return None if self.column is None else int(re.sub(r"\D", "", self.column.rpartition("#")[2]))

    @cached_property
    def expression(self) -> Any:
        return self.found.apply(self.place)

    def text(self, session: "SparkSession") -> str:
        """The expression in SQL, the same in every process."""
        if self.column is not None:
            return str(self.expression.sql())
        variables = [part for kind, part in self.parts if kind == "NamedLambdaVariable"]
        return str(with_variables_by_place(session, self.expression, variables).sql())

    @cached_property
    def parts(self) -> list[tuple[str, Any]]:
        """What it is made of, each with its kind; the first is the expression itself."""
        return list(_parts(self.expression))

    @property
    def renames_kind(self) -> bool:
        """Whether it is what says if a row comes or goes, under a name."""
        return self.renamed and self.column is not None and self.column.rpartition("#")[0] == CHANGE_TYPE

    def depends_on_zone(self, gateway: Any) -> bool:
        """Whether it computes with the session's time zone, or may have been written in it."""
        if self.column is not None:
            return False
        for kind, part in self.parts:
            if kind in _PLAIN:
                continue
            if kind == "Literal":  # a time given as text is only an instant here
                depends = str(part.dataType().simpleString()) == "timestamp"
            elif kind == "Cast":  # time-zone-aware whatever it casts
                depends = bool(part.needsTimeZone())
            else:
                depends = kind == "CurrentTimeZone" or _is_zone_aware(gateway, kind, part)
            if depends:
                return True
        return False


def key_columns(rows: "DataFrame") -> tuple[str, ...]:
    """The columns by which rows can be brought together: all whose type a key may have."""
    return tuple(field.name for field in rows.schema.fields if field.name != CHANGE_TYPE and _is_key(field))


def _is_key(field: "StructField") -> bool:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        [arrow] = to_arrow_schema(StructType([field]))
    except (PySparkException, ValueError):  # Arrow has no such type, which the step that reads the rows says
        return False
    return is_key(arrow.type)


def origin_of(rows: "DataFrame", worked: "DataFrame", column: str) -> str | None:
    """Which column of the rows this column of the result is, unchanged; None: it is a new one."""
    number = _attributes(worked).get(column)
    return next((name for name, other in _attributes(rows).items() if other == number), None)


def _column(column: "str | Column") -> "Column":
    from pyspark.sql import functions as F

    return F.expr(column) if isinstance(column, str) else column


def _is_zone_aware(gateway: Any, kind: str, expression: Any) -> bool:
    if kind not in _zone_aware:
        _zone_aware[kind] = bool(is_instance_of(gateway, expression, _ZONE_AWARE))
    return _zone_aware[kind]


def _check_expression(expression: _Expression, text: str) -> None:
    if expression.column is not None and not expression.renames_kind:
        return
    names = {kind for kind, _ in expression.parts}
    columns = [part for kind, part in expression.parts[1:] if kind == "AttributeReference"]
    if any(str(column.name()) == CHANGE_TYPE for column in columns):
        raise InvalidPipelineError(
            f"this column says whether a row comes or goes, which the stream follows by itself: leave it out of the "
            f"condition. column={CHANGE_TYPE}, condition={text}"
        )
    if not names.isdisjoint(_OF_ANOTHER_TABLE):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition asks another table, whose rows may be "
            "others when a row goes than when it came: use the row's values only. "
            f"condition={text}"
        )
    of_the_moment = any(moment_in(kind, part) is not None for kind, part in expression.parts)
    if of_the_moment or not expression.expression.deterministic():
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition may say one thing of a row when it comes "
            "and another when it goes: use the row's values only, not the time of day or chance. "
            f"condition={text}"
        )


def _attributes(rows: "DataFrame") -> dict[str, int]:
    """Spark's number of each column: a column that goes on unchanged keeps it."""
    return dict(columns_of(plan_of(rows).output()))


def _added(rows: "DataFrame", worked: "DataFrame") -> Iterator[Any]:
    """The plan nodes of the result that those of the rows do not have, the last first."""
    base, node = plan_of(rows), plan_of(worked)
    while not node.fastEquals(base):
        yield node
        children = list(each_of(node.children()))
        if len(children) != 1:
            return
        [node] = children


def _parts(expression: Any) -> Iterator[tuple[str, Any]]:
    kind = kind_of(expression)
    yield kind, expression
    if kind == "Alias":  # most are of a column
        yield from _parts(expression.child())
    elif kind != "AttributeReference":
        for child in each_of(expression.children()):
            yield from _parts(child)
