"""The current rows of a table that changes and whose rows have no unique key: a bag, as SQL calls it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State, StateTable, Touched
from dagster_ckpt.lsm.value_hashes import is_hashable
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.shared.checks import expiry_checks
from dagster_ckpt.operators.shared.net_changes import labelled, sides_of
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.protocol.change_columns import DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class CountedRows:
    """Each distinct row once, with how often the table has it (`ROWS`).

    Rows are equal as `lsm.columns.equal` has it: null equals null, and floats are compared by their bits. The rows of
    an epoch arrive in any order, so a count may fall below 0 within an epoch, but not at its end.
    """

    spec: StateTableSpec

    @classmethod
    def of(cls, name: str, columns: pa.Schema) -> "CountedRows":
        """The state table `name` for a table with these columns. Raises `InvalidPipelineError`."""
        expiry_checks.check_names_are_free(columns, [ROWS])
        for field in columns:
            if not is_hashable(field.type):
                raise InvalidPipelineError(
                    "rows without a key are found by all their columns, and values of this type cannot be looked up: "
                    f"cast the column, or leave it out. column={field.name}, type={field.type}"
                )
        return cls(StateTableSpec(name, columns.append(whole_number(ROWS)), tuple(columns.names)))

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return list(self.spec.keys)

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Apply rows with a change type, under these hashes: equal rows have equal ones."""
        come, back = sides_of(rows)
        signs = np.empty(rows.num_rows, dtype=np.int64)
        signs[come], signs[back] = 1, -1
        rows = flatten(rows.select(self.columns))
        groups = key_order(hashes, rows)
        more = np.add.reduceat(signs[groups.order], groups.starts) if len(signs) else signs
        changed = np.flatnonzero(more)
        if len(changed):
            firsts = groups.order[groups.starts[changed]]
            self._add(hashes[firsts], take(rows, firsts), more[changed], state.table(self.spec.name))

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch. Raises `CorruptStateError` if more rows were deleted than there were."""
        for touched in state.table(self.spec.name).touched():
            missing = np.count_nonzero(_counts(touched.after) < 0)
            if missing:
                raise CorruptStateError(
                    "rows were deleted that the table does not have, so the state does not fit its input: rebuild it "
                    f"from the beginning with rollback(0). table={self.spec.name}, rows={missing}"
                )
            yield self.changes_of(touched)

    def changes_of(self, touched: Touched) -> Changes:
        """The net changes that follow from changes to some rows: inserts, then deletes."""
        more = _counts(touched.after) - _counts(touched.before)

        def rows() -> pa.Table:
            come, gone = np.flatnonzero(more > 0), np.flatnonzero(more < 0)
            added, removed = chosen(touched.after, come), chosen(touched.before, gone)
            parts = [(INSERT, added, more[come]), (DELETE, removed, -more[gone])]
            return labelled([(kind, self._repeated(found.rows, counts)) for kind, found, counts in parts])

        return Changes(int(np.abs(more).sum()), rows, more_rows=int(more.sum()))

    def table(self, state_rows: pa.Table) -> pa.Table:
        """The rows of the table, from those of the state table: each as often as it is there."""
        return self._repeated(state_rows, flat(state_rows.column(ROWS)).to_numpy())

    def _add(self, hashes: Hashes, rows: pa.Table, more: Positions, table: StateTable) -> None:
        """Change the counts of distinct rows."""
        found = table.get(hashes, rows)
        counts = more + _counts(found)
        there, gone = np.flatnonzero(counts), np.flatnonzero((counts == 0) & found.present)
        if len(there):
            columns = [*take(rows, there).columns, pa.array(counts[there])]
            put = pa.Table.from_arrays(columns, schema=self.spec.schema)
            table.put(hashes[there], put, before=chosen(found, there))
        if len(gone):
            table.delete(hashes[gone], take(rows, gone), before=chosen(found, gone))

    def _repeated(self, rows: pa.Table, counts: Positions) -> pa.Table:
        rows = rows.select(self.columns)
        return rows if (counts == 1).all() else take(flatten(rows), np.repeat(np.arange(len(counts)), counts))


def _counts(found: Found) -> Positions:
    """How often the table has each of the rows."""
    counts = np.zeros(len(found.present), dtype=np.int64)
    counts[found.present] = flat(found.rows.column(ROWS)).to_numpy()
    return counts
