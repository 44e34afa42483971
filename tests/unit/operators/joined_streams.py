"""Drive a join from epoch to epoch, over a dict or over the real engine. Each epoch is a restart."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.joins import IntervalJoin, WindowedJoin
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT
from dagster_ckpt.operators.operator import keys_of_inputs
from dagster_ckpt.operators.registry import counters_of
from dagster_ckpt.operators.shared.window_kinds import FixedWindow
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Owner
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import TaskState, open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.operators.dict_state import DictState
from tests.worlds.event_times import is_out_of_range

Row = tuple[Any, ...]
Batch = tuple[int, Sequence[Row]]
"""Rows of one input, by its number."""
Join = IntervalJoin | WindowedJoin

TIME = pa.timestamp("us", "UTC")
SCHEMAS = (
    pa.schema([("k", pa.string()), ("at", TIME), ("v", pa.int64())]),
    pa.schema([("k", pa.string()), ("bt", TIME), ("w", pa.int64())]),
)
KEYS = (("k",), ("k",))
TIMES = ("at", "bt")
SHARDS = (Shard(0), Shard(1))
STORES = count()


def left(*times: int | None, k: str | None = "a", v: int = 0) -> Batch:
    """Rows of the left with one key."""
    return LEFT, [(k, time, v) for time in times]


def right(*times: int | None, k: str | None = "a", w: int = 0) -> Batch:
    """Rows of the right with one key."""
    return RIGHT, [(k, time, w) for time in times]


def inputs(schemas: Sequence[pa.Schema] = SCHEMAS) -> tuple[InputSpec, ...]:
    return tuple(InputSpec((), schema) for schema in schemas)


def interval_join(lower_us: int, upper_us: int, how: str = "inner", late: str = "drop") -> IntervalJoin:
    return IntervalJoin.build(inputs(), KEYS, TIMES, lower_us, upper_us, how, late)


def window_join(window: FixedWindow | None, how: str = "inner", late: str = "drop") -> WindowedJoin:
    return WindowedJoin.build(inputs(), KEYS, TIMES, window, how, late)


def again(operator: Join) -> Join:
    """The operator of a process that knows the manifest alone."""
    parameters = json.loads(json.dumps(operator.pipeline.parameters))
    rebuilt = type(operator).from_pipeline(replace(operator.pipeline, parameters=parameters))
    assert rebuilt.pipeline == operator.pipeline
    return rebuilt


def table_of(rows: Iterable[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def rows_of(table: pa.Table) -> list[Row]:
    """The rows, times in microseconds."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    return list(zip(*(column.to_pylist() for column in plain), strict=True))


def hashes_of(rows: pa.Table, keys: Sequence[str], distinct: int) -> Hashes:
    """As if there were so many hashes; spread over the shards, since the greatest bits say which."""
    numbers = [sum(map(ord, repr(tuple(row.values())))) % distinct for row in rows.select(list(keys)).to_pylist()]
    return np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


class World(Protocol):
    """Where a stream's state is."""

    def epoch(self) -> AbstractContextManager[State]:
        """The state within the next epoch, which is committed at the end."""
        ...


class InDicts:
    """Dicts that stay. What an epoch touched comes in pieces of so many rows."""

    def __init__(self, operator: Join, piece: int = 1000) -> None:
        self.state = DictState.of(operator.pipeline)
        for table in self.state.tables.values():
            table.piece = piece

    @contextmanager
    def epoch(self) -> Iterator[State]:
        yield self.state
        self.state.next_epoch()

    def held(self) -> dict[str, int]:
        """How many rows each state table has."""
        return {name: len(table.rows) for name, table in self.state.tables.items()}


