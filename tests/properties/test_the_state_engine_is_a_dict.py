"""Anything an operator, a crash, a writer and compaction may do; keys that share hashes; limits as small as can be."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import count, pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.table import Touched
from dagster_ckpt.state.committed.table_snapshot import changes_of
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import Epochs, engine
from tests.unit.state.model import (
    EVENTS,
    GROUPS,
    SEEN,
    SHARDS,
    SPECS,
    Key,
    Model,
    Tasks,
    answered,
    hashes_of,
    plain,
    read,
)
from tests.worlds.examples import examples

NAMES, PARTS = ["", "a", "b", "ab", None], [0, 1, 2]
KEYS = st.tuples(st.sampled_from(NAMES), st.sampled_from(PARTS))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.none()
NOTES = st.lists(st.text("xyz", max_size=3) | st.none(), max_size=2).map(tuple) | st.none()
TIMES = st.integers(-20, 20)
LAYOUTS = st.sampled_from([[], [8], [4], [4, 8, 12]])
"""Where, in sixteenths of all hashes, one task ends and the next begins."""
LIMITS = st.builds(
    CompactionLimits,
    merge_cost=st.sampled_from([0.01, 1.0, 8.0]),
    depth_min=st.integers(1, 3),
    depth_max=st.integers(3, 6),
    small_rows=st.sampled_from([0, 2, 8]),
    small_bytes=st.sampled_from([0, 1 << 24]),
    tier_runs=st.integers(2, 4),
    slice_rows_min=st.sampled_from([1, 4]),
    file_bytes_max=st.sampled_from([100, 1 << 28]),
    # Nothing that expires is written anew, what is small, everything.
    upper_share=st.sampled_from([1000.0, 0.25, 0.0]),
    expiring_small_share=st.sampled_from([0.0, 0.5]),
    expiring_rows_min=st.sampled_from([1, 4, 1000]),
)
STORES = count()


class Engine(RuleBasedStateMachine):
    """The model is one for each committed epoch, and one for the epoch in work."""

    @initialize(
        distinct=st.sampled_from([1, 2, 5, 1000]),
        limits=LIMITS,
        memory_bytes=st.sampled_from([1, 4000, 1 << 28]),
        logged=st.sampled_from([GROUPS.name, None]),
        relieves=st.booleans(),
    )
    def start(
        self,
        distinct: int,
        limits: CompactionLimits,
        memory_bytes: int,
        logged: str | None,
        relieves: bool = True,
    ) -> None:
        self.relieves = relieves
        self.distinct = distinct
        self.new_engine = partial(engine, limits, memory_bytes, levels_max=2)
        store = MemoryObjectStore(f"dict-{next(STORES)}")
        self.epochs = Epochs(store, SPECS, engine=self.new_engine(), shards=SHARDS, logged=logged)
        self.committed = [Model()]
        self.latest: dict[Key, int] = {}
        self.has_times = self.has_rolled_back = False
        self._begin([])

    def _begin(self, layout: list[int]) -> None:
        shards = self.epochs.newest.shards
        edges = sorted({0, *(cut * shards // 16 for cut in layout), shards})
        groups = [list(range(*pair)) for pair in pairwise(edges)]
        self.tasks = Tasks([self.epochs.begin(group) for group in groups], groups, shards)
        self.now = self.committed[-1].copy()
        self.said: set[Key] = set()
        self.since_us = (-100, -100)

    def _said(self) -> None:
        """As a task does after each chunk of rows; with the least memory that flushes every table, and often merges."""
        if self.relieves:
            for state in self.tasks.states:
                state.relieve()

    @rule(rows=st.dictionaries(KEYS, st.tuples(NUMBERS, NOTES), max_size=6))
    def put(self, rows: dict[Key, tuple[int | None, tuple[str | None, ...] | None]]) -> None:
        table = {key: (*key, *row) for key, row in rows.items()}
        self.tasks.put(GROUPS, hashes_of(table, self.distinct), list(table.values()))
        self.now.groups |= table
        self.said |= set(table)
        self._said()

    @rule(number=NUMBERS)
    def put_every_key(self, number: int | None) -> None:
        """Makes a run so great that the next few are merged without it."""
        self.put({(name, part): (number, None) for name in NAMES for part in PARTS})

    @rule(keys=st.sets(KEYS, max_size=6))
    def delete(self, keys: set[Key]) -> None:
        self.tasks.delete(GROUPS, hashes_of(keys, self.distinct), [(*key, None, None) for key in keys])
        self.now.groups = {key: row for key, row in self.now.groups.items() if key not in keys}
        self.said |= keys
        self._said()

    @rule(keys=st.lists(KEYS, unique=True, max_size=8))
    def get(self, keys: list[Key]) -> None:
        rows = [(*key, None, None) for key in keys]
        found = self.tasks.get(GROUPS, hashes_of(keys, self.distinct), rows)
        assert found == [self.now.groups.get(key) for key in keys]

    @rule(names=st.lists(st.sampled_from(NAMES), unique=True))
    def get_all(self, names: list[str | None]) -> None:
        found = self.tasks.get_all(GROUPS, hashes_of([(name, 0) for name in names], self.distinct), names)
        assert found == [[row for row in self.now.live(GROUPS) if row[0] == name] for name in names]

    @rule(keys=st.lists(KEYS, unique=True, max_size=4), others=st.lists(KEYS, unique=True, max_size=4), number=NUMBERS)
    def get_and_put(self, keys: list[Key], others: list[Key], number: int | None) -> None:
        """As an aggregate does; or, with as many others, nearly."""
        self.get(keys)
        self.put(dict.fromkeys(others if len(others) == len(keys) else keys, (number, ("n",))))

    @rule(rows=st.dictionaries(KEYS, st.tuples(TIMES, NUMBERS), max_size=5))
    def put_seen(self, rows: dict[Key, tuple[int, int | None]]) -> None:
        self.latest |= {key: max(at, self.latest.get(key, at)) for key, (at, _) in rows.items()}
        table = {key: (*key, self.latest[key], number) for key, (_, number) in rows.items()}
        self.tasks.put(SEEN, hashes_of(table, self.distinct), list(table.values()))
        self.now.seen |= table
        self.has_times = True
        self._forget()
        self._said()

    @rule(keys=st.sets(KEYS, max_size=5))
    def delete_seen(self, keys: set[Key]) -> None:
        self.tasks.delete(SEEN, hashes_of(keys, self.distinct), [(*key, None, None) for key in keys])
        self.now.seen = {key: row for key, row in self.now.seen.items() if key not in keys}
        self._said()

    @rule(keys=st.lists(KEYS, unique=True, max_size=8))
    def get_seen(self, keys: list[Key]) -> None:
        rows = [(*key, None, None) for key in keys]
        assert self.tasks.get(SEEN, hashes_of(keys, self.distinct), rows) == [self.now.seen.get(key) for key in keys]

    @rule(rows=st.dictionaries(st.tuples(TIMES, KEYS), NUMBERS, max_size=6))
    def put_events(self, rows: dict[tuple[int, Key], int | None]) -> None:
        table = {(at, key): (at, *key, number) for (at, key), number in rows.items()}
        self.tasks.put(EVENTS, hashes_of([key for _, key in table], self.distinct), list(table.values()))
        self.now.events |= table
        self.has_times = True
        self._forget()
        self._said()

    @rule(keys=st.sets(st.tuples(TIMES, KEYS), max_size=6))
    def delete_events(self, keys: set[tuple[int, Key]]) -> None:
        rows = [(at, *key, None) for at, key in keys]
        self.tasks.delete(EVENTS, hashes_of([key for _, key in keys], self.distinct), rows)
        self.now.events = {key: row for key, row in self.now.events.items() if key not in keys}
        self._said()

    @rule(bounds=st.tuples(TIMES | st.none(), TIMES | st.none()))
    def scan(self, bounds: tuple[int | None, int | None]) -> None:
        from_us, until_us = bounds
        found = []
        for state in self.tasks.states:
            found += [row for piece in state.timeline(EVENTS.name).scan(from_us, until_us) for row in plain(piece)]
        lo, hi = -100 if from_us is None else from_us, 100 if until_us is None else until_us
        assert sorted(found, key=repr) == [row for row in self.now.live(EVENTS) if lo <= row[0] < hi]

    @rule(seen_us=TIMES, events_us=TIMES)
    def expire(self, seen_us: int, events_us: int) -> None:
        for state in self.tasks.states:
            state.table(SEEN.name).expire(seen_us)
            state.timeline(EVENTS.name).expire(events_us)
        self.since_us = (max(seen_us, self.since_us[0]), max(events_us, self.since_us[1]))
        self._forget()

    @rule()
    def relieve(self) -> None:
        for state in self.tasks.states:
            state.relieve()

    @rule()
    def touched(self) -> None:
        pieces = [piece for state in self.tasks.states for piece in state.table(GROUPS.name).touched_keys()]
        self._check_net(pieces, self.committed[-1], self.now)

    @rule(layout=LAYOUTS)
    def commit(self, layout: list[int]) -> None:
        manifest = self.epochs.commit(*self.tasks.states)
        if self.epochs.logged is not None:
            self._check_net(changes_of(self.epochs.store, [manifest], GROUPS.name), self.committed[-1], self.now)
            assert manifest.table_rows == len(self.now.groups)
        self.committed.append(self.now)
        self._check(len(self.committed) - 1)
        if not (self.has_times or self.has_rolled_back):
            assert manifest.statistics.state_rows == len(self.now.groups)
        self._begin(layout)

    @rule(
        what=st.sampled_from(["given up", "crashed after the flush", "restarted"]),
        layout=LAYOUTS,
    )
    def interrupt(self, what: str, layout: list[int]) -> None:
        if what == "crashed after the flush":
            for state in self.tasks.states:
                state.flush()  # its files are there, but no manifest names them
        elif what == "restarted":
            self.epochs.engine = self.new_engine()
        self._begin(layout)

    @precondition(lambda self: len(self.committed) > 1)
    @rule(data=st.data())
    def read_the_past(self, data: st.DataObject) -> None:
        self._check(data.draw(st.integers(0, len(self.committed) - 1)))

    @rule(shards=st.sampled_from([1, 2, 4, 8, 16]), layout=LAYOUTS)
    def reshard(self, shards: int, layout: list[int]) -> None:
        """What the epoch in work has done is nobody's."""
        if shards != self.epochs.newest.shards:
            self.epochs.reshard(shards)
            self.committed.append(self.committed[-1])
            self._check(len(self.committed) - 1)
            self._begin(layout)

    @precondition(lambda self: len(self.committed) > 1)
    @rule(data=st.data(), layout=LAYOUTS)
    def roll_back(self, data: st.DataObject, layout: list[int]) -> None:
        """To any epoch; its runs may have been merged away long ago."""
        epoch = data.draw(st.integers(0, len(self.committed) - 1))
        version = Version(self.epochs.newest.version + 1)
        shown = replace(self.epochs.manifests[epoch], version=version, epoch=Epoch(version))
        self.epochs.manifests.append(shown)
        self.committed.append(self.committed[epoch])
        self.has_rolled_back = True
        self._begin(layout)

    def _forget(self) -> None:
        self.now.expire_seen(self.since_us[0])
        self.now.expire_events(self.since_us[1])

    def _check(self, epoch: int) -> None:
        """A reader who starts now sees the epoch's tables, and no file that is named is missing."""
        for spec in SPECS:
            rows = read(self.epochs.store, self.epochs.manifests[epoch], spec)
            assert rows == self.committed[epoch].live(spec)

    def _check_net(self, pieces: Iterable[Touched], before: Model, after: Model) -> None:
        """The pieces say of each key that was put or deleted what it was and what it is, once."""
        seen: set[Key] = set()
        for piece in pieces:
            assert (np.diff(piece.hashes.astype(object)) >= 0).all()
            for was, now in zip(answered(piece.before), answered(piece.after), strict=True):
                key = (was or now or ())[:2]
                assert (was, now) == (before.groups.get(key), after.groups.get(key))
                assert key not in seen
                seen.add(key)
        assert seen == {key for key in self.said if key in before.groups or key in after.groups}


TestTheStateEngineIsADict = Engine.TestCase
TestTheStateEngineIsADict.settings = examples(25, stateful_step_count=30)
