"""The current rows of a table by a key that the user has declared, which is checked."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import flat, flatten, stack, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.rows.current.keyed_rows import KeyedRows
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.net_changes import sides_of
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

_SHOWN_MAX = 3
"""So many keys an error names."""


@dataclass(frozen=True)
class UniqueRows(KeyedRows):
    """A table with one row of each key, from net changes of rows of which several may have it: then it is an error.

    `ROWS` counts how many rows a key has. The rows of an epoch arrive in any order, so there may be two within it: the
    one that goes and the one that comes. A row that goes was there before the epoch.
    """

    @classmethod
    def of(cls, name: str, columns: pa.Schema, keys: tuple[str, ...]) -> "UniqueRows":
        """The state table `name` for a table with these columns. Raises `InvalidPipelineError`."""
        pipeline_checks.check_keys(keys, columns)
        expiry_checks.check_names_are_free(columns, [ROWS])
        return cls(StateTableSpec(name, columns.append(whole_number(ROWS)), keys))

    @property
    def columns(self) -> list[str]:
        return [name for name in self.spec.schema.names if name != ROWS]

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        come, back = sides_of(rows)
        sides = np.concatenate([come, back])
        if not len(sides):
            return
        rows, table = flatten(rows.select(self.columns)), state.table(self.spec.name)
        # Added rows first, so that the first row of a key is an added one if it has any.
        groups = key_order(hashes[sides], take(self._keys_of(rows), sides))
        signs = np.where(np.arange(len(sides)) < len(come), 1, -1)
        more = np.add.reduceat(signs[groups.order], groups.starts)
        firsts = groups.order[groups.starts]
        of_key, is_new = sides[firsts], firsts < len(come)
        found = table.get(hashes[of_key], take(self._keys_of(rows), of_key))
        counts = more + ZSetTable(self.spec, (ROWS,)).weights_of(found)
        there, gone = np.flatnonzero(counts), np.flatnonzero((counts == 0) & found.present)
        if len(there):
            # The row that came, else the one that was there; of a key that has neither, the one that goes.
            own = np.where(~is_new & found.present, np.cumsum(found.present) - 1 + rows.num_rows, of_key)[there]
            values = take(stack([rows, flatten(found.rows.select(self.columns))]), own)
            put = pa.Table.from_arrays([*values.columns, pa.array(counts[there])], schema=self.spec.schema)
            table.put(hashes[of_key[there]], put, before=select(found, there))
        if len(gone):
            table.delete(hashes[of_key[gone]], take(self._keys_of(rows), of_key[gone]), before=select(found, gone))

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch. Raises `InvalidPipelineError` where a key has several rows."""
        for touched in state.table(self.spec.name).touched_keys():
            counts = flat(touched.after.rows.column(ROWS)).to_numpy()
            wrong = np.flatnonzero(counts != 1)
            if len(wrong):
                keys = take(flatten(self._keys_of(touched.after.rows)), wrong[:_SHOWN_MAX]).to_pylist()
                raise InvalidPipelineError(
                    "several rows have one primary key, so it identifies none: aggregate by it, take one row of each "
                    f"by row_number() = 1, or declare more columns. keys={keys}, rows={counts[wrong[0]]}"
                )
            yield self.table.changes_of(touched)
