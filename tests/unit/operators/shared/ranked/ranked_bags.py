"""The best rows of keys, and a dict of counters that they must agree with."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.operators.shared.ranked.best_rows import BestRows
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder, order_columns
from dagster_ckpt.operators.shared.ranked.rank_tree import RankedRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from tests.unit.operators.dict_state import DictState, DictTable
from tests.unit.operators.streams import context

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("w", pa.string())])
Row = tuple[Any, ...]


def hashes_of(rows: pa.Table, distinct: int = 1000) -> Any:
    """A hash for each key, of so many; the bits spread."""
    numbers = [sum(map(ord, repr(key))) % distinct for key in rows.column("k").to_pylist()]
    return np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def by_v(row: Row) -> tuple[object, ...]:
    """ "v desc", whose nulls come last, then "w", whose nulls come last too."""
    v, w = row
    return (v is None, -math.inf if v is None else -v, v or 0, w is None, w or "")


@dataclass
class Bags:
    """A bag of rows for each key, kept twice."""

    count: int
    appends: bool = False
    distinct: int = 1000
    model: dict[str | None, Counter[Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        order = RowOrder(order_columns("top", "v desc", SCHEMA), ("v", "w"))
        keys, others = [SCHEMA.field(0)], [SCHEMA.field(1), SCHEMA.field(2)]
        self.best = BestRows.of("ranked", keys, others, order, self.count, appends=self.appends)
        self.table = DictTable(self.best.spec.schema, self.best.spec.keys)
        self.state = DictState({"ranked": self.table})

    def add(self, rows: list[Row], weights: list[int]) -> None:
        """Add rows of key, v and w with their weights, and compare what is best."""
        table = pa.Table.from_pylist([dict(zip("kvw", row, strict=True)) for row in rows], schema=SCHEMA)
        weighted = ZSet(hashes_of(table, self.distinct), table, np.array(weights, dtype=np.int64))
        before = {key: self.wanted(key) for key, *_ in rows}
        for (key, *row), weight in zip(rows, weights, strict=True):
            self.model.setdefault(key, Counter())[tuple(row)] += weight
        seen = set[str | None]()
        for _, change in self.best.changes([weighted], self.state, context()):
            keys = change.keys.column("k").to_pylist()
            assert change.hashes.tolist() == hashes_of(change.keys, self.distinct).tolist()
            for key, was in zip(keys, _by_node(change.before, len(keys)), strict=True):
                if key not in seen:
                    assert was == before[key]
                seen.add(key)
            before.update(zip(keys, _by_node(change.after, len(keys)), strict=True))
        for key in seen:
            assert before[key] == self.wanted(key)
        assert seen == {key for key, *_ in rows}

    def wanted(self, key: str | None) -> list[tuple[Row, int]]:
        """The best rows of a key, and how often each is there."""
        rows = [row for row, copies in self.model.get(key, {}).items() if copies]
        return [(row, self.model[key][row]) for row in sorted(rows, key=by_v)[: self.count]]


def _by_node(kept: RankedRows, count: int) -> list[list[tuple[Row, int]]]:
    found: list[list[tuple[Row, int]]] = [[] for _ in range(count)]
    assert (np.diff(kept.nodes) >= 0).all(), "key after key"
    for node, copies, row in zip(kept.nodes.tolist(), kept.copies.tolist(), kept.rows.to_pylist(), strict=True):
        found[node].append((tuple(row.values()), copies))
    return found
