"""The runs of one table within one epoch, as they become more and, merged, fewer.

A merge takes a piece of the hash range at a time, so that its memory is bounded.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dagster_ckpt.clock import Clock
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction import slices
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, choose_merges, is_rewritten
from dagster_ckpt.lsm.compaction.levels import split_levels
from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs
from dagster_ckpt.lsm.compaction.run_lists import RunLists, SliceMerge, TierMerge, after_merge, with_news
from dagster_ckpt.lsm.runs.deltas import Delta, changing, delta_of_run, merge_deltas, with_before_images
from dagster_ckpt.lsm.runs.hash_pieces import cut_pieces, rows_in
from dagster_ckpt.lsm.runs.run import Run, live
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.protocol.manifest.manifest import RunRef, StateTableSpec
from dagster_ckpt.state.runs.run_layers import EpochLevel, Layers, Views, expire
from dagster_ckpt.state.runs.run_writer import Folder, Level, RunWriter, WrittenRun


@dataclass(frozen=True)
class ShardedTable:
    """A table in some adjacent shards: their hash ranges and, in the epoch before, their run lists.

    `logged`: its new runs are the epoch's change log.
    """

    folder: Folder
    ranges: Sequence[HashRange]
    lists: RunLists
    logged: bool

    @property
    def spec(self) -> StateTableSpec:
        """The table."""
        return self.folder.spec

    @property
    def expires(self) -> bool:
        """Whether its rows do."""
        return self.folder.spec.time is not None

    @property
    def within(self) -> HashRange:
        """The hashes of all these shards."""
        return HashRange(self.ranges[0].lo, self.ranges[-1].hi)


class TableRuns:
    """Writes new runs, carries out merges, and returns each shard's run list at the end."""

    def __init__(
        self, table: ShardedTable, layers: Layers, writer: RunWriter, piece_bytes: int, merge_bytes: int
    ) -> None:
        """About how many bytes are worked at a time, and so how large new files become.

        `piece_bytes` while rows are taken in. `merge_bytes` before that, when memory holds nothing yet: larger, since
        the files of a compaction stay, and each costs every look-up a little.
        """
        self.layers = layers
        self.merged_rows = 0
        self._table = table
        self._writer = writer
        self._lists = table.lists
        self._has_news = False
        self._outputs: list[WrittenRun] = []
        self._superfluous: list[WrittenRun] = []
        self._piece_bytes = piece_bytes
        self._merge_bytes = merge_bytes

    @property
    def name(self) -> str:
        """The table's."""
        return self._table.spec.name

    def compact(self, limits: CompactionLimits, clock: Clock) -> int:
        """Merge runs as compaction chooses. Look-ups go on in the inputs, which show the same rows.

        A table whose rows expire is merged once all was added, since it is known then what has expired; others before.
        Returns for how many milliseconds of it the epoch stalled because there were far too many runs.
        """
        expires = self._table.expires
        if expires:
            self._enter_news()
        stall_ms = 0
        for merge in choose_merges(self._lists, self._table.ranges, limits, expiring=expires):
            began_ms = clock.monotonic_ms()
            self._take(merge, list(self._carry_out(merge)))
            if isinstance(merge, SliceMerge) and merge.urgent:
                stall_ms += clock.monotonic_ms() - began_ms
        return stall_ms

    def rewrite(self, run: Run, limits: CompactionLimits) -> bool:
        """Rewrite a table whose rows expire, with the epoch's changes, where that pays; returns whether it did."""
        if self.layers.own or not is_rewritten(self._lists, self._table.ranges, len(run), limits):
            return False
        now = self.layers.now
        views = Views((View(run), *now.upper), now.bottom)
        merge = SliceMerge(self._table.within, 1, sum(len(view.run) for view in (*views.upper, *views.bottom)))
        self._take(merge, [*self._outputs_of(merge, views, Level.BOTTOM, self._piece_bytes)])
        self._has_news = True
        return True

    def add(self, delta: Delta) -> None:
        """Write an epoch's changes as a run above all others."""
        self.layers.own.insert(0, EpochLevel((self._write(self._run_of(delta), self._table.within, Level.FRESH),)))

    def merge_own(self, levels_max: int) -> bool:
        """Merge levels of this epoch where `levels_max` are of one tier; returns whether it did."""
        own = self.layers.own
        tier = own[0].tier if own else 0
        count = next((at for at, level in enumerate(own) if level.tier != tier), len(own))
        if count < levels_max:
            return False
        inputs = [written for level in own[:count] for written in level.runs]
        own[:count] = [EpochLevel(tuple(self._merge(inputs)), tier + 1)]
        self._superfluous.extend(inputs)
        self.merge_own(levels_max)
        return True

    def pieces(self, runs: Sequence[Run], within: HashRange) -> Iterator[HashRange]:
        """These hashes in pieces of which each fits into memory."""
        return cut_pieces(runs, within, self._rows_in(self._piece_bytes))

    def deltas(self, written: Iterable[WrittenRun], piece: HashRange) -> list[Delta]:
        """The deltas of runs of this epoch, for these hashes."""
        views = [self.layers.view(each) for each in written]
        if self._table.logged:
            return [delta_of_run(view.run, piece, self._table.spec) for view in views]
        return [Delta(view.between(piece.lo, piece.hi)) for view in views]

    def finish(self) -> RunLists:
        """Each shard's list after the epoch, once everything is durable. Raises why a write failed."""
        self._enter_news()
        written = {each.path: each.ref() for each in (*self._outputs, *self._own)}
        lists = tuple(tuple(_durable(ref, written.get(ref.name)) for ref in shard) for shard in self._lists)
        named = {ref.name for shard in lists for ref in shard}
        # A logged run without a key is in no list, but in the change log.
        mine = self._outputs if self._table.logged else (*self._outputs, *self._own)
        for each in (*self._superfluous, *(each for each in mine if each.path not in named)):
            self._writer.delete_later(each.ref())
        return lists

    @property
    def log(self) -> list[RunRef]:
        """The runs of this epoch, newest first, once everything is durable."""
        return [written.ref() for written in self._own]

    @property
    def _own(self) -> list[WrittenRun]:
        return [written for level in self.layers.own for written in level.runs]

    def _enter_news(self) -> None:
        """Enter what this epoch has written into the lists, once, and drop what has expired in it."""
        if not self._has_news:
            for level in reversed(self.layers.own):
                self._lists = with_news(self._lists, self._table.ranges, [each.foreseen for each in level.runs])
            self._has_news = True
        if (since_us := self.layers.since_us) is not None:
            left = ([expire(ref, self._table.spec, since_us) for ref in shard] for shard in self._lists)
            self._lists = tuple(tuple(ref for ref in shard if ref is not None) for shard in left)

    def _carry_out(self, merge: SliceMerge | TierMerge) -> Iterator[WrittenRun]:
        views = self.layers.views(split_levels(self._lists, self._table.ranges), (*self._outputs, *self._own))
        level = Level.MERGED if isinstance(merge, TierMerge) else Level.BOTTOM
        # Before that, what the epoch has still to write is in memory.
        bytes_ = self._piece_bytes if self._has_news else self._merge_bytes
        yield from self._outputs_of(merge, views, level, bytes_)

    def _outputs_of(
        self, merge: SliceMerge | TierMerge, views: Views, level: Level, bytes_: int
    ) -> Iterator[WrittenRun]:
        rows_max = self._rows_in(bytes_)
        for piece, run in outputs_of(merge, views, self._table.spec.keys, self._table.within, rows_max):
            self.merged_rows += len(run)
            yield self._write(run, piece, level)

    def _take(self, merge: SliceMerge | TierMerge, outputs: Sequence[WrittenRun]) -> None:
        """Replace the inputs of a merge by its outputs."""
        self._lists = after_merge(self._lists, self._table.ranges, merge, [each.foreseen for each in outputs])
        self._outputs.extend(outputs)

    def _merge(self, inputs: Sequence[WrittenRun]) -> Iterator[WrittenRun]:
        for piece in self.pieces([self.layers.view(written).run for written in inputs], self._table.within):
            deltas = [delta for delta in self.deltas(inputs, piece) if len(delta)]
            if deltas and len(delta := self._net(merge_deltas(deltas, self._table.spec.keys))):
                self.merged_rows += len(delta)
                yield self._write(self._run_of(delta), piece, Level.MERGED)

    def _rows_in(self, bytes_: int) -> int:
        """About how many rows of the table take `bytes_`."""
        before = (ref for refs in self._table.lists for ref in refs)
        files = (*before, *(written.foreseen for written in self._own))
        return rows_in(bytes_, files, self._table.spec.schema)

    def _net(self, delta: Delta) -> Delta:
        return changing(delta) if self._table.logged else delta

    def _run_of(self, delta: Delta) -> Run:
        if not self._table.logged:
            return delta.run
        assert delta.before is not None, "a change log needs the rows before"
        return with_before_images(delta.run, delta.before, self._table.spec.keys)

    def _write(self, run: Run, clip: HashRange, level: Level) -> WrittenRun:
        return self._writer.write(run, self._table.folder, clip, level)