class InEngine:
    """The real engine above a store in memory: one task with two shards, and a new one in each epoch."""

    def __init__(self, operator: Join, memory_limit: int) -> None:
        self._store = MemoryObjectStore(f"joins-{next(STORES)}")
        self._engine = Engine(SystemClock(), budget=MemoryBudget(memory_limit))
        beginning = Beginning("s", StreamUuid("u"), Owner("i", "s"), operator.pipeline, len(SHARDS))
        self._manifest = first_manifest(beginning, Stamp(Nonce("n"), 0))

    @contextmanager
    def epoch(self) -> Iterator[State]:
        epoch = Epoch(self._manifest.version + 1)
        file = FileId(Term(1), epoch, SHARDS[0], attempt=0)
        with open_state(self._store, self._manifest, SHARDS, file, self._engine, None) as state:
            state.compact()
            yield state
            lists = state.flush()
        runs = {
            spec.name: tuple(next(each.runs for each in lists[shard] if each.table == spec.name) for shard in SHARDS)
            for spec in self._manifest.pipeline.tables
        }
        self._manifest = replace(self._manifest, version=Version(epoch), epoch=epoch, runs=runs)


@dataclass
class Watermark:
    """The least, over the inputs, of the greatest event time less the delay; None until each input has shown a time."""

    delays_us: tuple[int, int] = (0, 0)
    greatest_us: list[int | None] = field(default_factory=lambda: [None, None])

    def move(self, batches: Iterable[Batch]) -> None:
        for number, rows in batches:
            times = [row[1] for row in rows if row[1] is not None and not is_out_of_range(row[1])]
            seen = [time for time in (*times, self.greatest_us[number]) if time is not None]
            self.greatest_us[number] = max(seen, default=None)

    @property
    def us(self) -> int | None:
        moved = [
            None if greatest is None else greatest - delay
            for greatest, delay in zip(self.greatest_us, self.delays_us, strict=True)
        ]
        return None if None in moved else min(each for each in moved if each is not None)


@dataclass
class Joined:
    """A join, fed epoch by epoch. `late` and `pieces` are of the last epoch, `number` counts them."""

    operator: Join
    world: World
    distinct: int = 1000
    memory_bytes: int = 1 << 20
    late: list[tuple[int, Row]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    pieces: int = 0
    number: int = 0

    def epoch(self, *batches: Batch, watermark_us: int | None = None) -> list[Row]:
        """What comes out of an epoch with these rows; `watermark_us` is the watermark of the epoch before."""
        operator = self.operator = again(self.operator)
        self.number += 1
        self.late = []
        context = EpochContext(Epoch(self.number), SHARDS, len(SHARDS), watermark_us, self.memory_bytes)
        results: list[Row] = []
        with self.world.epoch() as state:
            for number, rows in batches:
                self._take_in(number, rows, state, context)
                _relieve(state)
            self.pieces = 0
            for changes in operator.finish(state, context):
                assert changes.count == changes.rows.num_rows
                assert set(changes.rows.column("_change_type").to_pylist()) <= {"insert"}
                out = changes.rows.drop_columns(["_change_type"])
                assert out.schema == operator.pipeline.output
                results += rows_of(out)
                self.pieces += 1
                _relieve(state)
        self.counters = {name: context.counters[name] for name in counters_of(operator.pipeline)}
        return sorted(results, key=repr)

    def _take_in(self, number: int, rows: Sequence[Row], state: State, context: EpochContext) -> None:
        pipeline = self.operator.pipeline
        given = table_of(rows, SCHEMAS[number]).select(pipeline.inputs[number].schema.names)
        hashes = hashes_of(given, keys_of_inputs(pipeline)[number], self.distinct)
        late = self.operator.on_rows(number, hashes, given, state, context)
        assert (np.diff(late) > 0).all(), "positions of late rows ascend"
        self.late += [(number, rows[at]) for at in late.tolist()]


def in_dicts(operator: Join, distinct: int = 1000, memory_bytes: int = 1 << 20) -> tuple[Joined, InDicts]:
    """A join over dicts, and those."""
    world = InDicts(operator)
    return Joined(operator, world, distinct, memory_bytes), world


def _relieve(state: State) -> None:
    if isinstance(state, TaskState):
        state.relieve()
