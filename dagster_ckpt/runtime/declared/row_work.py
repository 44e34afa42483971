"""What Spark does with the rows of a table one by one: its text, and whether it depends on a row's values alone."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks.pipeline_checks import is_key
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.moments import moment_in, session_zone
from dagster_ckpt.runtime.catalyst.plan_text import sql_of
from dagster_ckpt.runtime.catalyst.reader import nodes_above
from dagster_ckpt.runtime.catalyst.trees import columns_of_frame, plan_of
from dagster_ckpt.runtime.catalyst.values import Expression, Node
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
_UTC = "Z"
"""Java's normalized name of the zone without offset."""


def select_columns(rows: "DataFrame", columns: "Sequence[str | Column]") -> "DataFrame":
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
    def _added_nodes(self) -> list[Node]:
        """The last first."""
        return nodes_above(self._worked.sparkSession, plan_of(self._worked), plan_of(self._rows))

    @cached_property
    def text(self) -> str:
        """The work, from the first on: `SELECT a, (b + 1) AS c WHERE (a > 2)`."""
        steps = ((_ROW_BY_ROW.get(node.kind, node.kind), node) for node in reversed(self._added_nodes))
        session = self._worked.sparkSession
        told = [(word, ", ".join(sql_of(session, each) for each in node.expressions)) for word, node in steps if word]
        return " ".join(f"{word} {expressions}" for word, expressions in told)

    def with_zone(self, text: str) -> str:
        """The text of the work on the rows as the stream's fingerprint has it.

        Where the result depends on the time zone, the text includes the session's, unless that is UTC: a row's
        insertion and its deletion must be evaluated in the same zone.
        """
        session = self._worked.sparkSession
        if not any(_depends_on_zone(part) for node in self._added_nodes for part in node.parts()):
            return text
        name = session_zone(session)
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
        before, after = plan_of(self._rows), plan_of(self._worked)
        for node in nodes_above(self._worked.sparkSession, after, before, replaced=True):
            if node.kind not in _ROW_BY_ROW:
                raise InvalidPipelineError(
                    "the table updates and deletes rows, and this reads more than the row itself, which may be "
                    "different when the row goes than when it came: use the row's values only, and join streams by a "
                    f"step. found={node.kind}, work={text}"
                )
            for expression in node.expressions:
                _check_expression(expression, text)

    def check_partitions(self) -> None:
        """Raise `InvalidPipelineError` for work that moves the changes of a step: each task works on its own."""
        moved = {node.kind for node in self._added_nodes} & _MOVES
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
        if any(node.kind not in _AT_MOST_ONE for node in self._added_nodes):
            return None
        origins = {number: name for name, number in _attributes(self._rows).items()}
        for node in reversed(self._added_nodes):
            if node.kind == "Project":
                made = zip(node.output, node.expressions, strict=True)
                origins = {
                    number: origins[column.number]
                    for (_, number), each in made
                    if (column := each.column) is not None and column.number in origins
                }
        found: dict[str, str] = {}
        for name, number in columns_of_frame(self._worked):
            if number in origins:
                found.setdefault(origins[number], name)
        return found

    def key_after(self, key: Sequence[str]) -> tuple[str, ...] | None:
        """The key under its names after the work; None if the work drops one of its columns."""
        names = self.names_after
        return None if names is None or not set(key) <= names.keys() else tuple(names[column] for column in key)

    def keeps(self, columns: Sequence[str]) -> bool:
        """Whether each of these columns of the rows is still there, unchanged."""
        before, after = self._numbers
        return all(before.get(column) is not None and before.get(column) == after.get(column) for column in columns)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        return _attributes(self._rows), _attributes(self._worked)


def _depends_on_zone(part: Expression) -> bool:
    """Whether it computes with the session's time zone, or may have been written in it."""
    if part.kind == "Literal":  # a time given as text is only an instant here
        return part.type.name == "timestamp"
    return part.zoned or part.kind == "CurrentTimeZone"


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


def column_origin(rows: "DataFrame", worked: "DataFrame", column: str) -> str | None:
    """Which column of the rows this column of the result is, unchanged; None: it is a new one."""
    number = _attributes(worked).get(column)
    return next((name for name, other in _attributes(rows).items() if other == number), None)


def _column(column: "str | Column") -> "Column":
    from pyspark.sql import functions as F

    return F.expr(column) if isinstance(column, str) else column


def _check_expression(expression: Expression, text: str) -> None:
    column, (_, *parts) = expression.column, list(expression.parts())
    if column is not None and (column is expression or column.name != CHANGE_TYPE):
        return
    if any(part.kind == "AttributeReference" and part.name == CHANGE_TYPE for part in parts):
        raise InvalidPipelineError(
            f"this column says whether a row comes or goes, which the stream follows by itself: leave it out of the "
            f"condition. column={CHANGE_TYPE}, condition={text}"
        )
    if any(part.kind in _OF_ANOTHER_TABLE for part in (expression, *parts)):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition reads another table, which may have "
            f"changed when a row is deleted: use the row's values only. condition={text}"
        )
    if not expression.deterministic or any(moment_in(part) is not None for part in (expression, *parts)):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition is not deterministic over the row's "
            f"values: use these only, not the time of day or chance. condition={text}"
        )


def _attributes(rows: "DataFrame") -> dict[str, int]:
    """Spark's number of each column: a column that goes on unchanged keeps it."""
    return dict(columns_of_frame(rows))
