"""What Spark does with the rows of a table one by one: its text, and whether it depends on a row's values alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.checks.pipeline_checks import is_key
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.query_plan import each_of, nodes
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema, to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")
"""Expressions that Spark calls deterministic, because they are within one micro-batch."""
_OF_ANOTHER_TABLE = ("ScalarSubquery", "InSubquery", "Exists")
"""Expressions that read other rows, which may change."""
_ROW_BY_ROW = {"Filter": "WHERE", "Generate": "GENERATE", "Project": "SELECT", "SubqueryAlias": None}
"""Plan nodes that make of each row what follows from it, and what a text calls them; None: it changes nothing."""
_MOVES = {"RebalancePartitions", "Repartition", "RepartitionByExpression", "Union"}
"""Plan nodes that bring rows to other partitions."""
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
    return session.createDataFrame([], to_spark_schema(schema))


def text_of_condition(condition: "str | Column") -> str:
    """The condition as text."""
    if isinstance(condition, str):
        return condition
    column: Any = condition
    return str(column._jc.toString())  # noqa: SLF001  (str() adds to it)


def text_of_work(rows: "DataFrame", worked: "DataFrame") -> str:
    """What was done with the rows, from the first on: `SELECT a, (b + 1) AS c WHERE (a > 2)`."""
    steps = ((_ROW_BY_ROW.get(_kind(node), _kind(node)), node) for node in reversed(list(_added(rows, worked))))
    told = [(word, ", ".join(str(each.sql()) for each in _expressions(node))) for word, node in steps if word]
    return " ".join(f"{word} {expressions}" for word, expressions in told)


def with_zone(rows: "DataFrame", worked: "DataFrame", text: str) -> str:
    """The text of the work on the rows as the stream's fingerprint has it.

    Where the result depends on the time zone, the text includes the session's, unless that is UTC: a row's insertion
    and its deletion must be evaluated in the same zone.
    """
    session = worked.sparkSession
    if not _depends_on_zone(rows, worked):
        return text
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(session.conf.get(_ZONE))
    name = str(zone.normalized().getId())
    return text if name == _UTC else f"{text} [in time zone {name}]"


def check_judges_by_values(rows: "DataFrame", worked: "DataFrame", text: str) -> None:
    """Raise `InvalidPipelineError` for work that may make one thing of a row when it comes, and another when it goes.

    `text` describes the work in the error.
    """
    if not keeps(rows, worked, [CHANGE_TYPE]):
        raise InvalidPipelineError(
            "this column says whether a row comes or goes, which the next step must know: keep it as it is. "
            f"column={CHANGE_TYPE}, work={text}"
        )
    for node in _added(rows, worked):
        kind = _kind(node)
        if kind not in _ROW_BY_ROW:
            raise InvalidPipelineError(
                "the table updates and deletes rows, and this reads more than the row itself, which may be different "
                "when the row goes than when it came: use the row's values only, and join streams by a step. "
                f"found={kind}, work={text}"
            )
        for expression in _expressions(node):
            _check_expression(expression, text)


def key_columns(rows: "DataFrame") -> tuple[str, ...]:
    """The columns by which rows can be brought together: all whose type a key may have."""
    schema = to_arrow_schema(rows.schema)
    return tuple(field.name for field in schema if field.name != CHANGE_TYPE and is_key(field.type))


def check_partitions(rows: "DataFrame", worked: "DataFrame") -> None:
    """Raise `InvalidPipelineError` for work that moves the changes of a step elsewhere: each task works on its own."""
    moved = {_kind(node) for node in _added(rows, worked)} & _MOVES
    if moved:
        raise InvalidPipelineError(
            "the rows of a step stay in their partitions until the next one brings them to its keys: leave out "
            f"repartition, coalesce and union. found={', '.join(sorted(moved))}"
        )


def keeps(rows: "DataFrame", worked: "DataFrame", columns: Sequence[str]) -> bool:
    """Whether each of these columns of the rows is still there, unchanged."""
    before, after = _attributes(rows), _attributes(worked)
    return all(before.get(column) is not None and before.get(column) == after.get(column) for column in columns)


def origin_of(rows: "DataFrame", worked: "DataFrame", column: str) -> str | None:
    """Which column of the rows this column of the result is, unchanged; None: it is a new one."""
    number = _attributes(worked).get(column)
    return next((name for name, other in _attributes(rows).items() if other == number), None)


def _column(column: "str | Column") -> "Column":
    from pyspark.sql import functions as F

    return F.expr(column) if isinstance(column, str) else column


def _check_expression(expression: Any, text: str) -> None:
    of_row = _kind(expression) == "AttributeReference"
    if not of_row and any(str(column.name()) == CHANGE_TYPE for column in each_of(expression.references())):
        raise InvalidPipelineError(
            f"this column says whether a row comes or goes, which the stream follows by itself: leave it out of the "
            f"condition. column={CHANGE_TYPE}, condition={text}"
        )
    names = {_kind(node) for node in nodes(expression)}
    if not names.isdisjoint(_OF_ANOTHER_TABLE):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition asks another table, whose rows may be "
            "others when a row goes than when it came: use the row's values only. "
            f"condition={text}"
        )
    if not names.isdisjoint(_OF_THE_MOMENT) or not expression.deterministic():
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition may say one thing of a row when it comes "
            "and another when it goes: use the row's values only, not the time of day or chance. "
            f"condition={text}"
        )


def _plan(rows: "DataFrame") -> Any:
    frame: Any = rows
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no other way to it)


def _attributes(rows: "DataFrame") -> dict[str, int]:
    """Spark's number of each column: a column that goes on unchanged keeps it."""
    return {str(each.name()): int(each.exprId().id()) for each in each_of(_plan(rows).output())}


def _added(rows: "DataFrame", worked: "DataFrame") -> Iterator[Any]:
    """The plan nodes of the result that those of the rows do not have, the last first."""
    base, node = _plan(rows), _plan(worked)
    while not node.fastEquals(base):
        yield node
        children = list(each_of(node.children()))
        if len(children) != 1:
            return
        [node] = children


def _expressions(node: Any) -> list[Any]:
    return list(each_of(node.expressions()))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _depends_on_zone(rows: "DataFrame", worked: "DataFrame") -> bool:
    """Whether the work computes with the session's time zone, or may have been written in it."""
    context: Any = worked.sparkSession.sparkContext
    aware = "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"
    for node in (part for step in _added(rows, worked) for each in _expressions(step) for part in nodes(each)):
        name = _kind(node)
        if name == "Literal":  # a time given as text is only an instant here
            depends = str(node.dataType().simpleString()) == "timestamp"
        elif name == "Cast":  # time-zone-aware whatever it casts
            depends = bool(node.needsTimeZone())
        else:
            depends = name == "CurrentTimeZone" or is_instance_of(context._gateway, node, aware)  # noqa: SLF001
        if depends:
            return True
    return False
