"""One state table of adjacent shards within one epoch: deltas in memory above runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.clock import Clock
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import flat, take
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.compaction.merge import scan
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.lookup import get_all
from dagster_ckpt.lsm.runs.deltas import Delta, changing, merge_deltas, slice_delta, touched_rows
from dagster_ckpt.lsm.runs.run import Run, filter_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, Touched
from dagster_ckpt.protocol.manifest.manifest import SortKind
from dagster_ckpt.state.runs.run_layers import Views, view_since
from dagster_ckpt.state.runs.table_runs import ShardedTable, TableRuns, held_rows


class SortedTable:
    """Rows by ascending sort value, here called hash: every array of hashes must ascend.

    Where the change log or the row count needs what a key had before, each delta has it once it is merged or written:
    from the caller of `stage`, or looked up.
    """

    def __init__(self, table: ShardedTable, runs: TableRuns) -> None:
        self._table = table
        self._runs = runs
        self._layers = runs.layers
        self._counted = not table.expires
        self._remembers = table.logged or self._counted
        self._memory = Memtable(table.spec.keys, self._settle if self._remembers else _as_it_is)
        self._more_rows = 0

    @property
    def nbytes(self) -> int:
        """About how much it holds in memory."""
        return self._memory.nbytes

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        """The rows of n distinct keys."""
        return self._layers.find(self._views(), hashes, keys)

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        """The rows under n distinct keys of the first key columns."""
        views = self._views()
        return get_all(views.upper, views.bottom, hashes, keys, self._table.spec)

    def stage(self, run: Run, before: Found | None = None) -> None:
        """Put a run above all others in memory; only tombstones have a null in its time column.

        `before` is what the table holds for the run's keys, in the run's order; None: not looked up.
        """
        if self._layers.since_us is not None:
            run = self._live_rows(run)
        self._memory.stage(Delta(run, before if self._remembers else None))

    def scan(self, within: HashRange) -> Iterator[Run]:
        """The rows of these hashes, ascending, in pieces that fit into memory."""
        views = self._views()
        every = [view.run for view in (*views.upper, *views.bottom)]
        for piece in self._runs.pieces(every, within):
            run = scan(views.upper, views.bottom, piece.lo, piece.hi, self._table.spec.keys)
            if run is not None and len(run):
                yield run

    def touched_keys(self) -> Iterator[Touched]:
        """See `lsm.table.StateTable.touched_keys`."""
        delta = self._memory.one()
        written = [each for level in self._layers.own for each in level.runs]
        if not written:
            if delta is not None:
                yield touched_rows(changing(self._settle(delta)))
            return
        runs = [self._layers.view(each).run for each in written]
        above = [] if delta is None else [self._settle(delta) if self._table.logged else delta]
        for piece in self._runs.pieces([*(each.run for each in above), *runs], self._table.within):
            deltas = [*(slice_delta(each, piece) for each in above), *self._runs.deltas(written, piece)]
            if deltas := [each for each in deltas if len(each)]:
                net = merge_deltas(deltas, self._table.spec.keys)
                yield touched_rows(changing(net if self._table.logged else self._since_before(net)))

    def expire(self, until_us: int) -> None:
        """Drop all rows whose time is before `until_us`."""
        assert not self._table.logged, "rows that expire would be missing from the change log"
        if self._layers.since_us is None or until_us > self._layers.since_us:
            self._layers.expire(until_us)
            self._memory.replace(lambda delta: Delta(self._live_rows(delta.run)))

    def spill(self) -> None:
        """Write all that is in memory as a run, from which it is read from now on."""
        if (delta := self._memory.one()) is not None:
            if self._remembers:
                delta = self._net(self._settle(delta))
            elif self._table.spec.sort is SortKind.HASH:
                delta = Delta(self._date_tombstones(delta.run))
            if len(delta):
                self._runs.add(delta)
        self._memory.clear()

    def flush(self, limits: CompactionLimits, clock: Clock) -> int:
        """Write what is still in memory, at the epoch's end; a table whose rows expire is compacted then.

        Returns for how many milliseconds the epoch stalled because there were far too many runs.
        """
        if not self._table.expires:
            self.spill()
            return 0
        delta = self._memory.one()
        if delta is not None and self._runs.rewrite(delta.run, limits):
            self._memory.clear()
            return 0
        self.spill()
        return self._runs.compact(limits, clock)

    def finish(self) -> tuple[RunLists, int]:
        """Each shard's list of runs, and how many more rows they show, once everything is durable."""
        lists = self._runs.finish()
        if self._counted:
            return lists, self._more_rows
        return lists, held_rows(lists, self._table.ranges) - held_rows(self._table.lists, self._table.ranges)

    def _views(self) -> Views:
        now = self._layers.now
        return Views((*(View(delta.run) for delta in self._memory.deltas), *now.upper), now.bottom)

    def _net(self, delta: Delta) -> Delta:
        assert delta.before is not None, "the delta is settled"
        dead = 0 if delta.run.tombstones is None else int(delta.run.tombstones.sum())
        self._more_rows += len(delta) - dead - int(delta.before.present.sum())
        return changing(delta)

    def _settle(self, delta: Delta) -> Delta:
        """The delta with what its keys have in the runs beneath."""
        return delta if delta.before is not None else self._with_before(delta, self._layers.now)

    def _since_before(self, delta: Delta) -> Delta:
        """The delta with what its keys had in the epoch before."""
        return self._with_before(delta, self._layers.before)

    def _with_before(self, delta: Delta, views: Views) -> Delta:
        return Delta(delta.run, self._layers.find(views, delta.run.hashes, delta.run.columns(self._table.spec.keys)))

    def _live_rows(self, run: Run) -> Run:
        return view_since(run, self._table.spec, self._layers.since_us).between()

    def _date_tombstones(self, run: Run) -> Run:
        """The run with tombstones that have the time of the row they hide, to expire with it; without needless ones."""
        time = self._table.spec.time
        if run.tombstones is None or time is None:
            return run
        dead = np.flatnonzero(run.tombstones)
        keys = take(run.columns(self._table.spec.keys), dead)
        found = self._layers.find(self._layers.now, run.hashes[dead], keys)
        hides = np.zeros(len(run), dtype=np.bool_)
        hides[dead[found.present]] = True
        at = run.table.column_names.index(time)
        times = pc.replace_with_mask(flat(run.table.column(at)), pa.array(hides), flat(found.rows.column(time)))
        dated = run.table.set_column(at, run.table.schema.field(at), times)
        return filter_run(replace(run, table=dated), hides | ~run.tombstones)


