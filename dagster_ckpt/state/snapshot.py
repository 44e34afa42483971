"""All live rows of a state table as one manifest shows it."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dagster_ckpt.lsm.merge import scan
from dagster_ckpt.lsm.pieces import pieces_of, rows_in
from dagster_ckpt.protocol.manifest import HashRange, Manifest, RunRef, StateTableSpec
from dagster_ckpt.state.layers import Layers
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.storage.object_store import ObjectStore

PIECE_BYTES = 64 * 1024 * 1024
"""About how much of a table is in memory at once; far below the 2 GiB that an Arrow column of strings holds."""


def live_rows(
    store: ObjectStore,
    manifest: Manifest,
    table: str,
    columns: Sequence[str] | None = None,
    runs: OpenRuns | None = None,
) -> pa.Table:
    """The rows of all shards, the newest of each key, without tombstones; shard after shard, sorted by hash in each.

    `store` is the stream's folder; `columns` chooses columns and their order. Raises `CorruptStateError`.
    """
    schema = _spec(manifest, table).schema
    nothing = schema.empty_table().select(schema.names if columns is None else list(columns))
    return pa.concat_tables([nothing, *live_pieces(store, manifest, table, columns, runs)])


def live_pieces(
    store: ObjectStore,
    manifest: Manifest,
    table: str,
    columns: Sequence[str] | None = None,
    runs: OpenRuns | None = None,
) -> Iterator[pa.Table]:
    """The same rows, some at a time, each column in one array; none is empty."""
    spec = _spec(manifest, table)
    wanted = list(spec.schema.names if columns is None else columns)
    runs = OpenRuns() if runs is None else runs
    for refs in manifest.runs.get(table, ()):
        if refs:
            yield from (rows.select(wanted) for rows in _of_shard(store, spec, refs, runs))


def _of_shard(store: ObjectStore, spec: StateTableSpec, refs: Sequence[RunRef], runs: OpenRuns) -> Iterator[pa.Table]:
    # Clips say what of the runs is the shard's.
    views = Layers(spec, (tuple(refs),), [HashRange()], store, runs).before
    every = [view.run for view in (*views.upper, *views.bottom)]
    for piece in pieces_of(every, HashRange(), rows_in(PIECE_BYTES, refs)):
        run = scan(views.upper, views.bottom, piece.lo, piece.hi, spec.keys)
        if run is not None and len(run):
            yield run.columns()


def _spec(manifest: Manifest, table: str) -> StateTableSpec:
    return next(spec for spec in manifest.pipeline.tables if spec.name == table)