def held_rows(lists: RunLists, ranges: Sequence[HashRange]) -> int:
    """About how many rows these lists show, where they were not counted: a key that is in two runs counts twice.

    Rounded for each shard, so that the sum over shards is the same however tasks share them.
    """
    return sum(_rows_held(refs, within) for refs, within in zip(lists, ranges, strict=True))


def _rows_held(refs: Sequence[RunRef], within: HashRange) -> int:
    shown = (slices.rows_in(ref, *ref.clip.intersect(within)) * (1 - ref.tombstones / ref.rows) for ref in refs)
    return round(sum(shown))


def _durable(ref: RunRef, written: RunRef | None) -> RunRef:
    """The reference with what is known of its file now."""
    return ref if written is None else replace(ref, bytes=written.bytes, checksum=written.checksum)


Piece = tuple[HashRange, Run]
"""For which hashes a run was made, and the run, never empty."""


def outputs_of(
    merge: SliceMerge | TierMerge, views: Views, keys: Sequence[str], within: HashRange, rows_max: int
) -> Iterator[Piece]:
    """What a merge makes of the runs of a table whose shards have the hashes `within`: ascending, disjoint.

    Each has at most about `rows_max` rows. The views show no expired row, so neither do the outputs.
    """
    match merge:
        case SliceMerge(range=part, files=files, rows=rows):
            every = (*views.upper, *views.bottom)
            for piece in cut_pieces(_runs(every), part, min(rows_max, max(1, -(-rows // files)))):
                yield from _not_empty(piece, _down(views, piece, keys))
        case TierMerge(runs=count):
            upper = views.upper[:count]
            for piece in cut_pieces(_runs(upper), within, rows_max):
                yield from _not_empty(piece, merge_runs(_between(upper, piece), keys))


def _down(views: Views, piece: HashRange, keys: Sequence[str]) -> Run:
    upper, bottom = _between(views.upper, piece), _between(views.bottom, piece)
    if not upper:
        return merge_into([], merge_runs(bottom, keys), keys)
    # Nothing is older than the bottom: a tombstone there hides nothing.
    return merge_into([live(run) for run in bottom if len(run)], merge_runs(upper, keys), keys)


def _runs(views: Sequence[View]) -> list[Run]:
    return [view.run for view in views]


def _between(views: Sequence[View], piece: HashRange) -> list[Run]:
    return [view.between(piece.lo, piece.hi) for view in views]


def _not_empty(piece: HashRange, run: Run) -> Iterator[Piece]:
    if len(run):
        yield piece, run
