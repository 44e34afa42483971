"""The rows of some keys of a stream's table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, time
from math import isnan
from typing import cast

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.operators.shared.state_columns import GROUP
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline, StateTableSpec
from dagster_ckpt.protocol.manifest.row_key import HOW_TO_A_KEY, row_key
from dagster_ckpt.state.committed.point_reads import rows_of_keys
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.tables.table_changes import PATIENCE, table_step

Keys = Mapping[str, Sequence[object]]
"""The values of each column of the key, equally many: row i is a key. Arrow and numpy arrays are accepted."""


def key_rows(
    store: ObjectStore, clock: Clock, manifest: Manifest, keys: Keys | pa.Table, runs: OpenRuns | None = None
) -> pa.Table:
    """The rows of these keys in the table that the manifest shows; `store` is the stream's folder.

    In the order of the keys; one that has no row is left out. Opens only the files that may have them. Raises
    `InvalidPipelineError` for keys that cannot be this table's, and for a table without a key; `CorruptStateError`.
    """
    pipeline = manifest.pipeline
    if pipeline.appends or row_key(pipeline) is None:
        what = "a stream that only appends" if pipeline.appends else "a table whose rows may be equal"
        raise InvalidPipelineError(
            f"{what} has no key to find rows by: read its table, and filter it; {HOW_TO_A_KEY}. "
            f"operator={pipeline.operator}, stream={manifest.stream!r}"
        )
    step, table = table_step(pipeline)
    spec = next(spec for spec in pipeline.tables if spec.name == table.name)
    visible = tuple(name for name in spec.keys if name != GROUP)
    if not visible:
        raise InvalidPipelineError(
            f"the stream's table has one row and no key: read the table. stream={manifest.stream!r}"
        )
    asked = _typed_keys(keys, _as_readers_see(spec, visible, pipeline), manifest.stream).rename_columns(list(visible))
    if visible != spec.keys:
        asked = asked.add_column(0, spec.schema.field(GROUP), pa.nulls(asked.num_rows, pa.bool_()))
    hashes = step.hashes_of(asked)
    found = rows_of_keys(retrying(store, clock, PATIENCE), manifest, spec.name, hashes, asked, runs)
    return table.rows(found.rows)


def _as_readers_see(spec: StateTableSpec, keys: Sequence[str], pipeline: Pipeline) -> StateTableSpec:
    """The key of the state table under the names that it has in the stream's table."""
    fields = [spec.schema.field(key).with_name(pipeline.name_of(key)) for key in keys]
    return replace(spec, schema=pa.schema(fields), keys=tuple(field.name for field in fields))


def _typed_keys(keys: Keys | pa.Table, spec: StateTableSpec, stream: str) -> pa.Table:
    """The keys with the table's types. Raises `InvalidPipelineError`."""
    if isinstance(keys, pa.Table):
        keys = dict(zip(keys.column_names, keys.columns, strict=True))
    if not isinstance(keys, Mapping):
        raise InvalidPipelineError(
            f'keys are columns with values: {{"{spec.keys[0]}": [...]}}. keys={type(keys).__name__}, stream={stream!r}'
        )
    for name in keys:
        if name not in spec.keys:
            raise InvalidPipelineError(
                f"this column is not in the key.{did_you_mean(name, spec.keys)} "
                f"column={name!r}, key={list(spec.keys)}, stream={stream!r}"
            )
    if missing := [name for name in spec.keys if name not in keys]:
        raise InvalidPipelineError(
            f"a row is found by its whole key: give values of these columns too. missing={missing}, "
            f"key={list(spec.keys)}, stream={stream!r}"
        )
    schema = pa.schema([spec.schema.field(name) for name in spec.keys])
    columns = [_column(keys[field.name], field, stream) for field in schema]
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(f"{name}={len(column)}" for name, column in zip(spec.keys, columns, strict=True))
        raise InvalidPipelineError(f"each column of the key has as many values. {sizes}, stream={stream!r}")
    return pa.Table.from_arrays(columns, schema=schema)


def _column(values: object, field: pa.Field, stream: str) -> pa.Array:
    refused: object = None
    if isinstance(values, str | bytes):
        refused = "one value, not a list of values"
    else:
        try:
            if isinstance(values, pa.Array | pa.ChunkedArray):
                return pa.chunked_array(values).cast(field.type).combine_chunks()
            if hasattr(values, "dtype"):
                return pa.array(values, field.type)
            there = list(cast("Iterable[object]", values))  # anything else is refused below
            column = pa.array(there, field.type)
            if (cut := next((each for each in there if _is_cut(each, field.type)), None)) is None:
                return column
            refused = f"{cut!r} would have to be cut"
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            refused = error
    raise InvalidPipelineError(
        f"these are no values of the key's column. column={field.name!r}, type={field.type}, reason={str(refused)!r}, "
        f"stream={stream!r}"
    )


def _is_cut(value: object, type_: pa.DataType) -> bool:
    """Whether Arrow would truncate the value, and so find the row of another key."""
    if isinstance(value, float):
        return pa.types.is_integer(type_) and not value.is_integer() and not isnan(value)
    return isinstance(value, datetime) and pa.types.is_date(type_) and value.time() != time()
