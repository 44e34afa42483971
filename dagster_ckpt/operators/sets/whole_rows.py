"""Rows that are found by all their columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import flat
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.operator import EVENT_TIMES, KEYS, Origins
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.arrays import lists
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.net_changes import signs_of
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec


def both_origins(step: Pipeline) -> Origins:
    """The origins of columns that have the values of both inputs."""
    return {name: [(0, name), (1, name)] for name in step.output.names}


@dataclass(frozen=True)
class WholeRows:
    """The rows of inputs with equal columns. `keys` are the columns by whose hash rows are sent to their shard.

    Floats are compared by their bits, which `net` therefore makes alike: one zero and one NaN, as in Spark.
    """

    schema: pa.Schema
    keys: tuple[str, ...]

    @classmethod
    def of(cls, step: str, inputs: Sequence[InputSpec], added: Sequence[str]) -> "WholeRows":
        """Check the inputs of a step, whose state adds the columns `added`. Raises `InvalidPipelineError`."""
        first, *others = map(_columns, inputs)
        for other in others:
            if (other.names, other.types) != (first.names, first.types):
                raise InvalidPipelineError(
                    f"{step} needs two inputs with the same columns and types, in the same order: select and cast "
                    f"them. left={_columns_text(first)}, right={_columns_text(other)}"
                )
        nullable = [any(each.field(at).nullable for each in (first, *others)) for at in range(len(first))]
        schema = pa.schema([field.with_nullable(null) for field, null in zip(first, nullable, strict=True)])
        pipeline_checks.check_columns(schema)
        pipeline_checks.check_storable(schema)
        expiry_checks.check_names_are_free(schema, list(added))
        pipeline_checks.check_hashable(schema, f"{step} compares whole rows")
        keys = tuple(field.name for field in schema if pipeline_checks.is_key(field.type))
        if not keys:
            raise InvalidPipelineError(
                f"{step} sends rows to shards by columns that are integers, strings, binary, booleans, dates, "
                f"timestamps or decimals: add or cast one. columns={_columns_text(schema)}"
            )
        return cls(schema, keys)

    @property
    def row_key(self) -> list[str] | None:
        """The columns that identify a row besides `keys`, if equal rows are there once; None if some cannot be keys."""
        return [] if set(self.keys) == set(self.schema.names) else None

    def net(self, hashes: Hashes, rows: pa.Table) -> ZSet:
        """Rows with the hashes of their keys; `_change_type`, if there is one, says which are retracted."""
        columns = [_alike(flat(rows.column(name))) for name in self.schema.names]
        table = pa.Table.from_arrays(columns, schema=self.schema)
        return ZSet(self.hashes(hashes, table), table, signs_of(rows)).consolidate()

    def hashes(self, hashes: Hashes, rows: pa.Table) -> Hashes:
        """The hashes of whole rows, from those of their keys."""
        below = [name for name in self.schema.names if name not in self.keys]
        return subkey_hashes(hashes, rows.select(below).columns) if below else hashes

    def weights_table(self, name: str, once: Sequence[bool], *, weighs: bool = True) -> ZSetTable:
        """The state table of this name with the rows of so many inputs; of a set, if none `weighs`."""
        names = weight_names(len(once)) if weighs else ()
        schema = pa.schema([*self.schema, *map(whole_number, names)])
        return ZSetTable(StateTableSpec(name, schema, tuple(self.schema.names)), names, tuple(once))


def weight_names(inputs: int) -> tuple[str, ...]:
    """The state columns with how often each input has a row."""
    return tuple(f"_rows_{number}" for number in range(inputs))


def parameters(
    rows: WholeRows,
    inputs: Sequence[InputSpec],
    row_key: list[str] | None,
    wheres: Sequence[str | None],
    event_times: Sequence[str | None],
    *,
    appends: bool,
) -> dict[str, object]:
    """The part of a step's fingerprint that all steps over whole rows have, as plain JSON values.

    A set operation judges no row by its event time: that is for the steps after it.
    """
    options: dict[str, object] = {KEYS: [list(rows.keys)] * len(inputs)} if len(inputs) > 1 else {}
    if not appends:
        options[updating_checks.ROW_KEY] = row_key
    if any(wheres):
        options[updating_checks.WHERE] = list(wheres)
    if any(event_times):
        options[EVENT_TIMES] = list(event_times)
    return options


def wheres_of(pipeline: Pipeline) -> Sequence[str | None]:
    """The text of the condition on each input, from `parameters`; None for an input without one."""
    wheres: Any = pipeline.parameters.get(updating_checks.WHERE, [None] * len(pipeline.inputs))
    return tuple(wheres)


def changing(source: InputSpec) -> bool:
    """Whether the input updates and deletes rows."""
    return CHANGE_TYPE in source.schema.names


def _columns(source: InputSpec) -> pa.Schema:
    return pa.schema([field for field in source.schema if field.name != CHANGE_TYPE])


def _columns_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _alike(column: pa.Array) -> pa.Array:
    return or_null(lists.alike(column), has_value(column))