def _as_it_is(delta: Delta) -> Delta:
    return delta


_UNMERGED_MAX = 8
"""How many may stay unmerged, and be searched one after another."""


class Memtable:
    """Deltas, newest first. Where there are many, the newest are merged, so that there are ever fewer of greater size.

    Deltas are merged late: an epoch that takes in its rows in one batch never copies them.
    """

    def __init__(self, keys: Sequence[str], settled: Callable[[Delta], Delta]) -> None:
        """`settled` completes a delta before it is merged with others: see `merge_deltas`."""
        self._keys = keys
        self._settled = settled
        self._deltas: list[Delta] = []

    def __bool__(self) -> bool:
        return bool(self._deltas)

    @property
    def deltas(self) -> Sequence[Delta]:
        """All deltas, newest first."""
        return self._deltas

    @property
    def nbytes(self) -> int:
        """About how much the deltas hold."""
        return sum(delta.nbytes for delta in self._deltas)

    def stage(self, delta: Delta) -> None:
        """Put a delta above all others; an empty one is dropped."""
        if len(delta):
            self._deltas.insert(0, delta)
            if len(self._deltas) > _UNMERGED_MAX:
                self._merge(self._alike())

    def one(self) -> Delta | None:
        """All deltas merged into one; None: there are none."""
        self._merge(len(self._deltas))
        return self._deltas[0] if self._deltas else None

    def replace(self, change: Callable[[Delta], Delta]) -> None:
        """Replace each delta."""
        self._deltas = [delta for delta in map(change, self._deltas) if len(delta)]

    def clear(self) -> None:
        """Drop all deltas, which are written now."""
        self._deltas.clear()

    def _alike(self) -> int:
        """How many of the newest to merge: as far down as the next is no greater than all before it."""
        count, rows = 1, len(self._deltas[0])
        while count < len(self._deltas) and len(self._deltas[count]) <= rows:
            rows += len(self._deltas[count])
            count += 1
        return count

    def _merge(self, count: int) -> None:
        if count > 1:
            self._deltas[:count] = [merge_deltas([self._settled(delta) for delta in self._deltas[:count]], self._keys)]
