"""How a run's file has the columns of its table: integers as narrow as their values allow, later columns not at all.

Most counts, sums and numbers are far below the limits of their types. Each byte costs time to write, and to check when
it is read.

A column that a file lacks, since the file is older, is null in all rows, unless it can be made of one that the file has
(`split_totals`). It is not made when the file is opened, whose bytes may not be fetched or checked yet. Until it is
read, a struct around the other column stands in for it, with a field named after the column to be made. Code that
takes, slices, checks or fetches rows handles the struct like any other column.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.split_totals import full_total_for, half_of
from dagster_ckpt.widening import widens

_NARROW = (pa.int8(), pa.int16(), pa.int32())
_HASH_BYTES = 8
_VARIABLE_BYTES = 16
"""The assumed size of a value of variable width."""


def narrow(array: pa.Array) -> pa.Array:
    """The integers as signed ones of the least width that holds all of them; other columns unchanged.

    Times and durations are integers too, but today's need 64 bits: only columns of nulls become narrower.
    """
    numbers = _numbers(array)
    if numbers is None:
        return array
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py() or 0, bounds["max"].as_py() or 0
    for type_ in _NARROW:
        reach = np.iinfo(type_.to_pandas_dtype())
        if type_.bit_width < array.type.bit_width and reach.min <= least and greatest <= reach.max:
            return numbers.cast(type_)
    return array


def widen(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Reverse `narrow`: the array in the table's type. What stands in for a missing column becomes that column."""
    if array.type == type_:
        return array
    if is_stand_in(array.type, type_):
        return materialize(array)
    if _is_time(type_):
        return array.cast(pa.int64()).view(type_)
    return array.cast(type_)


def may_be_narrow(stored: pa.DataType, type_: pa.DataType) -> bool:
    """Whether a column of `type_` may be stored as `stored`: narrower, or as an older type that it was widened from."""
    if widens(stored, type_):
        return True
    is_number = pa.types.is_integer(type_) or _is_time(type_)
    return stored in _NARROW and is_number and stored.bit_width < type_.bit_width


def row_bytes(schema: pa.Schema) -> int:
    """About how many bytes a row of a state table and its hash take in memory."""
    return _HASH_BYTES + sum(map(_value_bytes, schema.types))


def _numbers(array: pa.Array) -> pa.Array | None:
    if pa.types.is_integer(array.type):
        return array
    return array.view(pa.int64()) if _is_time(array.type) else None


def _is_time(type_: Any) -> bool:
    is_time = pa.types.is_timestamp(type_) or pa.types.is_duration(type_) or pa.types.is_time64(type_)
    return bool(is_time or pa.types.is_date64(type_))


def _value_bytes(type_: pa.DataType) -> int:
    try:
        return -(-int(type_.bit_width) // 8)
    except ValueError:  # of variable width
        return _VARIABLE_BYTES


def stand_in(name: str, there: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """In place of the column `name`, where the file has the columns `there`. Reads no values."""
    total = full_total_for(name, there)
    return pa.nulls(rows) if total is None else pa.StructArray.from_arrays([total], names=[name])


def is_stand_in(stored: pa.DataType, type_: pa.DataType) -> bool:
    """Whether a column of `type_` stored like this is still to be made."""
    return bool(pa.types.is_struct(stored) and pa.types.is_integer(type_))


def materialize(stand_in: pa.StructArray) -> pa.Array:
    """The column that it stands for, int64."""
    return half_of(stand_in.type.field(0).name, stand_in.flatten()[0])
