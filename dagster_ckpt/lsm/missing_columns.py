"""What stands in a run for a column that the table has and the run's file lacks, because it is older than the column.

Such a column is null in all rows, unless it can be made of one that the file has (`halves`). It is not made when the
file is opened, whose bytes may not be fetched or checked yet. Until it is read, a struct around the other column stands
in for it, with a field named after the column to be made. Code that takes, slices, checks or fetches rows handles the
struct like any other column.
"""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.halves import half_of, made_of


def stand_in(name: str, there: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """In place of the column `name`, where the file has the columns `there`. Reads no values."""
    total = made_of(name, there)
    return pa.nulls(rows) if total is None else pa.StructArray.from_arrays([total], names=[name])


def is_stand_in(stored: pa.DataType, type_: pa.DataType) -> bool:
    """Whether a column of `type_` stored like this is still to be made."""
    return bool(pa.types.is_struct(stored) and pa.types.is_integer(type_))


def materialize(stand_in: pa.StructArray) -> pa.Array:
    """The column that it stands for, int64."""
    return half_of(stand_in.type.field(0).name, stand_in.flatten()[0])
