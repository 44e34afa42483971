"""What can be said of a source's format and path without Spark."""

import re

NEED_SCHEMA = ("avro", "csv", "json", "orc", "parquet", "xml")
"""File formats whose columns Spark does not know by itself."""

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


def is_absolute(path: str) -> bool:
    """Whether a path is the same wherever a process was started: it begins with a slash, or is a URL."""
    return _ABSOLUTE.match(path) is not None
