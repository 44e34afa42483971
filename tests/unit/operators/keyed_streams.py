"""Drive an operator of one input epoch by epoch, with the watermark that its rows move. Each epoch is a restart."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.registry import counters_of
from dagster_ckpt.operators.rows.changes_from import ChangesFrom
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.operators.windows.window_of_table import WindowOfTable
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.operators.dict_state import DictState
from tests.worlds.event_times import is_out_of_range

Row = dict[str, Any]
Keyed = RunningAggregate | ChangesFrom | Deduplicate | Materializer | WindowAggregate | SessionAggregate | WindowOfTable
TIME = pa.timestamp("us", "UTC")
SHARDS = (Shard(0), Shard(1))
STORES = count()


def again(operator: Keyed) -> Keyed:
    """The operator of a process that knows the manifest alone."""
    parameters = json.loads(json.dumps(operator.pipeline.parameters))
    rebuilt = type(operator).from_pipeline(replace(operator.pipeline, parameters=parameters))
    assert rebuilt.pipeline == operator.pipeline
    return rebuilt


def rows_of(table: pa.Table) -> list[Row]:
    """The rows, with times in microseconds."""
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.columns]
    rows: list[Row] = pa.Table.from_arrays(plain, names=table.column_names).to_pylist()
    return rows


def hashes_of(rows: pa.Table, keys: Sequence[str], distinct: int) -> Hashes:
    """As if there were so many hashes; spread over the shards, since the greatest bits say which."""
    numbers = [sum(map(ord, repr(tuple(row.values())))) % distinct for row in rows.select(list(keys)).to_pylist()]
    return np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Worked:
    """What came of an epoch."""

    late: list[Row] = field(default_factory=list)
    changes: list[Row] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)


def nothing() -> None:
    """What a state in memory does after each batch."""


def through(
    operator: Keyed,
    context: EpochContext,
    state: State,
    batches: Iterable[tuple[Hashes, pa.Table]],
    relieve: Callable[[], None] = nothing,
) -> Worked:
    """Take rows through an operator."""
    worked = Worked(counters=context.counters)
    for hashes, batch in batches:
        late = operator.on_rows(0, hashes, batch.select(operator.pipeline.inputs[0].schema.names), state, context)
        assert (np.diff(late) > 0).all(), "positions of late rows ascend"
        worked.late += rows_of(batch.take(pa.array(late)))
        relieve()
    for changes in operator.finish(state, context):
        assert changes.count == changes.rows.num_rows
        worked.changes += rows_of(changes.rows)
        relieve()
    return worked


class World(Protocol):
    """Runs an operator, and keeps its state between epochs."""

    def work(self, operator: Keyed, context: EpochContext, batches: Sequence[pa.Table], distinct: int) -> Worked: ...

    def live(self, table: str) -> pa.Table: ...


@dataclass
class DictWorld:
    """A dict for each table."""

    state: DictState

    def work(self, operator: Keyed, context: EpochContext, batches: Sequence[pa.Table], distinct: int) -> Worked:
        hashed = [(hashes_of(batch, operator.pipeline.keys, distinct), batch) for batch in batches]
        worked = through(operator, context, self.state, hashed)
        self.state.next_epoch()
        return worked

    def live(self, table: str) -> pa.Table:
        return self.state.tables[table].live()


@dataclass
class EngineWorld:
    """The real engine: each epoch in tasks of its own, that know the manifest of the epoch before and nothing else."""

    pipeline: Pipeline
    tasks: Sequence[tuple[Shard, ...]]
    memory_bytes: int
    store: MemoryObjectStore = field(init=False)
    manifest: Manifest = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryObjectStore(f"keyed-{next(STORES)}")
        beginning = Beginning("s", StreamUuid("u"), Owner("i", "s"), self.pipeline, len(SHARDS))
        self.manifest = first_manifest(beginning, Stamp(Nonce("n"), 0))

    def work(self, operator: Keyed, context: EpochContext, batches: Sequence[pa.Table], distinct: int) -> Worked:
        engine = Engine(SystemClock(), budget=MemoryBudget(self.memory_bytes))
        epoch, whole = Epoch(self.manifest.version + 1), Worked()
        runs: dict[str, list[Any]] = {spec.name: [() for _ in SHARDS] for spec in self.pipeline.tables}
        for shards in self.tasks:
            its_context = replace(
                context,
                epoch=epoch,
                shards=shards,
                of=len(SHARDS),
                memory_bytes=engine.budget.soft_bytes,
                counters=Counter(),
            )
            file = FileId(Term(1), epoch, shards[0], attempt=0)
            with open_state(self.store, self.manifest, shards, file, engine, change_log_table(operator)) as state:
                state.compact()
                mine = self._of(shards, operator, batches, distinct)
                worked = through(operator, its_context, state, mine, state.relieve)
                for shard, tables in state.flush().items():
                    for table in tables:
                        runs[table.table][shard] = table.runs
            whole.late += worked.late
            whole.changes += worked.changes
            whole.counters.update(worked.counters)
        lists = {name: tuple(of_shards) for name, of_shards in runs.items()}
        self.manifest = replace(self.manifest, version=Version(epoch), epoch=epoch, runs=lists)
        return whole

    def live(self, table: str) -> pa.Table:
        return live_rows(self.store, self.manifest, table)

    def _of(
        self, shards: tuple[Shard, ...], operator: Keyed, batches: Sequence[pa.Table], distinct: int
    ) -> Iterable[tuple[Hashes, pa.Table]]:
        for batch in batches:
            hashes = hashes_of(batch, operator.pipeline.keys, distinct)
            mine = np.flatnonzero(np.isin(hashes >> np.uint64(63), np.array(shards, dtype=np.uint64)))
            yield hashes[mine], batch.take(pa.array(mine)).combine_chunks()


@dataclass
class Stream:
    """An operator, fed epoch by epoch. `late` and `out` are all rows that were late, and that were appended.

    Its state are dicts, where no other world is given.
    """

    operator: Keyed
    delay_us: int = 0
    distinct: int = 1000
    elsewhere: World | None = None
    watermark_us: int | None = None
    greatest_us: int | None = None
    late: list[Row] = field(default_factory=list)
    out: list[Row] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    number: int = 1

    def __post_init__(self) -> None:
        self.world: World = (
            DictWorld(DictState.of(self.operator.pipeline)) if self.elsewhere is None else self.elsewhere
        )

    @classmethod
    def on_engine(
        cls, operator: Keyed, delay_us: int, distinct: int, tasks: Sequence[tuple[Shard, ...]], memory_bytes: int
    ) -> Self:
        """A stream on the real engine."""
        return cls(operator, delay_us, distinct, EngineWorld(operator.pipeline, tasks, memory_bytes))

    def epoch(self, *batches: pa.Table) -> list[Row]:
        """The epoch's changes."""
        operator = self.operator = again(self.operator)
        self.number += 1
        context = EpochContext(Epoch(self.number), (Shard(0),), 1, self.watermark_us, memory_bytes=1 << 20)
        worked = self.world.work(operator, context, batches, self.distinct)
        self.late += worked.late
        self.counters = {name: worked.counters[name] for name in counters_of(operator.pipeline)}
        self._move(batches)
        if operator.pipeline.appends:
            assert {row.pop("_change_type") for row in worked.changes} <= {"insert"}
            self.out += worked.changes
        return worked.changes

    def table(self) -> list[Row]:
        """The stream's table."""
        table = self.operator.table
        return self.out if table is None else rows_of(table.rows(self.world.live(table.name)))

    def held(self) -> dict[str, int]:
        """How many rows each state table has."""
        return {spec.name: self.world.live(spec.name).num_rows for spec in self.operator.pipeline.tables}

    def _move(self, batches: Iterable[pa.Table]) -> None:
        """The watermark follows the greatest event time, from the next epoch on, and never goes back."""
        [event_time] = self.operator.event_times
        if event_time is None:
            return
        times = [time for batch in batches for time in batch.column(event_time).cast(pa.int64()).to_pylist()]
        seen = [time for time in (*times, self.greatest_us) if time is not None and not is_out_of_range(time)]
        if seen:
            self.greatest_us = max(seen)
            moved = self.greatest_us - self.delay_us
            self.watermark_us = moved if self.watermark_us is None else max(self.watermark_us, moved)


def replayed(table: list[Row], changes: Iterable[Row]) -> list[Row]:
    """The table after the changes, each of which must fit what is there."""
    table = list(table)
    for change in changes:
        row = dict(change)
        if row.pop("_change_type") in {"update_preimage", "delete"}:
            at = [repr(there) for there in table].index(repr(row))  # each pre-image was in the table
            del table[at]
        else:
            table.append(row)
    return table


def in_any_order(rows: Iterable[Row]) -> list[str]:
    """The rows as texts, sorted: NaN is like NaN, and -0.0 is not like 0.0."""
    return sorted(repr(sorted(row.items())) for row in rows)
