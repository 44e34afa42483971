"""A step of a stream: an operator, and how what it emits becomes the stream's table.

What differs between the two is data of the step, and applied here once:

- Without keys, as in SQL without GROUP BY, the operator has a key column that is always null (`GROUP`). It is in the
  state tables and nowhere else. A null leaves a key's hash at its seed, so all rows are in the first shard, however
  many there are. The group exists from its first row on: until then the table is empty.
- The last step of a stream has a table. Where the operator keeps none of rows that change, a `Materializer` does.
- The table may have other names, and another order of columns, than the operator's output (`Pipeline.columns`), which
  need no other state.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator, Origins, StreamTable
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.late_rows import is_late_table
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.operators.shared.state_columns import GROUP
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

_GROUP_FIELD = pa.field(GROUP, pa.bool_())


@dataclass(frozen=True)
class OperatorStep(Operator):
    """An operator in its place in a stream; `pipeline` is the fingerprint of both."""

    pipeline: Pipeline
    operator: Operator
    materializer: Materializer | None = None

    @classmethod
    def of(cls, operator: Operator) -> "OperatorStep":
        """The step that emits the operator's changes as they are; without keys, if its key is `GROUP`."""
        pipeline = operator.pipeline
        if pipeline.keys == (GROUP,):
            pipeline = replace(
                pipeline,
                keys=(),
                inputs=tuple(replace(each, schema=_without_group(each.schema)) for each in pipeline.inputs),
                tables=tuple(map(_as_written, pipeline.tables)),
                output=_without_group(pipeline.output),
            )
        return cls(pipeline, operator)

    def with_table(self) -> "OperatorStep":
        """The step as the last of a stream. Raises `InvalidPipelineError`."""
        if self.pipeline.appends or self.table is not None:
            return self
        materializer = Materializer.after(self.operator.pipeline)
        tables = (*materializer.pipeline.tables, *self.pipeline.tables)
        return replace(self, pipeline=replace(self.pipeline, tables=tables), materializer=materializer)

    def with_names(self, columns: Mapping[str, str]) -> "OperatorStep":
        """The step with an output of `columns`: each name in the table, in order, and the one that it has now.

        Raises `InvalidPipelineError` for names that a table cannot have.
        """
        now, own = self.pipeline.output, self.pipeline.own.output.names
        assert sorted(columns.values()) == sorted(now.names), "each column of the output has one name"
        output = pa.schema([now.field(column).with_name(name) for name, column in columns.items()])
        pipeline_checks.check_columns(output)
        names = {column: name for name, column in columns.items()}
        pairs = tuple((column, names[self.pipeline.name_of(column)]) for column in own)
        return replace(self, pipeline=replace(self.pipeline, output=output, columns=pairs))

    @property
    def event_times(self) -> tuple[str | None, ...]:
        return self.operator.event_times

    @property
    def horizon_us(self) -> int | None:
        return self.operator.horizon_us

    @property
    def table(self) -> StreamTable | None:
        table = (self.materializer or self.operator).table
        return table.then(self._show, self._show_changes) if table is not None and self._shows_otherwise else table

    @property
    def origins(self) -> Origins:
        found = self.operator.origins
        return {self.pipeline.name_of(own): found[own] for own in self.pipeline.own.output.names if own in found}

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        if self.has_hidden_group:
            rows = with_group(rows, len(hashes))
        return self.operator.on_rows(number, hashes, rows, state, context)

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        return self.emit(self.operator.finish(state, context), state, context)

    def emit(self, changes: Iterator[Changes], state: State, context: EpochContext) -> Iterator[Changes]:
        """The changes of the step's table, or for the next step, from those of the operator."""
        if self.materializer is not None:
            changes = self._materialize(self.materializer, changes, state, context)
        return map(self._show_changes, changes) if self._shows_otherwise else changes

    def hashes_of(self, keys: pa.Table) -> Hashes:
        """The hashes of rows in the state table that the stream's table follows from; `keys` are its key columns."""
        hashes = self._shard_hashes(keys)
        below = [name for name in keys.column_names if name not in self.operator.pipeline.keys]
        return subkey_hashes(hashes, keys.select(below).columns) if below else hashes

    @property
    def has_hidden_group(self) -> bool:
        """Whether the operator has the key `GROUP`."""
        return self.operator.pipeline.keys == (GROUP,)

    def _materialize(
        self, table: Materializer, pieces: Iterator[Changes], state: State, context: EpochContext
    ) -> Iterator[Changes]:
        nothing = inserts(self.operator.pipeline.output.empty_table())
        for changes in pieces:
            if changes.count:
                table.on_rows(0, self._shard_hashes(changes.rows), changes.rows, state, context)
            yield nothing
        yield from table.finish(state, context)

    def _shard_hashes(self, rows: pa.Table) -> Hashes:
        """The hashes by which rows of the operator's output are in their shards."""
        columns = []
        for names in self.operator.shard_keys:
            first, *others = (flat(rows.column(name)) for name in names)
            columns.append(pc.coalesce(first, *others) if others else first)
        return key_hashes(pa.Table.from_arrays(columns, names=list(self.operator.pipeline.keys)))

    @property
    def _shows_otherwise(self) -> bool:
        return self.has_hidden_group or bool(self.pipeline.columns)

    def _show_changes(self, changes: Changes) -> Changes:
        return replace(changes, make=lambda: self._show(changes.rows))

    def _show(self, rows: pa.Table) -> pa.Table:
        """The rows with the table's columns, then those that say what became of a row."""
        if self.has_hidden_group:
            rows = rows.drop_columns([GROUP])
        if not self.pipeline.columns:
            return rows
        named = rows.rename_columns(list(map(self.pipeline.name_of, rows.column_names)))
        there = self.pipeline.output.names
        return named.select([*there, *(name for name in named.column_names if name not in there)])


def one_group(source: InputSpec, build: Callable[[tuple[str, ...], InputSpec], Operator]) -> Operator:
    """The operator over all rows together that `build` makes of keys and an input. Raises `InvalidPipelineError`."""
    for name in source.schema.names:
        if name.casefold() == GROUP:
            raise InvalidPipelineError(f"the state has a column of this name: rename yours. column={name}")
    return build((GROUP,), replace(source, schema=source.schema.append(_GROUP_FIELD)))


def with_group(rows: pa.Table, count: int) -> pa.Table:
    """So many rows with the column `GROUP`. Arrow forgets how many a table without columns has, as a count reads."""
    columns = [*rows.columns, pa.nulls(count, _GROUP_FIELD.type)]
    return pa.Table.from_arrays(columns, schema=rows.schema.append(_GROUP_FIELD))


def _without_group(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != GROUP])


def _as_written(table: StateTableSpec) -> StateTableSpec:
    """Late rows are kept as they came in, before the operator sees them."""
    return replace(table, schema=_without_group(table.schema)) if is_late_table(table.name) else table
