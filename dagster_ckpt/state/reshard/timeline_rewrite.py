"""Rewrites a timeline for another number of shards: its rows are split by their key's hash, or brought together.

A timeline's file is sorted by time, so no clip can select the rows of one shard. That is why it is rewritten,
and tables sorted by hash are not. Expired rows are left out, and all new runs are at the bottom.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.columns import Mask, flat, stack
from dagster_ckpt.lsm.compaction.merge import scan
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.runs.hash_pieces import pieces_of, rows_in
from dagster_ckpt.lsm.runs.run import Run, filter_run, one_after_another, run_of
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import KEY_HASH, Hashes
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.runs.run_layers import Layers, Views
from dagster_ckpt.state.runs.run_writer import Folder, Level, RunWriter, WrittenRun
from dagster_ckpt.storage.stores.object_store import ObjectStore

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
        pieces = list(pieces_of(runs, HashRange(), rows_max)) if runs else []
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
            yield run_of(np.concatenate([run.hashes for run in parts]), stack([run.columns() for run in parts]))


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
