"""One group of all rows: the operator of a step without keys, as in SQL without GROUP BY.

Inside is the ordinary operator, with a key column that is always null (`GROUP`). It is in the state tables and nowhere
else: not in the input's columns, not in the stream's table. A null leaves a key's hash at its seed, so all rows are in
the first shard, however many there are. The group exists from its first row on: until then the table is empty.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import Around, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.shared.late_rows import is_late_table
from dagster_ckpt.operators.shared.state_columns import GROUP
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

_FIELD = pa.field(GROUP, pa.bool_())


@dataclass(frozen=True)
class OneGroup(Around):
    """An operator over all rows together. `inner` is the same operator with the key column `GROUP`."""

    pipeline: Pipeline
    inner: Operator

    @classmethod
    def build(cls, source: InputSpec, inner: Callable[[tuple[str, ...], InputSpec], Operator]) -> "OneGroup":
        """The operator that `inner` makes of keys and an input. Raises `InvalidPipelineError`."""
        for name in source.schema.names:
            if name.casefold() == GROUP:
                raise InvalidPipelineError(f"the state has a column of this name: rename yours. column={name}")
        return cls.around(inner((GROUP,), _with_group(source)))

    @classmethod
    def around(cls, operator: Operator) -> "OneGroup":
        """The operator of all rows together, from one with the key column `GROUP`."""
        pipeline = replace(
            operator.pipeline,
            keys=(),
            inputs=tuple(replace(each, schema=_bare(each.schema)) for each in operator.pipeline.inputs),
            tables=tuple(map(_as_it_is_written, operator.pipeline.tables)),
            output=_bare(operator.pipeline.output),
        )
        return cls(pipeline, operator)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, inner: Callable[[Pipeline], Operator]) -> "OneGroup":
        """The same operator from its fingerprint. `inner` makes the ordinary one of a fingerprint."""
        return cls.build(pipeline.inputs[0], lambda keys, source: inner(replace(pipeline, keys=keys, inputs=(source,))))

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        # By the hashes, since Arrow forgets how many rows a table has that has no columns, as that of a count alone.
        columns = [*rows.columns, pa.nulls(len(hashes), _FIELD.type)]
        grouped = pa.Table.from_arrays(columns, schema=rows.schema.append(_FIELD))
        return self.inner.on_rows(number, hashes, grouped, state, context)

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        return map(_bare_changes, self.inner.finish(state, context))

    @property
    def table(self) -> StreamTable | None:
        table = self.inner.table
        return None if table is None else table.then(lambda rows: rows.drop_columns([GROUP]), _bare_changes)


def _with_group(source: InputSpec) -> InputSpec:
    return replace(source, schema=source.schema.append(_FIELD))


def _bare(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != GROUP])


def _as_it_is_written(table: StateTableSpec) -> StateTableSpec:
    """Late rows are kept as they came in, before the operator sees them."""
    return replace(table, schema=_bare(table.schema)) if is_late_table(table.name) else table


def _bare_changes(changes: Changes) -> Changes:
    return replace(changes, make=lambda: changes.rows.drop_columns([GROUP]))
