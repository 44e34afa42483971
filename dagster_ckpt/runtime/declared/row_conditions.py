"""A condition on the rows of an updating table: its text, and whether it depends on the row's values alone."""

from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.query_plan import each_of, nodes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")
"""Expressions that Spark calls deterministic, because they are within one micro-batch."""
_OF_ANOTHER_TABLE = ("ScalarSubquery", "InSubquery", "Exists")
"""Expressions that read other rows, which may change."""
_ZONE = "spark.sql.session.timeZone"
_UTC = "Z"
"""Java's normalized name of the zone without offset."""


def text_of(condition: "str | Column") -> str:
    """The condition as text."""
    if isinstance(condition, str):
        return condition
    column: Any = condition
    return str(column._jc.toString())  # noqa: SLF001  (str() adds to it)


def fingerprint_of(filtered: "DataFrame", condition: "str | Column") -> str:
    """The condition as the stream's fingerprint has it. `filtered` is the DataFrame that it was just applied to.

    Where its result depends on the time zone, the text includes the session's, unless that is UTC: a row's insertion
    and its deletion must be evaluated in the same zone.
    """
    text, session = text_of(condition), filtered.sparkSession
    if not _depends_on_zone(filtered):
        return text
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    zone = jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(session.conf.get(_ZONE))
    name = str(zone.normalized().getId())
    return text if name == _UTC else f"{text} [in time zone {name}]"


def check_judges_by_values(filtered: "DataFrame", condition: "str | Column") -> None:
    """Raise `InvalidPipelineError` for a condition that may match a row when it is inserted, but not when deleted.

    `filtered` is the DataFrame that it was just applied to.
    """
    plan: Any = filtered._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no other way to it)
    expression = plan.condition()
    if any(str(column.name()) == CHANGE_TYPE for column in each_of(expression.references())):
        raise InvalidPipelineError(
            f"this column says whether a row comes or goes, which the stream follows by itself: leave it out of the "
            f"condition. column={CHANGE_TYPE}, condition={text_of(condition)}"
        )
    names = {str(node.getClass().getSimpleName()) for node in nodes(expression)}
    if not names.isdisjoint(_OF_ANOTHER_TABLE):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition asks another table, whose rows may be "
            "others when a row goes than when it came: use the row's values only. "
            f"condition={text_of(condition)}"
        )
    if not names.isdisjoint(_OF_THE_MOMENT) or not expression.deterministic():
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition may say one thing of a row when it comes "
            "and another when it goes: use the row's values only, not the time of day or chance. "
            f"condition={text_of(condition)}"
        )


def _depends_on_zone(filtered: "DataFrame") -> bool:
    """Whether the DataFrame's last condition computes with the session's time zone, or may have been written in it."""
    context: Any = filtered.sparkSession.sparkContext
    plan: Any = filtered._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no other way to it)
    aware = "org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression"
    for node in nodes(plan.condition()):
        name = str(node.getClass().getSimpleName())
        if name == "Literal":  # a time given as text is only an instant here
            depends = str(node.dataType().simpleString()) == "timestamp"
        elif name == "Cast":  # time-zone-aware whatever it casts
            depends = bool(node.needsTimeZone())
        else:
            depends = name == "CurrentTimeZone" or is_instance_of(context._gateway, node, aware)  # noqa: SLF001
        if depends:
            return True
    return False
