"""Expressions whose value is another one each time that a stream starts, or in each epoch."""

import re
from typing import Any

OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")
"""Expressions that Spark calls deterministic, because they are within one micro-batch."""
_OF_TODAY = r"(?:now|today|tomorrow|yesterday)(?![a-z])"
_TIME_ALONE = r"t?\d{1,2}:"
_SPECIAL = re.compile(rf"\s*(?:{_OF_TODAY}|{_TIME_ALONE})", re.IGNORECASE)
"""Texts for which Spark has a time that depends on now; one without a date is of today."""
_TYPED = re.compile(r"(?:date|timestamp(?:_ntz|_ltz)?)\s*r?[\"']", re.IGNORECASE)
"""How a constant of these types begins."""
_TYPES = ("date", "timestamp", "timestamp_ntz")
MAY_BE = re.compile(r"cast\(|\d-\d\d-\d\d|more fields", re.IGNORECASE)
"""What is in Spark's text of an expression that has such a constant, or is shortened."""


def moment_in(kind: str, part: Any) -> str | None:
    """An expression in the JVM as SQL, without what is within it, if it depends on when it is asked; else None.

    Spark makes a constant of a time such as `timestamp 'now'` when it parses or optimises it.
    """
    if kind in OF_THE_MOMENT:
        return str(part.sql())
    if kind == "Literal":
        written = _source_text(part) if _is_time(part) else None
        typed = None if written is None else _TYPED.match(written)
        return written if written and typed and _SPECIAL.match(written, typed.end()) else None
    if kind == "Cast" and _is_time(part):
        text = part.child()
        if str(text.dataType().typeName()).partition(" ")[0] == "string" and text.foldable():
            value = text.eval(None)
            return str(part.sql()) if value is not None and _SPECIAL.match(str(value.toString())) else None
    return None


def _is_time(part: Any) -> bool:
    return str(part.dataType().typeName()) in _TYPES


def _source_text(part: Any) -> str | None:
    """The text that an expression was parsed from, where Spark knows it."""
    origin = part.origin()
    text, start, stop = origin.sqlText(), origin.startIndex(), origin.stopIndex()
    if not (text.isDefined() and start.isDefined() and stop.isDefined()):
        return None
    return str(text.get())[start.get() : stop.get() + 1]  # counted in code points
