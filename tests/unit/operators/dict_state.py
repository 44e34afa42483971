"""A state as plain as can be: a Python dict per table. What the real engine must look like from an operator."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, StateTable, Timeline, Touched
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SortKind, StateTableSpec

Key = tuple[object, ...]
Row = dict[str, Any]


@dataclass
class DictTable:
    """Implements `lsm.table.StateTable`. It also watches that a key always comes with one hash."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str | None = None
    rows: dict[Key, Row] = field(default_factory=dict)
    before: dict[Key, Row | None] = field(default_factory=dict)
    hashes: dict[Key, int] = field(default_factory=dict)
    piece: int = 1_000
    looked_up_later: int = 0
    """How often keys were written without `before`, so that the engine has to look them up."""

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        wanted = self._distinct(hashes, keys)
        return self._found([self.rows.get(key) for key in wanted])

    def put(self, hashes: Hashes, rows: pa.Table, before: Found | None = None) -> None:
        self._check_before(hashes, rows, before)
        assert rows.schema.equals(self.schema), "an operator keeps to its schema"
        for key, row in zip(self._distinct(hashes, rows), plain(rows), strict=True):
            there = self.rows.get(key)
            if self.time is not None:
                assert row[self.time] is not None, "every row of a table that expires has a time"
                assert there is None or row[self.time] >= there[self.time], "the time of a key never decreases"
            self.before.setdefault(key, there)
            self.rows[key] = row

    def delete(self, hashes: Hashes, keys: pa.Table, before: Found | None = None) -> None:
        self._check_before(hashes, keys, before)
        for key in self._distinct(hashes, keys):
            self.before.setdefault(key, self.rows.get(key))
            self.rows.pop(key, None)

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        names = self.keys[: keys.num_columns]
        assert tuple(keys.column_names) == names, "the first of the key columns are asked for"
        wanted = [_key(row.values()) for row in plain(keys)]
        assert len(set(wanted)) == len(wanted), "an operator asks for distinct keys"
        asked, found = list[int](), list[Row]()
        under: dict[Key, list[Key]] = {}
        for key in self.rows:
            under.setdefault(key[: keys.num_columns], []).append(key)
        for number, prefix in enumerate(wanted):
            for key in under.get(prefix, []):
                assert self.hashes[key] == int(hashes[number]), f"another hash than it was put under. {key=}"
                asked.append(number)
                found.append(self.rows[key])
        return FoundAll(np.array(asked, dtype=np.int64), pa.Table.from_pylist(found, schema=self.schema))

    def expire(self, until_us: int) -> None:
        assert self.time is not None, "the table has no time column"
        self.rows = {key: row for key, row in self.rows.items() if row[self.time] >= until_us}

    def touched_keys(self) -> Iterator[Touched]:
        everything = sorted(self.before, key=lambda key: self.hashes[key])
        start = 0
        while start < len(everything):
            last = self.hashes[everything[min(start + self.piece, len(everything)) - 1]]
            keys = [
                key for key in everything[start:] if self.hashes[key] <= last
            ]  # all rows of a hash are in one piece
            start += len(keys)
            hashes = np.array([self.hashes[key] for key in keys], dtype=np.uint64)
            before, now = [self.before[key] for key in keys], [self.rows.get(key) for key in keys]
            yield Touched(hashes, self._found(before), self._found(now))

    def live(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), schema=self.schema)

    def _distinct(self, hashes: Hashes, table: pa.Table) -> list[Key]:
        keys = [_key(row.values()) for row in plain(table.select(list(self.keys)))]
        assert len(set(keys)) == len(keys), "an operator names distinct keys"
        for key, number in zip(keys, hashes.tolist(), strict=True):
            assert self.hashes.setdefault(key, number) == number, f"a key has one hash. {key=}"
        return keys

    def _check_before(self, hashes: Hashes, rows: pa.Table, before: Found | None) -> None:
        self.looked_up_later += before is None
        if before is not None:
            now = self._found([self.rows.get(key) for key in self._distinct(hashes, rows)])
            assert before.present.tolist() == now.present.tolist(), "an operator passes what the keys have now"
            assert repr(plain(before.rows)) == repr(plain(now.rows)), "an operator passes what the keys have now"

    def _found(self, rows: list[Row | None]) -> Found:
        there = [row for row in rows if row is not None]
        present = np.array([row is not None for row in rows], dtype=np.bool_)
        return Found(present, pa.Table.from_pylist(there, schema=self.schema))


@dataclass
class DictTimeline:
    """Implements `lsm.table.Timeline`, of one shard."""

    table: DictTable
    piece: int = 3

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        self.table.put(hashes, rows)

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        self.table.delete(hashes, keys)

    def scan(self, from_us: int | None, until_us: int | None) -> Iterator[pa.Table]:
        time = self.table.time
        assert time is not None, "a timeline has a time"
        rows = sorted(self.table.rows.values(), key=lambda row: row[time])
        wanted = [
            row
            for row in rows
            if (from_us is None or row[time] >= from_us) and (until_us is None or row[time] < until_us)
        ]
        for start in range(0, len(wanted), self.piece):
            yield pa.Table.from_pylist(wanted[start : start + self.piece], schema=self.table.schema)

    def expire(self, until_us: int) -> None:
        self.table.expire(until_us)


@dataclass
class DictState:
    """Implements `lsm.table.State`."""

    tables: dict[str, DictTable]
    specs: dict[str, StateTableSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline) -> "DictState":
        """The empty state of an operator."""
        tables = {spec.name: DictTable(spec.schema, spec.keys, spec.time) for spec in pipeline.tables}
        return cls(tables, {spec.name: spec for spec in pipeline.tables})

    def table(self, name: str) -> StateTable:
        assert name not in self.specs or self.specs[name].sort is SortKind.HASH, f"this is a timeline. {name=}"
        return self.tables[name]

    def timeline(self, name: str) -> Timeline:
        assert self.specs[name].sort is SortKind.TIME, f"this is no timeline. {name=}"
        return DictTimeline(self.tables[name])

    def next_epoch(self) -> None:
        for table in self.tables.values():
            table.before = {}


def _key(values: Iterable[object]) -> Key:
    """Values as the engine compares them: floats by their bits, so NaN is like NaN and -0.0 not like 0.0."""
    return tuple(map(_hashable, values))


def _hashable(value: object) -> object:
    if isinstance(value, float):
        return struct.pack(">d", value)
    return repr(value) if isinstance(value, list | dict) else value


def plain(rows: pa.Table) -> list[Row]:
    """The rows, times as microseconds since the Unix epoch: Python has no year for many of them."""
    columns = map(flat, rows.columns)
    numbers = [each.view(pa.int64()) if pa.types.is_timestamp(each.type) else each for each in columns]
    found: list[Row] = pa.Table.from_arrays(numbers, names=rows.column_names).to_pylist()
    return found
