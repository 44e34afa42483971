"""Expressions whose value is another one each time that a stream starts, or in each epoch."""

import re
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.catalyst.values import Expression
from dagster_ckpt.runtime.spark.jvm import java_class

OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")
"""Expressions that Spark calls deterministic, because they are within one micro-batch."""
_OF_TODAY = r"(?:now|today|tomorrow|yesterday)(?![a-z])"
_TIME_ALONE = r"t?\d{1,2}:"
_SPECIAL = re.compile(rf"\s*(?:{_OF_TODAY}|{_TIME_ALONE})", re.IGNORECASE)
"""Texts for which Spark has a time that depends on now; one without a date is of today."""
_TYPED = re.compile(r"(?:date|timestamp(?:_ntz|_ltz)?)\s*r?[\"']", re.IGNORECASE)
"""How a constant of these types begins."""
_ZONE = "spark.sql.session.timeZone"
_TYPES = ("date", "timestamp", "timestamp_ntz")


def moment_in(part: Expression) -> str | None:
    """An expression as SQL, without what is within it, if it depends on when it is asked; else None.

    Spark makes a constant of a time such as `timestamp 'now'` when it parses or optimises it.
    """
    if part.kind in OF_THE_MOMENT:
        return _sql(part)
    if part.type.name not in _TYPES:
        return None
    if part.kind == "Literal":
        written = _source_text(part)
        typed = None if written is None else _TYPED.match(written)
        return written if written and typed and _SPECIAL.match(written, typed.end()) else None
    if part.kind == "Cast" and part.children[0].type.name.partition(" ")[0] == "string":
        text: Any = part.children[0].java
        value = text.eval(None) if part.children[0].foldable else None
        return _sql(part) if value is not None and _SPECIAL.match(str(value.toString())) else None
    return None


def _sql(part: Expression) -> str:
    own: Any = part.java
    return str(own.sql())


def _source_text(part: Expression) -> str | None:
    """The text that an expression was parsed from, where Spark knows it."""
    own: Any = part.java
    origin = own.origin()
    text, start, stop = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if not (text.isDefined() and start.isDefined() and stop.isDefined()):
        return None
    return str(text.get())[start.get() : stop.get() + 1]  # counted in code points


def session_zone(session: SparkSession) -> str:
    """Java's normalized name of the session's time zone."""
    times = java_class(session, "org.apache.spark.sql.catalyst.util.DateTimeUtils")
    return str(times.getZoneId(session.conf.get(_ZONE)).normalized().getId())
