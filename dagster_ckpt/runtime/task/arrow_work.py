"""What a step's task can do itself with its changes, so that Spark need not take them apart into rows.

Each column of the next step is a column of the changes, or follows from one by arithmetic that is the same in Spark,
whatever its settings. Everything else is Spark's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import flat


@dataclass(frozen=True, slots=True)
class ColumnAt:
    """The column of the changes at this place."""

    place: int

    def of(self, columns: Sequence[pa.Array]) -> pa.Array:
        return columns[self.place]


@dataclass(frozen=True, slots=True)
class Widened:
    """A whole number in a type that holds all values of its own."""

    number: "ArrowValue"
    bits: int

    def of(self, columns: Sequence[pa.Array]) -> pa.Array:
        return self.number.of(columns).cast(_WHOLE[self.bits])


@dataclass(frozen=True, slots=True)
class Remainder:
    """What division by a whole number above 0 leaves, with the sign of what is divided."""

    number: "ArrowValue"
    by: int

    def of(self, columns: Sequence[pa.Array]) -> pa.Array:
        number = self.number.of(columns)
        by = pa.scalar(self.by, number.type)
        # Arrow's division rounds toward 0, as Java's does.
        return pc.subtract(number, pc.multiply(pc.divide(number, by), by))


ArrowValue = ColumnAt | Widened | Remainder
ArrowWork = tuple[ArrowValue, ...]
"""How each column that the next step reads follows from the changes."""

_WHOLE = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def worked_columns(work: ArrowWork, changes: pa.Table) -> list[pa.Array]:
    """The columns that follow from the changes."""
    columns = [flat(column) for column in changes.columns]
    return [each.of(columns) for each in work]
