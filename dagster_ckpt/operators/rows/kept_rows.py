"""One row of each key in a table: what `Deduplicate` keeps, except for first rows with a time to live."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, StreamTable
from dagster_ckpt.operators.rows.row_choice import RowChoice, in_time
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.net_changes import inserts, table_of_columns
from dagster_ckpt.operators.shared.state_columns import HASH
from dagster_ckpt.operators.shared.time_to_live import AT, TimeToLive
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

ROWS = "rows"
FIRST_EPOCH = "_first_epoch"
"""The epoch in which the key first arrived: only rows of that epoch may replace each other."""


@dataclass(frozen=True)
class KeptRows:
    """The table `ROWS`, which is the stream's table: the newest, the earliest or the first seen row of each key.

    The newest row leaves it after its time to live, if there is one.
    """

    spec: StateTableSpec
    columns: pa.Schema
    choice: RowChoice
    ttl: TimeToLive | None

    @classmethod
    def first_seen(cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...]) -> "KeptRows":
        """The least row of each key by these columns, of the epoch in which the key first arrives."""
        spec = StateTableSpec(ROWS, columns.append(pa.field(FIRST_EPOCH, pa.int64(), nullable=False)), keys)
        return cls(spec, columns, RowChoice(keys, order, End.LEAST), None)

    @classmethod
    def earliest(cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...]) -> "KeptRows":
        """The least row of each key by these columns, whatever epoch it arrived in."""
        return cls(StateTableSpec(ROWS, columns, keys), columns, RowChoice(keys, order, End.LEAST), None)

    @classmethod
    def newest(
        cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...], expire_after_us: int | None
    ) -> "KeptRows":
        """The greatest row of each key by these columns; with `expire_after_us` it expires by the first of them."""
        spec = StateTableSpec(ROWS, columns, keys)
        ttl = None if expire_after_us is None else TimeToLive(spec, order[0], expire_after_us)
        return cls(spec, columns, RowChoice(keys, order, End.GREATEST), ttl)

    @property
    def tables(self) -> tuple[StateTableSpec, ...]:
        return (self.spec,) if self.ttl is None else (self.spec, self.ttl.expiries)

    @property
    def extra_columns(self) -> list[str]:
        """The columns that the state adds to those of the input."""
        return [FIRST_EPOCH] if self._stays else [] if self.ttl is None else [AT, HASH]

    @property
    def table(self) -> StreamTable:
        """The stream's table."""
        return table_of_columns(ROWS, self.spec.keys, self.columns.names)

    @property
    def horizon_us(self) -> int | None:
        # Rows expire, but none waits to be emitted: at the end of the input the table stays.
        return None if self.ttl is None else 0

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """See `Operator.on_rows`."""
        late = NONE_LATE
        rows = flatten(rows)
        if self.ttl is not None:
            used, late = in_time(flat(rows.column(self.ttl.time)), context)
            hashes, rows = hashes[used], take(rows, used)
        if rows.num_rows == 0:
            return late
        keys = rows.select(list(self.spec.keys))
        groups = key_order(hashes, keys)
        firsts = groups.order[groups.starts]
        found = state.table(ROWS).get(hashes[firsts], take(keys, firsts))
        undecided = self._may_change(found, context)
        order, sizes = groups.order[np.repeat(undecided, groups.sizes)], groups.sizes[undecided]
        best = self.choice.of_groups(rows, order, sizes)
        rivals = select(found, np.flatnonzero(undecided))
        wins = np.flatnonzero(self.choice.wins(take(rows, best), rivals))
        winners = best[wins]
        if len(winners):
            put = self._state_rows(take(rows, winners), context)
            state.table(ROWS).put(hashes[winners], put, before=select(rivals, wins))
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[tuple[Changes, int]]:
        """The changes in pieces, each with the number of new keys; a piece may have none."""
        if self.ttl is not None:
            for _ in self.ttl.expire(state, context):
                yield inserts(self.columns.empty_table()), 0
        for touched in state.table(ROWS).touched_keys():
            if self.ttl is not None:
                self.ttl.schedule(touched, state)
            yield self.table.changes_of(touched), int(np.count_nonzero(touched.after.present & ~touched.before.present))

    @property
    def _stays(self) -> bool:
        """Whether no row of a later epoch replaces the row of a key."""
        return FIRST_EPOCH in self.spec.schema.names

    def _may_change(self, found: Found, context: EpochContext) -> Mask:
        """Which keys may get another row than the one found: all except those with a row that stays."""
        undecided = np.ones(len(found.present), dtype=np.bool_)
        if self._stays:
            epochs = flat(found.rows.column(FIRST_EPOCH)).to_numpy()
            undecided[found.present] = epochs == context.number
        return undecided

    def _state_rows(self, rows: pa.Table, context: EpochContext) -> pa.Table:
        added = [pa.array(np.full(rows.num_rows, context.number, dtype=np.int64))] if self._stays else []
        return pa.Table.from_arrays([*rows.columns, *added], schema=self.spec.schema)
