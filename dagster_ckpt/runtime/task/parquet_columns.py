"""Which columns of a Parquet file mean the same to Arrow and to Spark.

A file is read as the stream's columns, by name. What is not known to be equal, and what Spark refuses, is left to
Spark: `LeftToSparkError` says what that is. Nested columns are, and values in another width, unless it is a smaller
one of whole numbers.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError

_WRITER = b"org.apache.spark.version"
_REBASED = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""What Spark writes into the footer of a file whose old dates are those of another calendar."""
_CALENDAR_SINCE = 3
"""Spark's release since which a file without those has the dates of today's calendar."""


def columns_to_read(file: pq.ParquetFile, wanted: pa.Schema) -> list[str]:
    """The wanted columns that are in the file, all of which mean the same to both.

    Raises `LeftToSparkError` where one of them may not.
    """
    there = file.schema_arrow.names
    by_name: dict[str, list[int]] = {}
    for place, name in enumerate(there):
        by_name.setdefault(name.lower(), []).append(place)
    flat = {file.schema.column(number).path: file.schema.column(number) for number in range(len(file.schema))}
    found = []
    for field in wanted:
        places = by_name.get(field.name.lower(), [])
        if not places:
            continue  # to Spark it is null in each row
        if len(places) > 1 or there[places[0]] != field.name:
            raise LeftToSparkError(f"the column {field.name} under a name in other letters")
        column = flat.get(field.name)
        if column is None or column.max_repetition_level or column.max_definition_level > 1:
            raise LeftToSparkError(f"the nested column {field.name}")
        if not _means_the_same(column, field.type):
            raise LeftToSparkError(
                f"the column {field.name} as {column.physical_type} {column.logical_type}, wanted as {field.type}"
            )
        found.append(field.name)
    if any(pa.types.is_temporal(wanted.field(name).type) for name in found):
        _check_calendar(file.metadata.metadata or {})
    return found


def _check_calendar(footer: Mapping[bytes, bytes]) -> None:
    version = footer.get(_WRITER, b"").split(b".")[0]
    if any(key in footer for key in _REBASED) or (version.isdigit() and int(version) < _CALENDAR_SINCE):
        raise LeftToSparkError("times of the calendar that Spark used before 3.0")


def _means_the_same(column: Any, wanted: pa.DataType) -> bool:
    """Whether Spark reads this column as that type, with the values that Arrow has for it."""
    physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
    kind, types = logical["Type"], pa.types
    if types.is_integer(wanted):
        bits = {"INT32": 32, "INT64": 64}.get(physical)
        if kind == "Int":
            bits = logical["bitWidth"] if logical["isSigned"] else None
        return kind in ("None", "Int") and bits is not None and bits <= wanted.bit_width
    if types.is_timestamp(wanted):
        if physical == "INT96":
            return wanted.tz is not None
        return (
            kind == "Timestamp"
            and logical["isAdjustedToUTC"] == (wanted.tz is not None)
            and logical["timeUnit"] in ("milliseconds", "microseconds")
        )
    if types.is_decimal(wanted):
        return kind == "Decimal" and (logical["precision"], logical["scale"]) == (wanted.precision, wanted.scale)
    return (physical, kind) in _SAME.get(wanted, ())


_SAME: Mapping[pa.DataType, Sequence[tuple[str, str]]] = {
    pa.bool_(): [("BOOLEAN", "None")],
    pa.float32(): [("FLOAT", "None")],
    pa.float64(): [("DOUBLE", "None")],
    pa.string(): [("BYTE_ARRAY", "String")],
    pa.binary(): [("BYTE_ARRAY", "None")],
    pa.date32(): [("INT32", "Date")],
}
"""The physical and the logical type of a column in a file that is of this type."""
