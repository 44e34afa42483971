"""The first row of each key, again after the key has expired: an append-only table, and the keys seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.rows.row_choice import RowChoice, in_time
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

SEEN = "seen"
"""The keys that were emitted and have not expired."""
FIRST_AT = "_first_at"
"""The event time of the emitted row."""
NEW = "new"
"""The rows to emit in this epoch. Empty between epochs."""
NEW_IN = "_new_in"
"""The epoch in which a row is emitted, stored as a time, so that the rows of an epoch expire at no cost."""

_EPOCHS = pa.timestamp("us")


@dataclass(frozen=True)
class FirstRows:
    """Emits one row of each key, and another when the key returns after it has expired.

    A key expires when the watermark has passed the event time of its row by `expire_after_us`.
    """

    columns: pa.Schema
    keys: tuple[str, ...]
    event_time: str
    expire_after_us: int

    @cached_property
    def seen_table(self) -> StateTableSpec:
        """The table `SEEN`."""
        key_fields = [self.columns.field(key) for key in self.keys]
        first_at = pa.field(FIRST_AT, self.columns.field(self.event_time).type, nullable=False)
        return StateTableSpec(SEEN, pa.schema([*key_fields, first_at]), self.keys, time=FIRST_AT)

    @cached_property
    def new(self) -> StateTableSpec:
        """The table `NEW`."""
        schema = self.columns.append(pa.field(NEW_IN, _EPOCHS, nullable=False))
        return StateTableSpec(NEW, schema, self.keys, time=NEW_IN)

    @property
    def table(self) -> None:
        """It keeps none: its rows are only appended."""
        return None

    @property
    def tables(self) -> tuple[StateTableSpec, ...]:
        return self.seen_table, self.new

    @property
    def extra_columns(self) -> list[str]:
        """The columns that the state adds to those of the input."""
        return [FIRST_AT, NEW_IN]

    @property
    def horizon_us(self) -> None:
        return None

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """See `Operator.on_rows`."""
        self._forget(state, context)
        rows = flatten(rows)
        used, late = in_time(flat(rows.column(self.event_time)), context)
        hashes, rows = hashes[used], take(rows, used)
        if rows.num_rows == 0:
            return late
        keys = rows.select(list(self.keys))
        groups = key_order(hashes, keys)
        firsts = groups.order[groups.starts]
        unseen = ~state.table(SEEN).get(hashes[firsts], take(keys, firsts)).present
        if unseen.any():
            order, sizes = groups.order[np.repeat(unseen, groups.sizes)], groups.sizes[unseen]
            best = self._choice.of_groups(rows, order, sizes)
            found = state.table(NEW).get(hashes[best], take(keys, best))
            winners = best[self._choice.wins(take(rows, best), found)]
            state.table(NEW).put(hashes[winners], self._new_rows(take(rows, winners), context))
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[tuple[Changes, int]]:
        """The emitted rows in pieces, each with the number of new keys."""
        self._forget(state, context)
        seen, new = state.table(SEEN), state.table(NEW)
        for touched in new.touched_keys():
            rows = touched.after.rows.select(self.columns.names)
            columns = [rows.column(name) for name in (*self.keys, self.event_time)]
            seen.put(
                touched.hashes[touched.after.present], pa.Table.from_arrays(columns, schema=self.seen_table.schema)
            )
            yield inserts(rows), rows.num_rows
        new.expire(context.number + 1)

    @property
    def _choice(self) -> RowChoice:
        return RowChoice(self.keys, (self.event_time,), End.LEAST)

    def _forget(self, state: State, context: EpochContext) -> None:
        """Expire keys, before any row of the epoch is processed."""
        if context.watermark_us is not None:
            state.table(SEEN).expire(context.watermark_us - self.expire_after_us + 1)

    def _new_rows(self, rows: pa.Table, context: EpochContext) -> pa.Table:
        epochs = pa.array(np.full(rows.num_rows, context.number, dtype=np.int64)).view(_EPOCHS)
        return pa.Table.from_arrays([*rows.columns, epochs], schema=self.new.schema)
