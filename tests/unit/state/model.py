"""The state engine's tables as plain Python dicts, and a stream of several tasks that must agree with them."""

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import KEY_HASH, Found, Hashes
from dagster_ckpt.protocol.manifest.manifest import Manifest, SortKind, StateTableSpec
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.task_state import TaskState
from dagster_ckpt.storage.stores.object_store import ObjectStore

Key = tuple[str | None, int]
Row = tuple[Any, ...]

TIME = pa.timestamp("us", "UTC")
GROUPS = StateTableSpec(
    "groups",
    pa.schema([("k", pa.string()), ("part", pa.int32()), ("v", pa.int64()), ("note", pa.list_(pa.string()))]),
    ("k", "part"),
)
SEEN = StateTableSpec(
    "seen",
    pa.schema([("k", pa.string()), ("part", pa.int32()), ("at", TIME), ("v", pa.int64())]),
    ("k", "part"),
    time="at",
)
EVENTS = StateTableSpec(
    "events",
    pa.schema([("at", TIME), ("k", pa.string()), ("part", pa.int32()), ("v", pa.int64()), (KEY_HASH, pa.int64())]),
    ("at", "k", "part"),
    SortKind.TIME,
    time="at",
)
SPECS = (GROUPS, SEEN, EVENTS)
SHARDS = 4


@dataclass
class Model:
    """What the tables hold. Rows are tuples in the order of the table's columns."""

    groups: dict[Key, Row] = field(default_factory=dict)
    seen: dict[Key, Row] = field(default_factory=dict)
    events: dict[tuple[int, Key], Row] = field(default_factory=dict)

    def copy(self) -> "Model":
        return deepcopy(self)

    def expire_seen(self, until_us: int) -> None:
        self.seen = {key: row for key, row in self.seen.items() if row[2] >= until_us}

    def expire_events(self, until_us: int) -> None:
        self.events = {key: row for key, row in self.events.items() if key[0] >= until_us}

    def live(self, spec: StateTableSpec) -> list[Row]:
        tables: dict[str, dict[Any, Row]] = {"groups": self.groups, "seen": self.seen, "events": self.events}
        return sorted(tables[spec.name].values(), key=repr)


def hashes_of(keys: Iterable[Key], distinct: int) -> Hashes:
    """A hash of the first key column alone, of only `distinct` values, the least and the greatest of all among them."""
    numbers = [sum(map(ord, repr(key[0]))) % distinct for key in keys]
    return np.array([number * ((2**64 - 1) // max(distinct - 1, 1)) for number in numbers], dtype=np.uint64)


def arrow(spec: StateTableSpec, rows: Sequence[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(spec.schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, spec.schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=spec.schema)


def plain(table: pa.Table) -> list[Row]:
    """Rows as the model has them: a time is its microseconds, a list a tuple. It has no hashes."""
    table = table.drop_columns([name for name in table.column_names if name == KEY_HASH])
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return [
        tuple(tuple(value) if isinstance(value, list) else value for value in row)
        for row in zip(*(column.to_pylist() for column in columns), strict=True)
    ]


def read(store: ObjectStore, manifest: Manifest, spec: StateTableSpec) -> list[Row]:
    rows = plain(live_rows(store, manifest, spec.name))
    assert len(set(rows)) == len(rows), "a row is seen once"
    return sorted(rows, key=repr)


@dataclass
class Tasks:
    """Several tasks as one: each array goes to the tasks whose shards its rows belong to."""

    states: Sequence[TaskState]
    groups: Sequence[Sequence[int]]
    shards: int = SHARDS

    def parts(self, hashes: Hashes) -> Iterator[tuple[TaskState, list[int]]]:
        """Each task with the numbers of its rows."""
        shards = [hash_ * self.shards >> 64 for hash_ in hashes.tolist()]
        for state, group in zip(self.states, self.groups, strict=True):
            yield state, [row for row, shard in enumerate(shards) if shard in group]

    def put(self, spec: StateTableSpec, hashes: Hashes, rows: Sequence[Row]) -> None:
        for state, mine in self.parts(hashes):
            table = state.table(spec.name) if spec.sort is SortKind.HASH else state.timeline(spec.name)
            table.put(hashes[mine], self._arrow(spec, hashes[mine], [rows[row] for row in mine]))

    def delete(self, spec: StateTableSpec, hashes: Hashes, rows: Sequence[Row]) -> None:
        for state, mine in self.parts(hashes):
            table = state.table(spec.name) if spec.sort is SortKind.HASH else state.timeline(spec.name)
            keys = self._arrow(spec, hashes[mine], [rows[row] for row in mine]).select(list(spec.keys))
            table.delete(hashes[mine], keys)

    def _arrow(self, spec: StateTableSpec, hashes: Hashes, rows: Sequence[Row]) -> pa.Table:
        if spec.sort is SortKind.TIME:
            rows = [(*row, hash_) for row, hash_ in zip(rows, hashes.view(np.int64).tolist(), strict=True)]
        return arrow(spec, rows)

    def get(self, spec: StateTableSpec, hashes: Hashes, rows: Sequence[Row]) -> list[Row | None]:
        answer: list[Row | None] = [None] * len(rows)
        for state, mine in self.parts(hashes):
            keys = arrow(spec, [rows[row] for row in mine]).select(list(spec.keys))
            for row, found in zip(mine, answered(state.table(spec.name).get(hashes[mine], keys)), strict=True):
                answer[row] = found
        return answer

    def get_all(self, spec: StateTableSpec, hashes: Hashes, names: Sequence[str | None]) -> list[list[Row]]:
        answer: list[list[Row]] = [[] for _ in names]
        for state, mine in self.parts(hashes):
            keys = pa.table({"k": pa.array([names[row] for row in mine], pa.string())})
            found = state.table(spec.name).get_all(hashes[mine], keys)
            assert list(found.asked) == sorted(found.asked)
            for asked, row in zip(found.asked, plain(found.rows), strict=True):
                answer[mine[asked]].append(row)
        return [sorted(rows, key=repr) for rows in answer]


def answered(found: Found) -> list[Row | None]:
    rows = iter(plain(found.rows))
    return [next(rows) if present else None for present in found.present]
