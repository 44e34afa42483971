"""The runs of one table beneath its memtable: those this epoch has written, then those before it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.compaction.levels import Levels, VisibleRun, split_levels
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.lookup import find_rows, look_up
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.runs.view import EVERYTHING, View
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.protocol.manifest.manifest import RunRef, SortKind, StateTableSpec, TimeRange
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.runs.run_writer import WrittenRun
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True)
class Views:
    """Runs as lookups want them: `upper` newest first, and beneath them `bottom`, disjoint and ascending."""

    upper: tuple[View, ...]
    bottom: tuple[View, ...]


@dataclass(frozen=True)
class EpochLevel:
    """Runs that this epoch has written, no key in two of them. `tier` counts how often their rows were merged in it."""

    runs: tuple[WrittenRun, ...]
    tier: int = 0


class Layers:
    """`lists` are the runs of adjacent shards with these hash ranges in the epoch before; opened when first needed.

    `own` are the levels of this epoch, newest first. Any call that opens a run may raise `CorruptStateError`, and for a
    run of this epoch the error of its write.
    """

    def __init__(
        self,
        spec: StateTableSpec,
        lists: RunLists,
        ranges: Sequence[HashRange],
        store: ObjectStore,
        runs: OpenRuns,
    ) -> None:
        self.own: list[EpochLevel] = []
        self._spec = spec
        self._lists = lists
        self._ranges = ranges
        self._store = store
        self._runs = runs
        self._since_us: int | None = None
        self._before: Views | None = None

    @property
    def since_us(self) -> int | None:
        """Rows whose time is before it have expired in this epoch."""
        return self._since_us

    def expire(self, until_us: int) -> None:
        """Hide the rows whose time is before `until_us`."""
        self._since_us = until_us
        self._before = None

    @property
    def before(self) -> Views:
        """The runs before the epoch."""
        if self._before is None:
            self._before = self.views(split_levels(self._lists, self._ranges), ())
        return self._before

    @property
    def now(self) -> Views:
        """All runs: this epoch's above those before it."""
        own = tuple(self.view(written) for level in self.own for written in level.runs)
        return Views((*own, *self.before.upper), self.before.bottom)

    def views(self, levels: Levels, written: Iterable[WrittenRun]) -> Views:
        """These levels, in which some runs may be the ones that were written in this epoch."""
        fresh = {each.path: each for each in written}
        placed = (each.ref for level in (levels.upper, levels.bottom) for each in level)
        _held = self._runs.side_by_side(
            self._store, (ref for ref in placed if ref.name not in fresh), self._spec.schema
        )
        upper, bottom = (tuple(self._view_of(each, fresh) for each in level) for level in (levels.upper, levels.bottom))
        return Views(upper, bottom)

    def view(self, written: WrittenRun) -> View:
        """A run of this epoch: in memory until it is durable, then mapped."""
        run = written.in_memory or self._runs.run(self._store, written.ref(), self._spec.schema)
        return view_since(run, self._spec, self._since_us)

    def find(self, views: Views, hashes: Hashes, keys: pa.Table) -> Found:
        """The rows of n distinct keys, ascending by hash, in these views."""
        answer = look_up(views.upper, views.bottom, hashes, keys, self._spec.schema)
        return find_rows(answer.parts, keys, self._spec.schema)

    def _view_of(self, placed: VisibleRun, fresh: dict[str, WrittenRun]) -> View:
        if (written := fresh.get(placed.ref.name)) is not None:
            run = self.view(written).run
        else:
            run = self._runs.run(self._store, placed.ref, self._spec.schema)
        return view_of_ref(run, self._spec, placed.ref, placed.shown, self._since_us)


_SORT_VALUE_OF_ZERO = 2**63


def sort_value(time_us: int) -> int:
    """What a run that is sorted by time has in place of a hash: times before 1970 come first."""
    return time_us + _SORT_VALUE_OF_ZERO


def expire(ref: RunRef, spec: StateTableSpec, since_us: int) -> RunRef | None:
    """The reference without rows whose time is before `since_us`; None: none is left.

    The time of a key never decreases, and a tombstone has the time of the row that it hides. So where a row or a
    tombstone has expired, all older versions of its key have too.
    """
    assert ref.times is not None, f"a run of a table with times has none. file={ref.name}"
    if ref.times.greatest_us < since_us:
        return None
    if spec.sort is SortKind.TIME:
        lo = max(ref.clip.lo, sort_value(since_us))
        return replace(ref, clip=HashRange(lo, ref.clip.hi)) if lo <= ref.clip.hi else None
    return replace(ref, times=TimeRange(max(ref.times.least_us, since_us), ref.times.greatest_us))


def view_since(run: Run, spec: StateTableSpec, since_us: int | None, shown: tuple[HashRange, ...] = EVERYTHING) -> View:
    """The view of a run without rows whose time is before `since_us`."""
    if since_us is None:
        return View(run, shown)
    if spec.sort is SortKind.TIME:
        return View(run, _from(shown, sort_value(since_us)))
    return View(run, shown, since_us, spec.time)


def view_of_ref(
    run: Run, spec: StateTableSpec, ref: RunRef, shown: tuple[HashRange, ...], since_us: int | None
) -> View:
    """The view of a run as its reference shows it, where rows before `since_us` have expired since."""
    if ref.times is None or spec.sort is SortKind.TIME:
        return view_since(run, spec, since_us, shown)
    return view_since(run, spec, ref.times.least_us if since_us is None else max(ref.times.least_us, since_us), shown)


def _from(shown: tuple[HashRange, ...], lo: int) -> tuple[HashRange, ...]:
    if lo > HASH_MAX:
        return ()
    return tuple(HashRange(max(each.lo, lo), each.hi) for each in shown if each.hi >= lo)
