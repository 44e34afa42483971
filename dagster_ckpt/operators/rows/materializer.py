"""The table that changes make: the last of a stream whose operator keeps no table of its rows has one.

A stream that follows a table of an upstream, and has no step of its own, has it as its step: a copy of that table, or
of its rows that match a condition.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.rows.current.counted_rows import CountedRows
from dagster_ckpt.operators.rows.current.keyed_rows import KeyedRows
from dagster_ckpt.operators.rows.current.unique_rows import UniqueRows
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.checks.updating_checks import ROW_KEY, changes_schema
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import KEPT_TABLE, ROWS_TABLE, InputSpec, Pipeline

NAME = "mirror"
UNIQUE = "unique"
"""The parameter for keys that the user has declared."""


@dataclass(frozen=True)
class Materializer(Operator):
    """The current rows of a table, whose net changes are the input: see `KeyedRows` and `CountedRows`.

    Each row is in the shard of the keys, under a hash of its own.
    """

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
    ) -> "Materializer":
        """Check the copy of an upstream's table; raises `InvalidPipelineError`.

        The output has all columns but `_change_type`. `keys` identify the rows of the upstream's table
        (`updating_checks.row_key`). If that has rows that may be equal (`counted`), they are any columns by which its
        rows are sent to their shards. `unique`: the user says that they identify rows, which is checked. `where` is the
        text of the condition, or None. It is part of the fingerprint, because the kept rows would be wrong under
        another one. It must depend on the values of a row alone.
        """
        options: dict[str, object] = {ROW_KEY: None} if counted else {UNIQUE: True} if unique else {}
        return cls._of(ROWS_TABLE, keys, source, updating_checks.parameters(where) | options)

    @classmethod
    def after(cls, step: Pipeline) -> "Materializer":
        """The table of the changes of a step, by its row key, if there is one. Raises `InvalidPipelineError`."""
        options: dict[str, object] = {ROW_KEY: step.parameters[ROW_KEY]}
        return cls._of(KEPT_TABLE, step.keys, InputSpec((), changes_schema(step)), options)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Materializer":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        counted, unique = ROW_KEY in options, bool(options.get(UNIQUE))
        where = options.get(updating_checks.WHERE)
        return cls.build(pipeline.keys, pipeline.inputs[0], where, counted=counted, unique=unique)

    @classmethod
    def _of(cls, table: str, keys: tuple[str, ...], source: InputSpec, options: dict[str, Any]) -> "Materializer":
        updating_checks.check_changes(source.schema)
        output = pa.schema([field for field in source.schema if field.name != CHANGE_TYPE])
        pipeline_checks.check_columns(output)
        pipeline_checks.check_storable(output)
        more = options.get(ROW_KEY, ())
        rows: KeyedRows | CountedRows
        if more is None:
            pipeline_checks.check_keys(keys, output)
            rows = CountedRows.of(table, output)
        else:
            kind = UniqueRows if options.get(UNIQUE) else KeyedRows
            rows = kind.of(table, output, tuple(dict.fromkeys([*keys, *more])))
        return cls(Pipeline(NAME, options, (source,), keys, (rows.spec,), output), rows)

    @property
    def table(self) -> StreamTable:
        return self.rows.table

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        below = [name for name in self.rows.spec.keys if name not in self.pipeline.keys]
        hashes = subkey_hashes(hashes, rows.select(below).columns) if below else hashes
        self.rows.change(hashes, rows, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        yield from self.rows.changes(state)
