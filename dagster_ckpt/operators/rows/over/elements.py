"""Rows of partitions in their order, equal ones side by side, and the frame of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, take_array
from dagster_ckpt.operators.over import Over
from dagster_ckpt.operators.rows.over import distances
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn

NONE = -1
"""The place of no element."""
ROWS, RANK, DENSE = "_rows", "_rank", "_dense"
"""How many rows come before a row, its rank and its dense rank: see `Elements.carried`."""


@dataclass(frozen=True)
class Elements:
    """Stretches of partitions (`runs`): each row of `rows`, in order, `copies` times.

    A run begins at its partition's first row, or in the middle (`in_middle`). `carried` then has what is known of the
    rows before its first one, one value per run.
    """

    rows: pa.Table
    copies: Positions
    run_of_row: Positions
    in_middle: Mask
    carried: Mapping[str, pa.Array]
    by: Sequence[OrderColumn]

    @cached_property
    def at(self) -> Positions:
        """The row of each element."""
        return np.repeat(np.arange(len(self.copies)), self.copies)

    @cached_property
    def run(self) -> Positions:
        return self.run_of_row[self.at]

    @cached_property
    def places(self) -> Positions:
        return np.arange(len(self.at))

    @cached_property
    def starts(self) -> Positions:
        """Where the run of each element begins."""
        return np.searchsorted(self.run, np.arange(len(self.in_middle)))[self.run]

    @cached_property
    def stops(self) -> Positions:
        return np.searchsorted(self.run, np.arange(len(self.in_middle)), side="right")[self.run]

    @cached_property
    def begins_peers(self) -> Mask:
        """Whether an element differs from the one before in the order columns, or is the first of its run."""
        begins = np.ones(len(self.copies), dtype=np.bool_)
        if len(begins):
            begins[1:] = self.run_of_row[1:] != self.run_of_row[:-1]
            for column in self.by:
                codes = column.codes(flat(self.rows.column(column.name)))
                begins[1:] |= codes[1:] != codes[:-1]
        of_elements = np.zeros(len(self.at), dtype=np.bool_)
        of_elements[self.firsts] = begins
        return of_elements

    @cached_property
    def firsts(self) -> Positions:
        """The first element of each row."""
        return np.cumsum(self.copies) - self.copies

    @cached_property
    def peers(self) -> tuple[Positions, Positions]:
        """Where the peers of each element begin and end, within its run."""
        starts = np.flatnonzero(self.begins_peers)
        group = np.cumsum(self.begins_peers) - 1
        return starts[group], np.append(starts[1:], len(self.at))[group]

    def carry(self, name: str) -> Positions:
        """A carried number of each element's run; 0 for a run from the first row on."""
        numbers = self.carried[name].fill_null(0).to_numpy() if name in self.carried else np.zeros(len(self.in_middle))
        found: Positions = np.where(self.in_middle, numbers, 0).astype(np.int64)[self.run]
        return found

    @cached_property
    def before(self) -> Positions:
        """How many rows of its partition come before each element."""
        return self.places - self.starts + self.carry(ROWS)

    @cached_property
    def rank(self) -> Positions:
        first = self.peers[0]
        # The rows that tie with a run's first one may begin before it.
        return np.where(self.in_middle[self.run] & (first == self.starts), self.carry(RANK), self.before[first] + 1)

    @cached_property
    def dense_rank(self) -> Positions:
        begun = np.cumsum(self.begins_peers)
        return begun - begun[self.starts] + np.where(self.in_middle[self.run], self.carry(DENSE), 1)

    def frame(self, function: Over) -> tuple[Positions, Positions]:
        """The elements of each one's frame, from a start to a stop; a stop is never before its start."""
        if function.rows is not None:
            first, last = function.rows
            starts = self.starts if first is None else self.places + first
            stops = self.stops if last is None else self.places + last + 1
        else:
            first, last = function.range or (None, 0)
            starts = self.starts if first is None else self._edge(first, behind=False)
            stops = self.stops if last is None else self._edge(last, behind=True)
        starts = np.clip(starts, self.starts, self.stops)
        return starts, np.clip(stops, starts, self.stops)

    @cached_property
    def _measures(self) -> tuple[Positions, Mask]:
        values, there = distances.measure(self.by[0], self.column(self.by[0].name))
        return values[self.at], there[self.at]

    def _edge(self, distance: int, *, behind: bool) -> Positions:
        """The first element that is so far away, or with `behind` the first that is farther; of nulls the peers."""
        if distance == 0:
            return self.peers[behind]
        values, there = self._measures
        return np.where(there, distances.bounds(values, there, self.run, distance, behind=behind), self.peers[behind])

    def column(self, name: str) -> pa.Array:
        """The column's value of each row."""
        return flat(self.rows.column(name))

    def values(self, name: str, places: Positions, otherwise: pa.Scalar | None = None) -> pa.Array:
        """The column's value at elements; null, or `otherwise`, for place `NONE`."""
        column = self.column(name)
        last = pa.nulls(1, column.type) if otherwise is None else pa.array([otherwise.as_py()], column.type)
        rows = np.append(self.at, len(column))
        return take_array(pa.concat_arrays([column, last]), rows[places])
