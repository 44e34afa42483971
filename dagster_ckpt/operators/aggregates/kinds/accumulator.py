"""The state of an aggregate for each key: a few columns, built from rows and merged with earlier ones."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions

Columns = Mapping[str, pa.Array]
"""Columns of equal length by name."""


@dataclass(frozen=True)
class GroupedRows:
    """Rows of at least one group, group after group: group g has the rows from `starts[g]` to the next start."""

    starts: Positions
    sizes: Positions
    columns: Columns

    @cached_property
    def group_of_row(self) -> Positions:
        """Each row's group."""
        return np.repeat(np.arange(len(self.starts)), self.sizes)


@dataclass(frozen=True, slots=True)
class Keeps:
    """What an accumulator keeps in the row of a group, in words, and whether that `grows` with the rows of the group.

    `counts`: it is never more than the rows. `subtracts`: what a retracted row would add is subtracted from it;
    otherwise it is added, as for other rows.
    """

    words: str
    grows: bool = False
    counts: bool = False
    subtracts: bool = True


COUNTS, SUMS = Keeps("counts", counts=True), Keeps("sums")


class Accumulator(ABC):
    """A part of the state: pure, and independent of how the rows are batched.

    With three exceptions: floats agree up to rounding, a t-digest up to its error, and whether an intermediate total
    leaves the range of its type, which raises `OverflowError`, depends on the batches, as in Spark. Any total that is
    returned is exact.
    """

    @property
    @abstractmethod
    def fields(self) -> tuple[pa.Field, ...]:
        """Its state columns. Equal accumulators of several aggregates are kept once."""

    @property
    @abstractmethod
    def keeps(self) -> Keeps:
        """What `explain` says of it."""

    @abstractmethod
    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        """Its state columns for these rows alone, one value per group."""

    @abstractmethod
    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        """Its state columns over the rows of both sides. In `old` all columns are null for a new key."""


class OneColumn(Accumulator):
    """An accumulator with one state column."""

    @property
    @abstractmethod
    def field(self) -> pa.Field:
        """Its state column."""

    @property
    def name(self) -> str:
        name: str = self.field.name
        return name

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        return (self.field,)
