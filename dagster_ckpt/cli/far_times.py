"""Values of columns as Python objects; times before year 1 or after 9999 as text, as ISO 8601 writes such years.

Spark and Arrow reach some 290,000 years in both directions.
"""

import re
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_WRITTEN = re.compile(
    r"(?P<year>[+-]?\d{4,})(?P<rest>-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?)(?P<zone>Z|[+-]00:?00)?"
)
"""A date or a time in UTC; a year of more than four digits has a sign, and may do without."""

_DAY_MS = 86_400_000


def values_of(column: pa.ChunkedArray | pa.Array, between: str = "T") -> list[object]:
    """The column's values. `between` separates date and time where Python has no such time."""
    try:
        values: list[object] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value(each, between) for each in column]
    return values


def rows_of(table: pa.Table) -> list[Mapping[str, object]]:
    """The table's rows, each with its columns' values by name."""
    columns = [values_of(column) for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def read_times(texts: list[str | None], type_: pa.DataType) -> pa.Array | None:
    """The times, of any year, in the format of `values_of`; None if one has another format."""
    if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return None
    has_zone = pa.types.is_timestamp(type_) and type_.tz is not None
    dtype = _dtype(type_)
    found: list[int | None] = []
    for text in texts:
        match = None if text is None else _WRITTEN.fullmatch(text.strip())
        if text is not None and (match is None or (match["zone"] is None) == has_zone):
            return None
        try:
            found.append(None if match is None else _number(match["year"], match["rest"], dtype))
        except (OverflowError, ValueError):
            return None
    numbers = pa.array(found, pa.int64())
    if pa.types.is_date32(type_):
        return numbers.cast(pa.int32()).view(type_)
    return (pc.multiply(numbers, _DAY_MS) if pa.types.is_date64(type_) else numbers).view(type_)


def _number(year: str, rest: str, dtype: str) -> int:
    """The time as the type's integer. Raises `ValueError` for an invalid time, or one out of the type's range."""
    written = _one(f"{int(year):05d}{rest.replace(' ', 'T')}", "datetime64")
    read = written.astype(dtype)
    # numpy wraps around and truncates without an error.
    if (read.astype(written.dtype) != written).any() or (read.astype(np.int64) < 0) != (written.astype(np.int64) < 0):
        raise ValueError
    return int(read.astype(np.int64)[0])


def _value(scalar: pa.Scalar, between: str) -> object:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        pass
    type_ = scalar.type
    if pa.types.is_struct(type_):
        return {name: _value(each, between) for name, each in scalar.items()}
    if pa.types.is_map(type_):
        pairs = zip(scalar.values.field(0), scalar.values.field(1), strict=True)
        return [(_value(key, between), _value(item, between)) for key, item in pairs]
    if pa.types.is_nested(type_):
        return [_value(each, between) for each in scalar.values]
    if pa.types.is_dictionary(type_):
        return _value(scalar.value, between)
    return _spell(scalar, between)


def _spell(time: pa.Scalar, between: str) -> str:
    """A date or a time; one with a zone in UTC."""
    number = time.value // _DAY_MS if pa.types.is_date64(time.type) else time.value
    text = str(_one(number, _dtype(time.type))[0])
    at = text.index("-", 1)
    year = int(text[:at])
    # Four digits, or a sign and at least as many: numpy writes neither the plus nor all zeros of -0044.
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    zone = "+00:00" if pa.types.is_timestamp(time.type) and time.type.tz is not None else ""
    return f"{sign}{abs(year):04d}{text[at:].replace('T', between)}{zone}"


def _dtype(type_: pa.DataType) -> str:
    return f"datetime64[{type_.unit if pa.types.is_timestamp(type_) else 'D'}]"


def _one(value: int | str, dtype: str) -> npt.NDArray[np.datetime64]:
    return np.array([value], dtype)
