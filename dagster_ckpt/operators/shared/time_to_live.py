"""Keys that leave a keyed table once the watermark has passed their time by a time to live.

A logged table cannot expire rows by a bound: each key that leaves is a delete in the change log. So a timeline has an
entry for every key, put when the key first has a time. When it is due, the key's row shows whether the key has expired.
If the time of the row has grown since, the entry is put again at that time: a busy key costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Found, Hashes, State, StateTable, Touched
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.bounded.due_rows import due_together
from dagster_ckpt.operators.shared.bounded.lookups import Lookups
from dagster_ckpt.operators.shared.late_rows import before
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, hashes_in, whole_number
from dagster_ckpt.protocol.manifest.manifest import SortKind, StateTableSpec

EXPIRIES = "expiries"
"""The timeline."""
AT = "_expiry_of"
"""The event time that a key had when its entry was put."""
_LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True)
class TimeToLive:
    """Expires keys of `table` by its column `time`, which never decreases while a key is present.

    A key whose time is null stays.
    """

    table: StateTableSpec
    time: str
    expire_after_us: int

    @property
    def expiries(self) -> StateTableSpec:
        """The timeline: one entry for every key of the table that has a time."""
        keys = [self.table.schema.field(key) for key in self.table.keys]
        at = pa.field(AT, self.table.schema.field(self.time).type, nullable=False)
        schema = pa.schema([at, *keys, whole_number(HASH)])
        return StateTableSpec(EXPIRIES, schema, (AT, *self.table.keys), SortKind.TIME, time=AT)

    def until_us(self, context: EpochContext) -> int | None:
        """Keys whose time is before this have expired; None: no key has."""
        if context.watermark_us is None:
            return None
        until_us = context.watermark_us - self.expire_after_us + 1
        return until_us if until_us > _LEAST else None

    def drop_expired(self, found: Found, context: EpochContext) -> Found:
        """The keys found, without those that expire in this epoch: new rows start such a key again."""
        over = self._over(found.rows, context)
        if len(over) == 0:
            return found
        there = np.flatnonzero(found.present)
        present = found.present.copy()
        present[there[over]] = False
        return Found(present, take(found.rows, np.delete(np.arange(len(there)), over)))

    def expire(self, state: State, context: EpochContext) -> Iterator[None]:
        """Delete the expired keys. Call once in an epoch, after all its rows.

        In batches: after each step the caller may flush the state held in memory.
        """
        until_us = self.until_us(context)
        if until_us is None:
            return
        timeline, table = state.timeline(EXPIRIES), state.table(self.table.name)
        bytes_max = context.memory_bytes // 4
        lookups = Lookups(table, bytes_max)
        for [entries] in due_together([timeline], [self.expiries], until_us, bytes_max):
            hashes = hashes_in(entries)
            for part, found in lookups.find(hashes, entries.select(list(self.table.keys))):
                its_hashes, again = self._expire_batch(hashes[part], found, table, context)
                if again.num_rows:
                    timeline.put(its_hashes, again)  # none is due yet, so the scan is not affected
                yield
        timeline.expire(until_us)

    def schedule(self, touched: Touched, state: State) -> None:
        """Put an entry for each key that has a time now and had none before the epoch; call after `expire`."""
        had, has = (self._has_time(side) for side in (touched.before, touched.after))
        new = has & ~had
        if new.any():
            rows = (np.cumsum(touched.after.present) - 1)[new]
            hashes = touched.hashes[new]
            state.timeline(EXPIRIES).put(hashes, self._entries(hashes, take(touched.after.rows, rows)))

    def _expire_batch(
        self, hashes: Hashes, found: Found, table: StateTable, context: EpochContext
    ) -> tuple[Hashes, pa.Table]:
        """Delete the expired ones of these keys; returns the entries of the others."""
        asked = np.flatnonzero(found.present)
        over = self._over(found.rows, context)
        if len(over):
            # With the rows before, so that the change log need not look up very many keys at once.
            gone = take(found.rows.select(list(self.table.keys)), over)
            table.delete(hashes[asked[over]], gone, before=select(found, asked[over]))
        stays = has_value(flat(found.rows.column(self.time)))
        stays[over] = False
        rows = np.flatnonzero(stays)
        return hashes[asked[rows]], self._entries(hashes[asked[rows]], take(found.rows, rows))

    def _over(self, rows: pa.Table, context: EpochContext) -> Positions:
        return before(flat(rows.column(self.time)), self.until_us(context))

    def _has_time(self, side: Found) -> Mask:
        """Which keys have a row with a time."""
        timed = side.present.copy()
        timed[side.present] = has_value(flat(side.rows.column(self.time)))
        return timed

    def _entries(self, hashes: Hashes, rows: pa.Table) -> pa.Table:
        columns = [rows.column(name) for name in (self.time, *self.table.keys)]
        return pa.Table.from_arrays([*columns, hash_column(hashes)], schema=self.expiries.schema)
