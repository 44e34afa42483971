"""The mirror: a copy of an upstream table that updates and deletes rows, or of its rows that match a condition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, StreamTable
from dagster_ckpt.operators.rows.current.counted_rows import CountedRows
from dagster_ckpt.operators.rows.current.keyed_rows import KeyedRows
from dagster_ckpt.operators.rows.current.unique_rows import UniqueRows
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import ROWS_TABLE, InputSpec, Pipeline

NAME = "mirror"
ROWS = ROWS_TABLE
"""The state table: the stream's table."""
UNIQUE = "unique"
"""The parameter of a mirror whose keys the user has declared."""


@dataclass(frozen=True)
class Mirror:
    """The current rows of the upstream, whose net changes are the input: see `KeyedRows` and `CountedRows`."""

    pipeline: Pipeline
    rows: KeyedRows | CountedRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        where: str | None = None,
        *,
        counted: bool = False,
        unique: bool = False,
    ) -> "Mirror":
        """Check the operator; raises `InvalidPipelineError`. The output has all columns but `_change_type`.

        `keys` identify the rows of the upstream's table (`updating_checks.row_key`). If that has rows that may be equal
        (`counted`), they are any columns by which its rows are sent to their shards. `unique`: the user says that they
        identify rows, which is checked. `where` is the text of the condition, or None. It is part of the fingerprint,
        because the kept rows would be wrong under another one. It must depend on the values of a row alone.
        """
        updating_checks.check_changes(source.schema)
        output = pa.schema([field for field in source.schema if field.name != CHANGE_TYPE])
        pipeline_checks.check_columns(output)
        pipeline_checks.check_storable(output)
        rows = _counted(keys, output) if counted else (UniqueRows if unique else KeyedRows).of(ROWS, output, keys)
        options: dict[str, object] = {updating_checks.ROW_KEY: None} if counted else {UNIQUE: True} if unique else {}
        pipeline = Pipeline(
            operator=NAME,
            parameters=updating_checks.parameters(where) | options,
            inputs=(source,),
            keys=keys,
            tables=(rows.spec,),
            output=output,
        )
        return cls(pipeline, rows)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Mirror":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        counted = updating_checks.ROW_KEY in options
        unique = bool(options.get(UNIQUE))
        where = options.get(updating_checks.WHERE)
        return cls.build(pipeline.keys, pipeline.inputs[0], where, counted=counted, unique=unique)

    @property
    def event_times(self) -> tuple[str | None, ...]:
        return (None,)

    @property
    def horizon_us(self) -> int | None:
        return None

    @property
    def table(self) -> StreamTable:
        return self.rows.table

    @property
    def counters(self) -> tuple[str, ...]:
        return ()

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        if isinstance(self.rows, CountedRows):
            below = [name for name in self.rows.columns if name not in self.pipeline.keys]
            hashes = subkey_hashes(hashes, rows.select(below).columns) if below else hashes
        self.rows.change(hashes, rows, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        yield from self.rows.changes(state)


def _counted(keys: tuple[str, ...], output: pa.Schema) -> CountedRows:
    pipeline_checks.check_keys(keys, output)
    return CountedRows.of(ROWS, output)
