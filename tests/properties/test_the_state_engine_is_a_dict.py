"""Any puts, deletes, gets, flushes, merges and re-openings; keys that share hashes; runs merged early or late."""

from collections.abc import Sequence
from itertools import count

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dagster_ckpt.lsm.compaction import CompactionLimits
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.protocol.manifest import Manifest, StateTableSpec
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.state.shard_state import EngineOptions, ShardState
from dagster_ckpt.state.snapshot import live_rows
from dagster_ckpt.storage.memory import MemoryObjectStore
from tests.unit.state.epochs import TABLE, Epochs

SPEC = StateTableSpec(
    TABLE,
    pa.schema([("k", pa.string()), ("part", pa.int32()), ("v", pa.int64()), ("note", pa.string())]),
    ("k", "part"),
)
Key = tuple[str | None, int | None]
Row = tuple[str | None, int | None, int | None, str | None]
NAMES, PARTS = ["", "a", "b", "ab", None], [0, 1, None]
KEYS = st.tuples(st.sampled_from(NAMES), st.sampled_from(PARTS))
ROWS = st.tuples(st.integers(-(2**63), 2**63 - 1) | st.none(), st.text("xyz", max_size=3) | st.none())
THEN = st.sampled_from(["commit", "commit", "go on"])
STORES = count()


def hashes_of(keys: list[Key], distinct: int) -> Hashes:
    """A hash like any other, but with only `distinct` values, the least and the greatest of all among them."""
    numbers = [sum(map(ord, repr(key))) % distinct for key in keys]
    return np.array([number * ((2**64 - 1) // max(distinct - 1, 1)) for number in numbers], dtype=np.uint64)


class Engine(RuleBasedStateMachine):
    """The model is a dict for each committed epoch, and one for the epoch in work."""

    @initialize(
        distinct=st.sampled_from([1, 2, 4, 1000]),
        runs_min=st.integers(2, 4),
        ratio=st.integers(1, 4),
        bytes_max=st.sampled_from([200, 1 << 30]),
    )
    def start(self, distinct: int, runs_min: int, ratio: int, bytes_max: int) -> None:
        self.distinct = distinct
        options = EngineOptions(CompactionLimits(runs_min, ratio, bytes_max))
        self.epochs = Epochs(MemoryObjectStore(f"dict-{next(STORES)}"), spec=SPEC, options=options)
        self.committed: list[dict[Key, Row]] = [{}]
        self._begin()

    def _begin(self) -> None:
        self.state: ShardState = self.epochs.begin()
        self.now = dict(self.committed[-1])
        self.said: set[Key] = set()

    @rule(rows=st.dictionaries(KEYS, ROWS, max_size=6), then=THEN)
    def put(self, rows: dict[Key, tuple[int | None, str | None]], then: str) -> None:
        table = [(*key, *row) for key, row in rows.items()]
        self.state.table(TABLE).put(self._hashes(list(rows)), arrow(table))
        self.now |= dict(zip(rows, table, strict=True))
        self.said |= set(rows)
        self._go_on(then)

    @rule(row=ROWS)
    def put_every_key(self, row: tuple[int | None, str | None]) -> None:
        """Makes a run so great that the next few are merged without it."""
        self.put({(name, part): row for name in NAMES for part in PARTS}, "commit")

    @rule(keys=st.sets(KEYS, max_size=6), then=THEN)
    def delete(self, keys: set[Key], then: str) -> None:
        self.state.table(TABLE).delete(self._hashes(list(keys)), arrow_keys(list(keys)))
        self.now = {key: row for key, row in self.now.items() if key not in keys}
        self.said |= keys
        self._go_on(then)

    @rule(keys=st.lists(KEYS, unique=True, max_size=8))
    def get(self, keys: list[Key]) -> None:
        found = self.state.table(TABLE).get(self._hashes(keys), arrow_keys(keys))
        assert answered(found, keys) == [self.now.get(key) for key in keys]

    @rule(keys=st.lists(KEYS, unique=True, max_size=4), others=st.lists(KEYS, unique=True, max_size=4), row=ROWS)
    def get_and_put(self, keys: list[Key], others: list[Key], row: tuple[int | None, str | None]) -> None:
        """As an aggregate does; or, with as many others, nearly."""
        self.get(keys)
        self.put(dict.fromkeys(others if len(others) == len(keys) else keys, row), "commit")

    @rule()
    def touched(self) -> None:
        touched = self.state.table(TABLE).touched()
        before, after = self.committed[-1], self.now
        keys = keys_of(touched.before, touched.after, len(touched.hashes))
        assert answered(touched.before, keys) == [before.get(key) if key else None for key in keys]
        assert answered(touched.after, keys) == [after.get(key) if key else None for key in keys]
        assert {key for key in keys if key} == {key for key in self.said if key in before or key in after}
        assert len(keys) == len(self.said)
        assert list(touched.hashes) == sorted(touched.hashes)

    @rule(what=st.sampled_from(["an empty epoch", "given up", "crashed after the flush", "restarted"]))
    def interrupt(self, what: str) -> None:
        if what == "an empty epoch":
            self._begin()
            before = self.epochs.newest.runs
            self._go_on("commit")
            assert self.epochs.newest.runs == before, "an epoch without changes writes nothing"
        elif what == "crashed after the flush":
            self.state.flush()  # its files are there, but no manifest names them
        elif what == "restarted":
            self.epochs.runs = OpenRuns()
        self._begin()

    def _go_on(self, then: str) -> None:
        if then == "commit":
            self.epochs.commit(self.state)
            self.committed.append(self.now)
            assert read(self.epochs, self.epochs.newest) == self.now
            assert self.epochs.newest.statistics.state_rows == len(self.now)
            self._begin()

    @precondition(lambda self: len(self.committed) > 1)
    @rule(data=st.data())
    def read_the_past(self, data: st.DataObject) -> None:
        epoch = data.draw(st.integers(0, len(self.committed) - 1))
        assert read(self.epochs, self.epochs.manifests[epoch]) == self.committed[epoch]

    def _hashes(self, keys: list[Key]) -> Hashes:
        return hashes_of(keys, self.distinct)


def arrow(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SPEC.schema, strict=True)], schema=SPEC.schema
    )


def arrow_keys(keys: list[Key]) -> pa.Table:
    return arrow([(*key, None, None) for key in keys]).select(["k", "part"])


def rows_of(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


def answered(found: Found, keys: Sequence[Key | None]) -> list[Row | None]:
    rows = iter(rows_of(found.rows))
    return [next(rows) if present else None for present in found.present]


def keys_of(before: Found, after: Found, n: int) -> list[Key | None]:
    """The keys of what was touched; None where a key came and went, so that no row tells it."""
    pair = zip(answered(before, [None] * n), answered(after, [None] * n), strict=True)
    return [(row[0], row[1]) if (row := old or new) else None for old, new in pair]


def read(epochs: Epochs, manifest: Manifest) -> dict[Key, Row]:
    rows = rows_of(live_rows(epochs.store, manifest, TABLE))
    table = {(row[0], row[1]): row for row in rows}
    assert len(table) == len(rows), "a key is seen once"
    return table


TestTheStateEngineIsADict = Engine.TestCase
TestTheStateEngineIsADict.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
