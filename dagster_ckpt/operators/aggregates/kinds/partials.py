"""Partial aggregates: what SQL computes of the rows of a group before they reach its task, in place of the rows.

The state columns that follow from them are those of the rows, but that floats agree up to rounding.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator

SqlName = Callable[[str], str]
"""The name of an input's column in the SQL."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A column of partial aggregates: an aggregate in Spark's SQL, and the type of what it gives."""

    sql: str
    type: pa.DataType


class PartialAccumulator(Accumulator):
    """An accumulator whose state columns may be made of partial aggregates."""

    @property
    def in_place(self) -> bool:
        """Whether Spark can update what SQL has to compute in place; else it would sort the rows."""
        return True

    @abstractmethod
    def partials(self, name: SqlName) -> tuple[Partial, ...]:
        """What SQL has to compute of each group. Nothing of it fails or wraps round, in ANSI mode or not."""

    @abstractmethod
    def of_partials(self, columns: tuple[pa.Array, ...], groups: int) -> tuple[pa.Array, ...]:
        """Its state columns, one value per group, from those of `partials`."""
