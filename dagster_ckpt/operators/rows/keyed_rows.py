"""The current row of each key of a table that changes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State, StateTable
from dagster_ckpt.operators.operator import Changes, EpochContext, StreamTable
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.net_changes import sides_of, table_of_columns
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

PUT_IN = "_put_in"
"""The epoch that put a row: a pre-image of the same epoch belongs to the row before it, and deletes nothing."""


@dataclass(frozen=True)
class KeyedRows:
    """A table with one row of each key, from its net changes: at most one of each key in an epoch.

    A condition may have left both images of an update, one or none. So an insert or a post-image becomes the key's row;
    a delete or a pre-image removes it, unless the key has a post-image as well. Deleting an absent key and repeating a
    change have no effect. The rows of an epoch arrive in any order.
    """

    spec: StateTableSpec

    @classmethod
    def of(cls, name: str, columns: pa.Schema, keys: tuple[str, ...]) -> "KeyedRows":
        """The state table `name` for a table with these columns. Raises `InvalidPipelineError`."""
        pipeline_checks.check_keys(keys, columns)
        expiry_checks.check_names_are_free(columns, [PUT_IN])
        return cls(StateTableSpec(name, columns.append(whole_number(PUT_IN)), keys))

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return [name for name in self.spec.schema.names if name != PUT_IN]

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Apply rows with a change type, under these hashes."""
        come, back = sides_of(rows)
        rows = flatten(rows.select(self.columns))
        table = state.table(self.spec.name)
        # Added rows first, so that the first row of a key is an added one if it has any.
        sides = np.concatenate([come, back])
        groups = key_order(hashes[sides], take(self._keys_of(rows), sides))
        firsts = groups.order[groups.starts]
        is_new = firsts < len(come)
        if len(come) > np.count_nonzero(is_new):
            raise self._ambiguous()
        put, gone = sides[firsts[is_new]], sides[firsts[~is_new]]
        if len(put):
            self._put(hashes[put], take(rows, put), table, context)
        if len(gone):
            self._delete(hashes[gone], take(self._keys_of(rows), gone), table, context)

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch."""
        yield from map(self.table.changes_of, state.table(self.spec.name).touched_keys())

    @property
    def table(self) -> StreamTable:
        """The table, from the state table."""
        return table_of_columns(self.spec.name, self.spec.keys, self.columns)

    def _put(self, hashes: Hashes, rows: pa.Table, table: StateTable, context: EpochContext) -> None:
        found = table.get(hashes, self._keys_of(rows))
        if _put_now(found, context).any():
            raise self._ambiguous()
        put_in = pa.array(np.full(rows.num_rows, context.number, dtype=np.int64))
        put = pa.Table.from_arrays([*rows.columns, put_in], schema=self.spec.schema)
        table.put(hashes, put, before=found)

    def _delete(self, hashes: Hashes, keys: pa.Table, table: StateTable, context: EpochContext) -> None:
        found = table.get(hashes, keys)
        gone = np.flatnonzero(found.present & ~_put_now(found, context))
        if len(gone):
            table.delete(hashes[gone], take(keys, gone), before=select(found, gone))

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        return rows.select(list(self.spec.keys))

    def _ambiguous(self) -> InvalidPipelineError:
        return InvalidPipelineError(
            "several rows of one key in one epoch, so the newest of them is unknown: read the "
            f"upstream's changes as they are, once. keys={', '.join(self.spec.keys)}"
        )


def _put_now(found: Found, context: EpochContext) -> Mask:
    """Which of the keys were put in this epoch."""
    now = np.zeros(len(found.present), dtype=np.bool_)
    now[found.present] = flat(found.rows.column(PUT_IN)).to_numpy() == context.number
    return now
