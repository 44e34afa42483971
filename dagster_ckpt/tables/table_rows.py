"""The rows of a stream's table as an epoch shows it."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH, INSERT
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, Manifest
from dagster_ckpt.protocol.transitions.renamed_columns import names_in_files
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.state.committed.table_snapshot import live_pieces
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_changes import ALL, PATIENCE, table_step


def table_rows(
    store: ObjectStore,
    clock: Clock,
    manifest: Manifest,
    schema: pa.Schema,
    share: Share = ALL,
    runs: OpenRuns | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of the table that the manifest shows, in no particular order; `store` is the stream's folder.

    `schema` has any of the table's columns, with the types that the reader wants them in. It may have `_change_type`
    (each row is an insert) and `_epoch` too: the epoch that brought the row where the table only grows, else the one
    that the manifest shows. Raises `CorruptStateError`.
    """
    store = retrying(store, clock, PATIENCE)
    if manifest.pipeline.appends:
        files = share.files(files_of(store, clock, manifest))
        yield from change_log.batches(store, files, schema, names_in_files(manifest.pipeline))
        return
    _, table = table_step(manifest.pipeline)
    for rows in live_pieces(store, manifest, table.name, share.within, runs):
        yield from change_log.change_batches(table.rows(rows), schema, **{EPOCH: manifest.epoch, CHANGE_TYPE: INSERT})


def files_of(store: ObjectStore, clock: Clock, manifest: Manifest) -> tuple[ChangeRef, ...]:
    """The files that are the table of a stream whose table only grows."""
    return IndexedLists(store, CHANGES, clock).entries(manifest.files)
