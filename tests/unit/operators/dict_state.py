"""A state as plain as can be: a Python dict per table. What the real engine must look like from an operator."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, StateTable, Timeline, Touched

Key = tuple[object, ...]


@dataclass
class DictTable:
    schema: pa.Schema
    keys: tuple[str, ...]
    rows: dict[Key, dict[str, object]] = field(default_factory=dict)
    before: dict[Key, dict[str, object] | None] = field(default_factory=dict)
    piece: int = 1_000

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        wanted = self.keys_of(keys)
        assert len(set(wanted)) == len(wanted), "an operator asks for distinct keys"
        return self._found([self.rows.get(key) for key in wanted])

    def put(self, hashes: Hashes, rows: pa.Table) -> None:
        assert rows.schema.equals(self.schema), "an operator keeps to its schema"
        for key, row in zip(self.keys_of(rows), rows.to_pylist(), strict=True):
            self.before.setdefault(key, self.rows.get(key))
            self.rows[key] = row

    def delete(self, hashes: Hashes, keys: pa.Table) -> None:
        for key in self.keys_of(keys):
            self.before.setdefault(key, self.rows.get(key))
            self.rows.pop(key, None)

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        raise NotImplementedError

    def expire(self, until_us: int) -> None:
        raise NotImplementedError

    def touched(self) -> Iterator[Touched]:
        everything = list(self.before)
        for start in range(0, len(everything), self.piece):
            keys = everything[start : start + self.piece]
            hashes = np.zeros(len(keys), dtype=np.uint64)
            before, now = [self.before[key] for key in keys], [self.rows.get(key) for key in keys]
            yield Touched(hashes, self._found(before), self._found(now))

    def keys_of(self, table: pa.Table) -> list[Key]:
        return [tuple(row[name] for name in self.keys) for row in table.select(list(self.keys)).to_pylist()]

    def live(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), schema=self.schema)

    def _found(self, rows: list[dict[str, object] | None]) -> Found:
        there = [row for row in rows if row is not None]
        present = np.array([row is not None for row in rows], dtype=np.bool_)
        return Found(present, pa.Table.from_pylist(there, schema=self.schema))


@dataclass
class DictState:
    tables: dict[str, DictTable]

    def table(self, name: str) -> StateTable:
        return self.tables[name]

    def timeline(self, name: str) -> Timeline:
        raise NotImplementedError

    def next_epoch(self) -> None:
        for table in self.tables.values():
            table.before = {}
