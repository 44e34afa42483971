"""The two inputs of a join, and helpers for their columns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, flat, to_mask
from dagster_ckpt.operators.joins.join_types import LEFT, JoinType
from dagster_ckpt.operators.shared.arrays.nulls import fill_null
from dagster_ckpt.operators.shared.state_columns import micros
from dagster_ckpt.protocol.manifest.manifest import InputSpec


class JoinSide(Protocol):
    """One input of a join: its number, its key columns, and the columns that the join uses."""

    @property
    def number(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> tuple[str, ...]: ...

    @property
    def schema(self) -> pa.Schema: ...


@dataclass(frozen=True)
class Side:
    """One input of a join. `schema` has the columns that the join uses."""

    number: int
    keys: tuple[str, ...]
    time: str
    schema: pa.Schema

    @classmethod
    def of(cls, number: int, source: InputSpec, keys: tuple[str, ...], time: str, how: JoinType) -> "Side":
        """The side of an input; rows that are never emitted need only the key and the event time."""
        is_emitted = number == LEFT or how.gives_pairs
        used = [field for field in source.schema if is_emitted or field.name in {*keys, time}]
        return cls(number, keys, time, pa.schema(used))

    @property
    def name(self) -> str:
        """The prefix of its state tables' names."""
        return "left" if self.number == LEFT else "right"

    @property
    def keys_and_time(self) -> tuple[str, ...]:
        """The columns that determine the matches of a row."""
        return tuple(name for name in self.schema.names if name in {*self.keys, self.time})

    def times(self, rows: pa.Table) -> Positions:
        """The event times in microseconds; 0 where it is null."""
        return micros(fill_null(flat(rows.column(self.time)), 0))

    def usable(self, rows: pa.Table, how: JoinType, late: Positions) -> Mask:
        """Which rows are not late and may be emitted, with or without a match."""
        wanted = np.ones(rows.num_rows, dtype=np.bool_)
        wanted[late] = False
        if not how.keeps_unmatched(self.number):
            wanted &= self.matchable(rows)  # unmatched rows are never emitted
        return wanted

    def matchable(self, rows: pa.Table) -> Mask:
        """Which rows can match: null equals nothing, neither in a key nor in the event time."""
        return no_nulls(rows, self.keys_and_time)


def no_nulls(rows: pa.Table, names: tuple[str, ...]) -> Mask:
    """Which rows have a value in each of these columns."""
    filled = np.ones(rows.num_rows, dtype=np.bool_)
    for name in names:
        if rows.column(name).null_count:
            filled &= to_mask(pc.is_valid(flat(rows.column(name))))
    return filled


def shape_rows(schema: pa.Schema, rows: pa.Table, more: Mapping[str, pa.Array]) -> pa.Table:
    """The rows with exactly these columns, some of them from `more`."""
    columns = [more[name] if name in more else flat(rows.column(name)) for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


def numbers_of(rows: pa.Table, name: str) -> Positions:
    """A column of int64 without nulls."""
    numbers: Positions = flat(rows.column(name)).to_numpy()
    return numbers
