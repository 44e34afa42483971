"""JSON text of values that JSON lacks."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal


def json_text(document: Mapping[str, object]) -> str:
    """The document for people and programs: indented, times as ISO 8601, spans in seconds, bytes as base64."""
    return json.dumps(_finite(dict(document)), indent=2, ensure_ascii=False, allow_nan=False, default=_as_text)


def _finite(value: object) -> object:
    """The value with the floats that JSON lacks as names."""
    match value:
        case dict():
            return {key: _finite(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_finite(entry) for entry in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
        case _:
            return value


def _as_text(value: object) -> object:
    """Types that JSON lacks: times as ISO 8601, spans in seconds, decimals as text, bytes as base64."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case _:
            raise TypeError(f"this type cannot be written as JSON. type={type(value).__name__}")
