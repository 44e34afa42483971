"""Gives a stream another number of shards, at a person's request, outside of any Dagster run.

Tables sorted by hash are reassigned by the manifest alone. Timelines are rewritten before it, by a writer whose lease
beats meanwhile: so no other writer opens the stream until it is done, unless it is asked to take over.

    a crash                         leaves
    before the stream was opened    nothing
    while timelines are written     the stream as it was, under a new term; files of that term that no manifest names,
                                    which any collector removes once the next term has begun
    after the manifest              the stream with its new number, and a lease that lapses

A timeline's file is sorted by time, so no clip can select the rows of one shard. That is why it is rewritten, and
tables sorted by hash are not. Expired rows are left out, and all new runs are at the bottom.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.ids import SHARDS_MAX, Nonce, Shard, can_be_shards
from dagster_ckpt.lsm.columns import Mask, flat, stack
from dagster_ckpt.lsm.compaction.merge import scan
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.compaction.run_lists import reshard_lists as with_clips
from dagster_ckpt.lsm.runs.hash_pieces import cut_pieces, rows_in
from dagster_ckpt.lsm.runs.run import Run, build_run, filter_run, one_after_another
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import KEY_HASH, Hashes
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.protocol.lease import interruption
from dagster_ckpt.protocol.manifest.codec import encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest, SortKind, StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Stamp, reshard_manifest
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.runs.run_layers import Layers, Views
from dagster_ckpt.state.runs.run_writer import Folder, Level, RunWriter, WrittenRun
from dagster_ckpt.storage.chain.damaged_end import BrokenEnd
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import Pulse
from dagster_ckpt.storage.operations.manual_opening import opening_by_hand
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retry import retrying
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

_PIECES_IN_SOFT_BYTES = 2
"""A piece is held as it is read, as it is split, and as it is written."""


@dataclass(frozen=True)
class TimelineRewrite:
    """Rewrites timelines for `shards` shards; the old number and the new one are powers of two."""

    store: ObjectStore
    engine: Engine
    writer: RunWriter
    shards: int

    def rewritten(self, spec: StateTableSpec, lists: RunLists, done: Callable[[int], None]) -> RunLists:
        """The new lists of a timeline, every file of which is durable.

        Only a piece is in memory at once. `done` is called after each piece with the bytes of old files that it has
        rewritten. Raises `CorruptStateError`. A crash leaves files that no manifest names.
        """
        groups = min(len(lists), self.shards)
        new: list[list[WrittenRun]] = [[] for _ in range(self.shards)]
        for group in range(groups):
            old = lists[group * len(lists) // groups : (group + 1) * len(lists) // groups]
            first = group * self.shards // groups
            for shard, written in self._group(spec, tuple(filter(None, old)), first, groups, done):
                new[shard].append(written)
        self.writer.wait()
        return tuple(tuple(written.ref() for written in of_shard) for of_shard in new)

    def _group(
        self, spec: StateTableSpec, lists: RunLists, first: int, groups: int, done: Callable[[int], None]
    ) -> Iterator[tuple[int, WrittenRun]]:
        """The files of adjacent new shards, from `first` on, made of old shards with these lists."""
        layers = [Layers(spec, (refs,), [HashRange()], self.store, self.engine.runs).before for refs in lists]
        refs = [ref for of_shard in lists for ref in of_shard]
        runs = [view.run for views in layers for view in _every(views)]
        rows_max = rows_in(max(1, self.engine.budget.soft_bytes // _PIECES_IN_SOFT_BYTES), refs, spec.schema)
        pieces = list(cut_pieces(runs, HashRange(), rows_max)) if runs else []
        bytes_ = sum(ref.bytes for ref in refs)
        for number, piece in enumerate(pieces):
            for rows in _rows(layers, piece, spec, rows_max):
                for shard, run in _split(rows, first, self.shards // groups, self.shards):
                    yield shard, self.writer.write(run, Folder(spec, [Shard(shard)], self.shards), piece, Level.BOTTOM)
            done(bytes_ * (number + 1) // len(pieces) - bytes_ * number // len(pieces))


def _rows(layers: Sequence[Views], piece: HashRange, spec: StateTableSpec, rows_max: int) -> Iterator[Run]:
    """All rows of a piece of time, ascending. Where these are far more than `rows_max`, a share of the keys at a time.

    That happens where very many rows have one time, as the ends of windows do. No key is in two of the old shards.
    """
    count = sum(len(part) for views in layers for view in _every(views) for part in view.slices(piece.lo, piece.hi))
    shares = -(-count // rows_max) if count > 2 * rows_max else 1
    for number in range(shares):
        share = _Share(piece, spec.keys, number, shares, rows_max)
        mine = layers if shares == 1 else [share.of(views) for views in layers]
        found = [scan(views.upper, views.bottom, piece.lo, piece.hi, spec.keys) for views in mine]
        parts = [run for run in found if run is not None and len(run)]
        if len(parts) == 1:
            yield parts[0]
        elif parts:
            yield build_run(np.concatenate([run.hashes for run in parts]), stack([run.columns() for run in parts]))


@dataclass(frozen=True)
class _Share:
    """One of several shares of the keys in a piece of time, chosen by the true keys: a tombstone has nothing else."""

    piece: HashRange
    keys: Sequence[str]
    number: int
    shares: int
    rows_max: int

    def of(self, views: Views) -> Views:
        """What these views show of it, in memory."""
        upper, bottom = ([self._view(view) for view in level] for level in (views.upper, views.bottom))
        return Views(tuple(upper), tuple(bottom))

    def _view(self, view: View) -> View:
        step = self.rows_max
        parts = (
            each.slice(at, min(at + step, len(each)))
            for each in view.slices(self.piece.lo, self.piece.hi)
            for at in range(0, len(each), step)
        )
        mine = [filter_run(part, self._has(part)) for part in parts]
        return View(one_after_another(mine) if mine else view.run.without_images().slice(0, 0))

    def _has(self, run: Run) -> Mask:
        hashes = value_hashes(run.columns(self.keys).columns, np.zeros(len(run), dtype=np.uint64))
        mask: Mask = hashes % np.uint64(self.shares) == np.uint64(self.number)
        return mask


def _every(views: Views) -> tuple[View, ...]:
    return (*views.upper, *views.bottom)


def _split(run: Run, first: int, count: int, of: int) -> Iterator[tuple[int, Run]]:
    """The rows of each of these new shards that has any."""
    if count == 1:
        yield first, run
        return
    bounds = np.array([shard_range(first + number, of).lo for number in range(count)], dtype=np.uint64)
    shards = np.searchsorted(bounds, _key_hashes(run.columns([KEY_HASH])), side="right") - 1
    for number in range(count):
        mine = shards == number
        if mine.any():
            yield first + number, filter_run(run, mine)


def _key_hashes(rows: pa.Table) -> Hashes:
    hashes: Hashes = flat(rows.column(KEY_HASH)).to_numpy().view(np.uint64)
    return hashes


Progress = Callable[[int, int], None]
"""Called with the bytes rewritten so far, and the bytes to rewrite in all."""


def reshard(
    root: ObjectStore,
    chain: ManifestChain,
    shards: int,
    take_over: Takeover,
    engine: Engine,
    progress: Progress | None = None,
) -> Manifest:
    """Give a stream, which exists, that number of shards: the manifest that shows its epoch with it.

    `chain` is the stream's, `root` the store that it and its ancestors are in.

    Raises `FencedError` while a writer lives, unless it may be fenced; `InvalidPipelineError` for a number that cannot
    be or that the stream has already; `CorruptStateError` where its newest manifest, or a timeline, is damaged.
    """
    if not can_be_shards(shards) or shards > SHARDS_MAX:
        raise InvalidPipelineError(
            f"shards must be a power of two from 1 to {SHARDS_MAX}: each is a range of the 64-bit key hash. "
            f"shards={shards!r}"
        )
    prove_atomic_create(chain.store, chain.clock)
    end = chain.end()
    assert end is not None, "only what exists can be resharded"
    if isinstance(end, BrokenEnd):
        raise CorruptStateError(end.damage)
    _check(end, shards)
    pulse = Pulse(chain.clock, engine.io.timeout_ms)
    writer = _open(chain, end, take_over, pulse)
    try:
        _check(writer.manifest, shards)  # another process may have been quicker
        report = _RewriteProgress(writer.manifest, progress, pulse)
        manifest = writer.reshard(shards, reshard_runs(writer.manifest, _rewrite(root, writer, shards, engine), report))
    except BaseException as error:
        writer.close(interruption(type(error).__name__))
        raise
    writer.close(f"resharded to {shards}")
    return manifest


def _open(chain: ManifestChain, newest: Manifest, take_over: Takeover, pulse: Pulse) -> StreamWriter:
    """The stream, open with the pipeline that it has, also where a run changes that meanwhile."""
    while True:
        try:
            return open_stream(chain.store, opening_by_hand(chain, newest, "reshard", take_over), chain.clock, pulse)
        except IncompatibleStateError:
            later = chain.newest()
            if later is None or later.pipeline == newest.pipeline:
                raise
            newest = later


def _check(newest: Manifest, shards: int) -> None:
    """Check that the stream can have this number of shards, and has another, before any writer is fenced."""
    if newest.shards == shards:
        raise InvalidPipelineError(
            f"the stream already has this number of shards; nothing changed. stream={newest.stream}, shards={shards}"
        )
    for spec in _timelines(newest):
        if KEY_HASH not in spec.schema.names and any(newest.runs[spec.name]):
            raise InvalidPipelineError(
                f"the stream's state was begun by a release that could not reshard it: start it over with rollback(0) "
                f"and the release that is installed now. stream={newest.stream}, table={spec.name}"
            )
    runs = _without_timelines(newest, shards)
    encode_manifest(
        reshard_manifest(newest, shards, runs, Stamp(Nonce(""), newest.time_ms))
    )  # raises where it is too large


def reshard_runs(shown: Manifest, rewrite: TimelineRewrite, report: Callable[[int], None]) -> dict[str, RunLists]:
    """The runs of all tables for the number of shards that the rewrite is for, every new file durable.

    `report` is called with the bytes of timelines rewritten, piece by piece. Raises `CorruptStateError`.
    """
    runs = _without_timelines(shown, rewrite.shards)
    for spec in _timelines(shown):
        runs[spec.name] = rewrite.rewritten(spec, shown.runs[spec.name], report)
    return runs


def _rewrite(root: ObjectStore, writer: StreamWriter, shards: int, engine: Engine) -> TimelineRewrite:
    store = retrying(with_ancestors(writer.store, root, writer.manifest.ancestors), engine.clock)
    file = FileId(writer.term, writer.manifest.epoch, Shard(0), 0)
    return TimelineRewrite(store, engine, RunWriter(store, file, engine), shards)


def _without_timelines(shown: Manifest, shards: int) -> dict[str, RunLists]:
    nothing: RunLists = ((),) * shards
    return {
        spec.name: nothing if spec.sort is SortKind.TIME else with_clips(shown.runs[spec.name], shards)
        for spec in shown.pipeline.all_tables
    }


def _timelines(shown: Manifest) -> list[StateTableSpec]:
    return [spec for spec in shown.pipeline.all_tables if spec.sort is SortKind.TIME]


@dataclass
class _RewriteProgress:
    """Counts the bytes of timelines that are done, and signals progress to the lease."""

    shown: Manifest
    progress: Progress | None
    pulse: Pulse
    bytes: int = field(default=0, init=False)

    def __call__(self, bytes_: int) -> None:
        self.pulse.sign()
        self.bytes += bytes_
        if self.progress is not None:
            every = (refs for spec in _timelines(self.shown) for refs in self.shown.runs[spec.name])
            self.progress(self.bytes, sum(ref.bytes for refs in every for ref in refs))
