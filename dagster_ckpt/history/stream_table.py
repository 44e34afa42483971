"""A stream's table, made from the objects that one manifest names."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.history.deliveries import check_has_rows
from dagster_ckpt.operators.shared.late_rows import LATE_AT, stored_late_tables
from dagster_ckpt.operators.shared.state_columns import HASH, ROW
from dagster_ckpt.protocol.epochs.upstream import part_count
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.tables import Share, table_rows
from dagster_ckpt.tables.table_changes import PATIENCE

ROWS_A_THREAD = 1 << 18
"""About how many rows of a table a thread must have, or starting it costs more than it saves."""


def table_of(
    store: ObjectStore, clock: Clock, manifest: Manifest, stream: str, columns: Sequence[str] | None
) -> pa.Table:
    """The table that the manifest shows; `store` is the stream's folder. Raises `CorruptStateError`."""
    names = checked_columns(manifest, columns)
    # Batches without columns have no number of rows.
    schema = pa.schema([manifest.pipeline.output.field(name) for name in names or manifest.pipeline.output.names[:1]])
    threads = min(part_count(manifest, ROWS_A_THREAD), pa.cpu_count())

    def of_share(number: int) -> list[pa.RecordBatch]:
        return list(table_rows(store, clock, manifest, schema, Share(number, threads)))

    # Merging runs is the work of one core: shares have no key in common, so each core merges one.
    with ThreadPoolExecutor(threads, thread_name_prefix="dagster-ckpt-read") as pool:
        shares = list(pool.map(of_share, range(threads)))
    table = pa.Table.from_batches(chain.from_iterable(shares), schema)
    return with_epoch(table, stream, manifest).select(names)  # in this order: one without columns would lose its rows


def with_epoch(table: pa.Table, stream: str, shown: Manifest) -> pa.Table:
    """The table with stream and epoch in its schema's metadata: a Parquet file that is written of it keeps them."""
    facts = {"stream": stream, "stream_id": shown.uuid, "epoch": str(shown.epoch), "nonce": shown.epoch_nonce}
    metadata = {f"dagster_ckpt.{name}".encode(): value.encode() for name, value in facts.items() if value is not None}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})


def late_rows_of(store: ObjectStore, clock: Clock, manifest: Manifest, number: int) -> pa.Table:
    """The rows of one of `input_places` (from 0) that came too late. Raises `CorruptStateError`.

    Raises `InvalidPipelineError` for a stream that does not keep them.
    """
    tables = stored_late_tables(manifest.pipeline)
    name = tables[number] if 0 <= number < len(tables) else None
    if name is None:
        raise InvalidPipelineError(
            'the stream keeps no late rows of this input: give its step late="keep", and start the stream over. '
            f"stream={manifest.stream}, input={number}, inputs={len(tables)}"
        )
    rows = live_rows(retrying(store, clock, PATIENCE), manifest, name).drop_columns([HASH, ROW, LATE_AT])
    step = manifest.pipeline.steps[manifest.pipeline.input_places[number][0]]
    return rows.rename_columns(list(map(step.name_of, rows.column_names)))


def checked_columns(manifest: Manifest, columns: Sequence[str] | None) -> list[str]:
    """The columns to read. Raises `InvalidPipelineError` for one that there is not."""
    check_has_rows(manifest)
    there = manifest.pipeline.output.names
    if columns is None:
        return list(there)
    if isinstance(columns, str):
        raise InvalidPipelineError(
            f"columns must be a list of names, such as ['carrier']; this is a single name. columns={columns!r}"
        )
    for name in columns:
        if name not in there:
            raise InvalidPipelineError(
                f"the table has no such column.{did_you_mean(name, there)} "
                f"column={name!r}, columns={there}, stream={manifest.stream!r}"
            )
    return list(columns)
