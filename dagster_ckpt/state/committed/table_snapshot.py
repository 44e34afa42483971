"""All live rows of a state table as one manifest shows it."""

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction.merge import rows_in_any_order, scan
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.runs.deltas import changing, delta_of_run, merge_deltas, touched_rows
from dagster_ckpt.lsm.runs.hash_pieces import cut_pieces, rows_in
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.table import Touched
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, Manifest, RunRef, StateTableSpec
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.runs.run_layers import Layers, Views
from dagster_ckpt.storage.stores.object_store import ObjectStore

PIECE_BYTES = 64 * 1024 * 1024
"""About how much of a table is in memory at once; far below the 2 GiB that an Arrow column of strings holds."""


_HELD_BYTES_MAX = 8 * PIECE_BYTES
"""The most bytes of remote files held open for later shards. In a larger file each shard has so much that reading the
blocks at its edges twice costs little."""

_RowsOf = Callable[[Views, HashRange, Sequence[str]], Sequence[pa.Table]]
"""Finds the live rows with these hashes, in tables of which none is empty."""


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
    return pa.concat_tables([nothing, *live_shards(store, manifest, table, columns, runs)])


def live_shards(
    store: ObjectStore,
    manifest: Manifest,
    table: str,
    columns: Sequence[str] | None = None,
    runs: OpenRuns | None = None,
) -> Iterator[pa.Table]:
    """The same rows, a shard at a time; none is empty. A run that shards share is opened once for all of them."""
    spec = _spec(manifest, table)
    wanted = list(spec.schema.names if columns is None else columns)
    for pieces in _shards(store, spec, manifest.runs.get(table, ()), HashRange(), runs, _by_hash):
        if of_shard := [rows.select(wanted) for rows in pieces]:
            yield pa.concat_tables(of_shard)


def live_pieces(
    store: ObjectStore,
    manifest: Manifest,
    table: str,
    within: HashRange | None = None,
    runs: OpenRuns | None = None,
) -> Iterator[pa.Table]:
    """The rows with these hashes (None: all) in any order, a piece that fits into memory at a time; none is empty."""
    within = within or HashRange()
    # Clips limit the runs to the shard's hashes.
    lists = tuple(
        refs if any(ref.clip.lo <= within.hi and within.lo <= ref.clip.hi for ref in refs) else ()
        for refs in manifest.runs.get(table, ())
    )
    for pieces in _shards(store, _spec(manifest, table), lists, within, runs, _in_any_order):
        yield from pieces


def _by_hash(views: Views, within: HashRange, keys: Sequence[str]) -> list[pa.Table]:
    run = scan(views.upper, views.bottom, within.lo, within.hi, keys)
    return [run.columns()] if run is not None and len(run) else []


def _in_any_order(views: Views, within: HashRange, keys: Sequence[str]) -> list[pa.Table]:
    return rows_in_any_order(views.upper, views.bottom, within.lo, within.hi, keys)


def _shards(
    store: ObjectStore,
    spec: StateTableSpec,
    lists: RunLists,
    within: HashRange,
    runs: OpenRuns | None,
    rows_of: _RowsOf,
) -> Iterator[Iterator[pa.Table]]:
    """The rows with these hashes of each shard that has runs, in pieces; each is used up before the next is taken."""
    shared = _SharedRuns(store, spec, lists, OpenRuns() if runs is None else runs)
    for shard, refs in enumerate(lists):
        shared.hold(shard)
        if refs:
            yield _of_shard(store, spec, refs, within, shared.runs, rows_of)
        shared.release(shard)


class _SharedRuns:
    """Holds runs of a remote store from the first shard that names them to the last one, as many as may be held."""

    def __init__(self, store: ObjectStore, spec: StateTableSpec, lists: RunLists, runs: OpenRuns) -> None:
        self.runs = runs
        self._store = store
        self._schema = spec.schema
        self._lists = lists
        self._last = {ref.name: shard for shard, refs in enumerate(lists) for ref in refs}
        self._held: dict[str, tuple[Run, int]] = {}

    def hold(self, shard: int) -> None:
        """Hold what this shard reads and a later one will."""
        room = _HELD_BYTES_MAX - sum(bytes_ for _, bytes_ in self._held.values())
        for ref in sorted(self._lists[shard], key=lambda ref: ref.bytes):
            again = self._last[ref.name] > shard and ref.name not in self._held
            if again and ref.bytes <= room and self._store.local_path(ref.name) is None:
                self._held[ref.name] = self.runs.run(self._store, ref, self._schema), ref.bytes
                room -= ref.bytes

    def release(self, shard: int) -> None:
        """Close what no later shard reads."""
        for path in [path for path in self._held if self._last[path] <= shard]:
            del self._held[path]


def _of_shard(
    store: ObjectStore,
    spec: StateTableSpec,
    refs: Sequence[RunRef],
    within: HashRange,
    runs: OpenRuns,
    rows_of: _RowsOf,
) -> Iterator[pa.Table]:
    # Clips limit the runs to the shard's hashes.
    views = Layers(spec, (tuple(refs),), [HashRange()], store, runs).before
    every = [view.run for view in (*views.upper, *views.bottom)]
    for piece in cut_pieces(every, within, rows_in(PIECE_BYTES, refs, spec.schema)):
        yield from rows_of(views, piece, spec.keys)


def _spec(manifest: Manifest, table: str) -> StateTableSpec:
    return next(spec for spec in manifest.pipeline.all_tables if spec.name == table)


def changes_of(
    store: ObjectStore,
    manifests: Sequence[Manifest],
    table: str,
    within: HashRange | None = None,
    runs: OpenRuns | None = None,
) -> Iterator[Touched]:
    """The keys that the manifests' epochs changed in their logged table, in pieces that fit into memory.

    The epochs follow one another in one lineage. Each key that any of them touched comes once, by ascending hash: what
    it was before the first of them, and is after the last, which may be the same. `within`: only these hashes. `store`
    is the stream's folder. Files of the change log that are no runs are left out. Raises `CorruptStateError`.
    """
    opened = OpenRuns() if runs is None else runs
    newest_first = [
        ref for manifest in reversed(manifests) for ref in manifest.changes if ref.kind is ChangeKind.RUN
    ]  # the runs of one task are; a key is in those of one task alone
    if not newest_first:
        return
    spec = next(spec for spec in manifests[-1].pipeline.tables if spec.name == table)
    written = [opened.run(store, ref, spec.schema) for ref in newest_first]
    for piece in cut_pieces(written, within or HashRange(), rows_in(PIECE_BYTES, newest_first, spec.schema)):
        deltas = [delta for run in written if len(delta := delta_of_run(run, piece, spec))]
        if deltas:
            yield touched_rows(changing(merge_deltas(deltas, spec.keys)))
