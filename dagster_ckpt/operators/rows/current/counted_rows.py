"""The current rows of a table that changes and whose rows have no unique key: a bag, as SQL calls it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.lsm.columns import flat
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.operators.operator import Changes, EpochContext, StreamTable
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.net_changes import copies_of_touched, repeat_rows
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
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
        pipeline_checks.check_hashable(columns, "rows without a key are found by all their columns")
        return cls(StateTableSpec(name, columns.append(whole_number(ROWS)), tuple(columns.names)))

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return list(self.spec.keys)

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Apply rows with a change type, under these hashes: equal rows have equal ones."""
        delta = ZSet.of_changes(hashes, rows, self.columns).consolidate()
        if len(delta):
            self._zset_table.add(delta, state)

    @property
    def table(self) -> StreamTable:
        """The table, from the state table."""
        return StreamTable(self.spec.name, self._rows, self._changes_of)

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch. Raises `CorruptStateError` if more rows were deleted than there were."""
        yield from map(self._changes_of, self._zset_table.epoch_changes(state))

    def _changes_of(self, touched: Touched) -> Changes:
        """The net changes that follow from changes to some rows: inserts, then deletes."""
        before, after = (self._zset_table.weights_of(side) for side in (touched.before, touched.after))
        more = after - before
        return replace(copies_of_touched(touched, more, self.columns), more_rows=int(more.sum()))

    def _rows(self, state_rows: pa.Table) -> pa.Table:
        """The rows of the table, from those of the state table: each as often as it is there."""
        return repeat_rows(state_rows.select(self.columns), flat(state_rows.column(ROWS)).to_numpy())

    @property
    def _zset_table(self) -> ZSetTable:
        return ZSetTable(self.spec, (ROWS,))
