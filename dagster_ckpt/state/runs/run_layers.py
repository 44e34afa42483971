"""The runs of one table beneath its memtable: those this epoch has written, then those before it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction.levels import Levels, VisibleRun, levels_of
from dagster_ckpt.lsm.compaction.run_lists import RunLists
from dagster_ckpt.lsm.lookup.lookup import find_rows, look_up
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.state.runs.run_expiry import view_of_ref, view_since
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
            self._before = self.views(levels_of(self._lists, self._ranges), ())
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
