"""A stream's table, made from the objects that one manifest names."""

from collections.abc import Sequence
from difflib import get_close_matches

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import AppendOnly, Operator, from_pipeline
from dagster_ckpt.operators.late import LATE_AT, late_table
from dagster_ckpt.operators.own_columns import ROW
from dagster_ckpt.protocol.manifest import ChangeRef, Manifest
from dagster_ckpt.protocol.manifest_codec import CHANGES
from dagster_ckpt.state import change_log
from dagster_ckpt.state.snapshot import live_rows, live_shards
from dagster_ckpt.storage.indexed_lists import IndexedLists
from dagster_ckpt.storage.object_store import ObjectStore
from dagster_ckpt.storage.patience import Patience
from dagster_ckpt.storage.patient import patient

_PATIENCE = Patience(total_ms=30_000)
"""A table is many requests: all that was read before is lost with the one that fails."""


def table_of(store: ObjectStore, clock: Clock, manifest: Manifest, columns: Sequence[str] | None) -> pa.Table:
    """The table that the manifest shows; `store` is the stream's folder. Raises `CorruptStateError`."""
    names = _checked(manifest, columns)
    if manifest.pipeline.appends:
        schema = pa.schema([manifest.pipeline.output.field(name) for name in names])
        return change_log.read(patient(store, clock, _PATIENCE), files_of(store, clock, manifest), schema)
    operator = from_pipeline(manifest.pipeline)
    assert not isinstance(operator, AppendOnly), "an append-only stream appends"
    return _keyed(patient(store, clock, _PATIENCE), manifest, operator).select(names)


def late_rows_of(store: ObjectStore, clock: Clock, manifest: Manifest, number: int) -> pa.Table:
    """The rows of one input (from 0) that came too late. Raises `CorruptStateError`.

    Raises `InvalidPipelineError` for a stream that does not keep them.
    """
    name = late_table(number)
    if name not in {spec.name for spec in manifest.pipeline.tables}:
        raise InvalidPipelineError(
            'the stream keeps no late rows of this input: give its step late="keep", and begin the stream anew. '
            f"stream={manifest.stream}, input={number}, inputs={len(manifest.pipeline.inputs)}"
        )
    rows = live_rows(patient(store, clock, _PATIENCE), manifest, name)
    return rows.drop_columns([ROW, LATE_AT])


def files_of(store: ObjectStore, clock: Clock, manifest: Manifest) -> tuple[ChangeRef, ...]:
    """The files that are the table of a stream whose table only grows."""
    return IndexedLists(store, CHANGES, clock).entries(manifest.files)


def _keyed(store: ObjectStore, manifest: Manifest, operator: Operator) -> pa.Table:
    shown = operator.logged
    assert shown is not None, "a stream's table that does not only grow is made of a state table"
    # A shard at a time: the operator wants each column in one array, which cannot be larger than 2 GiB.
    tables = [operator.table(rows) for rows in live_shards(store, manifest, shown)]
    return pa.concat_tables([manifest.pipeline.output.empty_table(), *tables])


def _checked(manifest: Manifest, columns: Sequence[str] | None) -> list[str]:
    """The columns to read. Raises `InvalidPipelineError` for one that there is not."""
    there = manifest.pipeline.output.names
    if columns is None:
        return list(there)
    if isinstance(columns, str):
        raise InvalidPipelineError(f"columns is a list of names, not one name. columns={columns!r}")
    for name in columns:
        if name not in there:
            close = get_close_matches(name, there, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise InvalidPipelineError(
                f"the table has no such column.{meant} column={name!r}, columns={there}, stream={manifest.stream!r}"
            )
    return list(columns)
