"""Drive an aggregate over windows epoch by epoch, with the watermark that its rows move. Each epoch is a restart."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators import EpochContext, agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.session_aggregate import SessionAggregate
from dagster_ckpt.operators.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows import Session, Window
from dagster_ckpt.protocol.manifest import InputSpec
from tests.unit.operators.dict_state import DictState

Row = dict[str, Any]
Windowed = WindowAggregate | SessionAggregate
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
ROWS: Mapping[str, Aggregation] = {"rows": agg.count()}
MICROS = {"window_start", "window_end", "at"}


def windowed(
    window: Window,
    aggregations: Mapping[str, Aggregation] = ROWS,
    schema: pa.Schema = SCHEMA,
    keys: tuple[str, ...] = ("k",),
    event_time: str | None = "at",
    early: bool = False,
    late: str = "drop",
) -> Windowed:
    source = InputSpec((), schema)
    if isinstance(window, Session):
        return SessionAggregate.build(keys, aggregations, source, event_time, window, early, late)
    return WindowAggregate.build(keys, aggregations, source, event_time, window, early, late)


def again(operator: Windowed) -> Windowed:
    """The operator of a process that knows the manifest alone."""
    parameters = json.loads(json.dumps(operator.pipeline.parameters))
    rebuilt = type(operator).from_pipeline(replace(operator.pipeline, parameters=parameters))
    assert rebuilt.pipeline == operator.pipeline
    return rebuilt


def table_of(rows: Iterable[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


def at(*times: int | None, k: str | None = "a") -> pa.Table:
    """Rows of one key at these microseconds."""
    return table_of({"k": k, "v": time, "at": time} for time in times)


def rows_of(table: pa.Table) -> list[Row]:
    """The rows with times in microseconds."""
    plain = [
        column.cast(pa.int64()) if name in MICROS else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    rows: list[Row] = pa.Table.from_arrays(plain, names=table.column_names).to_pylist()
    return rows


def hashes_of(rows: pa.Table, keys: Sequence[str], distinct: int) -> Hashes:
    """As if there were so many hashes; spread over the shards, since the greatest bits say which."""
    numbers = [sum(map(ord, repr(tuple(row.values())))) % distinct for row in rows.select(list(keys)).to_pylist()]
    return np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Worked:
    """What came of an epoch: its late rows, its changes, and what was counted."""

    late: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


class World(Protocol):
    """Where an operator works, and its state lies between epochs."""

    def work(self, operator: Windowed, context: EpochContext, batches: Sequence[pa.Table], distinct: int) -> Worked:
        """Work an epoch."""
        ...

    def live(self, operator: Windowed) -> pa.Table:
        """The rows of the logged table."""
        ...


def nothing() -> None:
    """What a state in memory does after each batch."""


def through(
    operator: Windowed,
    context: EpochContext,
    state: State,
    batches: Iterable[tuple[Hashes, pa.Table]],
    relieve: Callable[[], None] = nothing,
) -> Worked:
    """Take rows through an operator."""
    worked = Worked(counters=context.counters)
    for hashes, batch in batches:
        rows = batch.select(operator.pipeline.inputs[0].schema.names)
        late = operator.on_rows(0, hashes, rows, state, context)
        assert (np.diff(late) > 0).all(), "positions of late rows ascend"
        worked.late += rows_of(batch.take(pa.array(late)))
        relieve()
    for changes in operator.finish(state, context):
        assert changes.count == changes.rows.num_rows
        worked.changes += rows_of(changes.rows)
    return worked


@dataclass
class DictWorld:
    state: DictState

    def work(self, operator: Windowed, context: EpochContext, batches: Sequence[pa.Table], distinct: int) -> Worked:
        hashed = [(hashes_of(batch, operator.pipeline.keys, distinct), batch) for batch in batches]
        worked = through(operator, context, self.state, hashed)
        self.state.next_epoch()
        return worked

    def live(self, operator: Windowed) -> pa.Table:
        assert operator.logged is not None
        return self.state.tables[operator.logged].live()


@dataclass
class Stream:
    """A windowed operator, fed epoch by epoch. `late` and `out` are all rows that were late, and that came out."""

    operator: Windowed
    delay_us: int = 0
    distinct: int = 1
    world: World | None = None
    watermark_us: int | None = None
    greatest_us: int | None = None
    state: DictState = field(init=False)
    late: list[Row] = field(default_factory=list)
    out: list[Row] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    number: int = 1

    def __post_init__(self) -> None:
        self.state = DictState.of(self.operator.pipeline)

    def epoch(self, *batches: pa.Table) -> list[Row]:
        """The epoch's changes, times in microseconds."""
        operator = self.operator = again(self.operator)
        self.number += 1
        context = EpochContext(Epoch(self.number), (Shard(0),), 1, self.watermark_us, Epoch(0), memory_bytes=1 << 20)
        worked = self._world.work(operator, context, batches, self.distinct)
        self.late += worked.late
        self.counters = {name: worked.counters[name] for name in operator.counters}
        self._move(batches)
        if operator.pipeline.appends:
            assert {row.pop("_change_type") for row in worked.changes} <= {"insert"}
            self.out += worked.changes
        return worked.changes

    def flush(self) -> list[Row]:
        """An epoch in which everything comes out that waits."""
        if self.greatest_us is not None:
            moved = self.greatest_us + self.operator.horizon_us
            self.watermark_us = moved if self.watermark_us is None else max(self.watermark_us, moved)
        return self.epoch()

    def table(self) -> list[Row]:
        """The stream's table."""
        if self.operator.pipeline.appends:
            return self.out
        return rows_of(self.operator.table(self._world.live(self.operator)))

    def held(self) -> dict[str, int]:
        """How many rows each state table has."""
        return {name: len(table.rows) for name, table in self.state.tables.items()}

    @property
    def _world(self) -> World:
        return self.world or DictWorld(self.state)

    def _move(self, batches: Iterable[pa.Table]) -> None:
        """The watermark follows the greatest event time, from the next epoch on, and never goes back."""
        times = [time for batch in batches for time in batch.column("at").cast(pa.int64()).to_pylist()]
        seen = [time for time in (*times, self.greatest_us) if time is not None]
        if seen:
            self.greatest_us = max(seen)
            moved = self.greatest_us - self.delay_us
            self.watermark_us = moved if self.watermark_us is None else max(self.watermark_us, moved)


def spans(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Key, window and count of each row, sorted."""
    return sorted(((row["k"], row["window_start"], row["window_end"], row["rows"]) for row in rows), key=repr)
