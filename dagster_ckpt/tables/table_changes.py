"""What epochs changed in a stream's table: each epoch's own changes, or what all of them changed together.

`manifests` show the epochs `(after, until]`, each one once and in the order of their lineage. `store` is the stream's
folder. `schema` has any of the table's columns, `_change_type` and, of raw changes, `_epoch`, with the types that the
reader wants; a column that an epoch did not have (it was added later) is null there. `share` is the part of
them that is read. All raise `CorruptStateError`.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.operators import AppendOnly, from_pipeline
from dagster_ckpt.operators.operator import StreamTable
from dagster_ckpt.operators.shared.net_changes import net_of, net_of_equal_rows
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, ChangeRef, Manifest, Pipeline
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.renamed_columns import names_in_files
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.state.committed.table_snapshot import changes_of
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, retrying
from dagster_ckpt.tables.share import Share

PATIENCE = Patience(total_ms=30_000)
"""A table is many requests: one that fails loses all that was read before."""

ALL = Share()


def raw_changes(
    store: ObjectStore,
    clock: Clock,
    manifests: Sequence[Manifest],
    schema: pa.Schema,
    share: Share = ALL,
    runs: OpenRuns | None = None,
) -> Iterator[pa.RecordBatch]:
    """Each epoch's own changes, epoch after epoch; of each key of an epoch at most one, where an update is two rows."""
    store, runs = retrying(store, clock, PATIENCE), runs or OpenRuns()
    for manifest in manifests:
        yield from _of_files(store, manifest, schema, share)
        if any(ref.kind is ChangeKind.RUN for ref in manifest.changes):
            yield from _of_runs(store, [manifest], schema, share, runs, **{EPOCH: manifest.epoch})


def net_changes(
    store: ObjectStore,
    clock: Clock,
    manifests: Sequence[Manifest],
    schema: pa.Schema,
    share: Share = ALL,
    runs: OpenRuns | None = None,
) -> Iterator[pa.RecordBatch]:
    """What the table after the epochs has that it did not have before them, and the other way round.

    At most one change of each key (an update is two rows), and none of one whose row is what it was. In a table that
    only grows these are all rows that came, in their order. `schema` has no `_epoch`, but of a table that only grows.
    """
    store, runs = retrying(store, clock, PATIENCE), runs or OpenRuns()
    if not manifests:
        return
    pipeline = manifests[-1].pipeline
    if pipeline.appends:
        yield from raw_changes(store, clock, manifests, schema, share, runs)
    elif any(map(_files, manifests)):
        raw = pa.schema([*pipeline.output, pa.field(CHANGE_TYPE, pa.string())])
        yield from change_log.change_batches(
            _net_of(raw_changes(store, clock, manifests, raw, ALL, runs), raw, pipeline, share), schema
        )
    else:
        yield from _of_runs(store, manifests, schema, share, runs)


def table_step(pipeline: Pipeline) -> tuple[OperatorStep, StreamTable]:
    """The last step of a stream whose table does not only grow, and that table."""
    assert not pipeline.appends, "a table that only grows is made of its files"
    step = from_pipeline(pipeline)
    assert not isinstance(step, AppendOnly), "an append-only stream appends"
    assert step.table is not None, "a table that does not only grow is made of a state table"
    return step, step.table


def _of_runs(
    store: ObjectStore,
    manifests: Sequence[Manifest],
    schema: pa.Schema,
    share: Share,
    runs: OpenRuns,
    **constants: object,
) -> Iterator[pa.RecordBatch]:
    _, table = table_step(manifests[-1].pipeline)
    for touched in changes_of(store, manifests, table.name, share.within, runs):
        changes = table.changes_of(touched)
        if changes.count:
            yield from change_log.change_batches(changes.rows, schema, **constants)


def _of_files(store: ObjectStore, manifest: Manifest, schema: pa.Schema, share: Share) -> Iterator[pa.RecordBatch]:
    """The changes that are written as files: all of a table that only grows, and what a rebuild has changed."""
    yield from change_log.batches(store, share.files(_files(manifest)), schema, names_in_files(manifest.pipeline))


def _net_of(raw: Iterator[pa.RecordBatch], schema: pa.Schema, pipeline: Pipeline, share: Share) -> pa.Table:
    """The net of changes of which some are in files. These are not sorted by hash, so each share reads all of them."""
    key = row_key(pipeline)
    if key:
        return net_of(pa.Table.from_batches((_within(share, batch, key) for batch in raw), schema), key).rows
    rows = schema.empty_table() if share.number else pa.Table.from_batches(raw, schema)
    return (net_of_equal_rows(rows) if key is None else net_of(rows, ())).rows


def _within(share: Share, batch: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """The rows of the keys that are in the share, whatever the state's order."""
    hashes = value_hashes(batch.select(list(key)).columns, np.zeros(batch.num_rows, dtype=np.uint64))
    return batch.filter(pa.array(hashes % np.uint64(share.of) == share.number))


def _files(manifest: Manifest) -> list[ChangeRef]:
    return [ref for ref in manifest.changes if ref.kind is ChangeKind.FILE]
