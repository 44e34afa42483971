"""The table of a stream under other names, or in another order, than its operator's output has."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Around, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.protocol.manifest.manifest import Pipeline


@dataclass(frozen=True)
class Renamed(Around):
    """An operator whose output has other names, `pipeline.columns`. Its state has those of `inner`.

    So other names, and another order of the columns, need no other state.
    """

    pipeline: Pipeline
    inner: Operator

    @classmethod
    def build(cls, inner: Operator, columns: Mapping[str, str]) -> "Renamed":
        """The operator with an output of `columns`: each name in the table, in order, and that in the inner output.

        Raises `InvalidPipelineError` for names that a table cannot have.
        """
        own = inner.pipeline.output
        assert sorted(columns.values()) == sorted(own.names), "each column of the output has one name"
        output = pa.schema([own.field(column).with_name(name) for name, column in columns.items()])
        pipeline_checks.check_columns(output)
        names = {column: name for name, column in columns.items()}
        pairs = tuple((column, names[column]) for column in own.names)
        return cls(replace(inner.pipeline, output=output, columns=pairs), inner)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, inner: Operator) -> "Renamed":
        """The same operator from its fingerprint, and the operator inside."""
        own = {name: column for column, name in pipeline.columns}
        return cls.build(inner, {name: own[name] for name in pipeline.output.names})

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        return self.inner.on_rows(number, hashes, rows, state, context)

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        return map(self._renamed, self.inner.finish(state, context))

    @property
    def table(self) -> StreamTable | None:
        table = self.inner.table
        return None if table is None else table.then(self._with_names, self._renamed)

    def _renamed(self, changes: Changes) -> Changes:
        return replace(changes, make=lambda: self._with_names(changes.rows))

    def _with_names(self, rows: pa.Table) -> pa.Table:
        """The rows with the table's columns, then those that say what became of a row."""
        beside = [name for name in rows.column_names if name not in self.inner.pipeline.output.names]
        renamed = rows.rename_columns([self.pipeline.name_of(name) for name in rows.column_names])
        return renamed.select([*self.pipeline.output.names, *beside])
