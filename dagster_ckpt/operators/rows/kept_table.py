"""The table of an operator that yields changes and keeps no table: the last step of a stream has one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Around, Changes, ChangesAlone, EpochContext, StreamTable
from dagster_ckpt.operators.rows.current.counted_rows import CountedRows
from dagster_ckpt.operators.rows.current.keyed_rows import KeyedRows
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.checks.updating_checks import ROW_KEY
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import KEPT_TABLE, Pipeline

TABLE = KEPT_TABLE
"""The state table with the rows, the first of the pipeline: a pipeline that has it is a kept one."""


@dataclass(frozen=True)
class KeptTable(Around):
    """An operator, and the rows that its changes make, from which the stream's table is derived.

    With a row key (`updating_checks.row_key`) there is one state row for each; without one, each distinct row has one,
    with a count. Both are in the shard of the operator's keys, each row under a hash of its own.
    """

    pipeline: Pipeline
    inner: ChangesAlone
    rows: KeyedRows | CountedRows

    @classmethod
    def build(cls, inner: ChangesAlone) -> "KeptTable":
        """Check the operator's output; raises `InvalidPipelineError`."""
        output, keys = inner.pipeline.output, inner.pipeline.keys
        pipeline_checks.check_columns(output)
        pipeline_checks.check_storable(output)
        more = inner.pipeline.parameters[ROW_KEY]
        if more is None:
            rows: KeyedRows | CountedRows = CountedRows.of(TABLE, output)
        else:
            assert isinstance(more, list), "plain JSON values"
            rows = KeyedRows.of(TABLE, output, tuple(dict.fromkeys([*keys, *more])))
        return cls(replace(inner.pipeline, tables=(rows.spec, *inner.pipeline.tables)), inner, rows)

    @property
    def table(self) -> StreamTable:
        return self.rows.table

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        return self.inner.on_rows(number, hashes, rows, state, context)

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        nothing = inserts(self.pipeline.output.empty_table())
        for changes in self.inner.finish(state, context):
            if changes.count:
                self.rows.change(self.hashes(changes.rows), changes.rows, state, context)
            yield nothing
        yield from self.rows.changes(state)

    def hashes(self, rows: pa.Table) -> Hashes:
        """The hashes of rows in the state table: in the shard of their keys, and by the rest of their row key.

        `rows` has at least the columns of the row key.
        """
        hashes = key_hashes(self.inner.shard_keys(rows))
        below = [name for name in self.rows.spec.keys if name not in self.pipeline.keys]
        return subkey_hashes(hashes, rows.select(below).columns) if below else hashes


def is_kept(pipeline: Pipeline) -> bool:
    """Whether the pipeline is that of a `KeptTable`."""
    return bool(pipeline.tables) and pipeline.tables[0].name == TABLE
