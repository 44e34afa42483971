"""A task holds little of all that expires, closes or is postponed in one epoch; the output is the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.runs.deltas import Delta
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.rows.deduplicate import Deduplicate
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, InputSpec, Manifest, Owner
from dagster_ckpt.protocol.transitions.edits import Beginning, Stamp, first_manifest
from dagster_ckpt.runtime.task.ack_rows import Reply
from dagster_ckpt.runtime.task.shard_assignment import HASH, ShardAssignment
from dagster_ckpt.runtime.task.shard_work import ShardWork
from dagster_ckpt.state.committed import table_snapshot
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.runs.table_runs import TableRuns
from dagster_ckpt.state.sorted_table import SortedTable
from dagster_ckpt.state.task_state import KeyedTable
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.change_logs import rows_of_log

Keyed = RunningAggregate | Deduplicate | WindowAggregate | SessionAggregate
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", TIME)])
SOURCE = InputSpec((), SCHEMA)
SHARDS = (Shard(0), Shard(1))
NUMBERS = count()
SOFT = 1 << 18
"""The rows that are due take more than ten times as much."""
LITTLE, MUCH = 4 * SOFT, 1 << 30
KEYS = 7_000
MANY_KEYS = 80_000
"""Of narrow rows."""
WIDE, NARROW = 400, 1
LIFE_US = 1_000_000
WIDE_ROWS = {"rows": agg.count(), "text": agg.max("v")}


def batches_of(keys: Sequence[int] | range, times: Callable[[Any], Any], width: int = WIDE) -> list[pa.RecordBatch]:
    """One row per key, with a text of that length."""
    numbers = np.array(keys, dtype=np.int64)
    hashes = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    texts = pa.array([str(number % 10) * width for number in keys])
    at = pa.array(np.broadcast_to(times(numbers), numbers.shape)).view(TIME)
    columns = {"k": numbers, "v": texts, "at": at, HASH: hashes.view(np.int64)}
    return [pa.record_batch(columns).slice(start, 1000) for start in range(0, len(numbers), 1000)]


@dataclass
class Most:
    """The most that was held: in tables above their runs, in a look-up's result, and in a run that was written."""

    tables: dict[SortedTable, int] = field(default_factory=dict)
    held: int = 0
    answer: int = 0
    written: int = 0


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> Most:
    most = Most()
    stage, spill, get, add = SortedTable.stage, SortedTable.spill, KeyedTable.get, TableRuns.add

    def staged(self: SortedTable, run: Run, before: Found | None = None) -> None:
        stage(self, run, before)
        most.tables[self] = self.nbytes
        most.held = max(most.held, sum(most.tables.values()))

    def spilled(self: SortedTable) -> None:
        spill(self)
        most.tables.pop(self, None)

    def got(self: KeyedTable, hashes: Hashes, keys: pa.Table) -> Found:
        found = get(self, hashes, keys)
        most.answer = max(most.answer, found.rows.nbytes)
        return found

    def added(self: TableRuns, delta: Delta) -> None:
        most.written = max(most.written, delta.nbytes)
        add(self, delta)

    monkeypatch.setattr(SortedTable, "stage", staged)
    monkeypatch.setattr(SortedTable, "spill", spilled)
    monkeypatch.setattr(KeyedTable, "get", got)
    monkeypatch.setattr(TableRuns, "add", added)
    return most


@dataclass
class Stream:
    """A stream of two shards, processed by one task after another."""

    operator: Keyed
    store: MemoryObjectStore = field(default_factory=lambda: MemoryObjectStore(f"due-{next(NUMBERS)}"))
    manifest: Manifest = field(init=False)

    def __post_init__(self) -> None:
        beginning = Beginning("s", StreamUuid("u"), Owner("i", "s"), self.operator.pipeline, len(SHARDS))
        self.manifest = first_manifest(beginning, Stamp(Nonce("n"), 0))

    def attempt(self, watermark_us: int | None, batches: list[pa.RecordBatch], limit_bytes: int) -> "Worked":
        """Make the next epoch, without committing it."""
        before = replace(self.manifest, watermark_us=watermark_us)
        epoch = Epoch(before.version + 1)
        engine = Engine(SystemClock(), budget=MemoryBudget(limit_bytes))
        assignment, times, clock = ShardAssignment.keyed(len(SHARDS), 1), self.operator.event_times, SystemClock()
        work = ShardWork(self.store, before, epoch, Term(1), next(NUMBERS), assignment, times, clock, engine)
        replies: list[Reply] = []
        for _ in work.transform(self.operator, SHARDS, batches, replies):
            raise AssertionError("no step is behind this one")
        acks = [reply for reply in replies if isinstance(reply, ShardAck)]
        assert engine.budget.held_bytes == 0
        runs = {
            spec.name: tuple(next(each.runs for each in ack.tables if each.table == spec.name) for ack in acks)
            for spec in self.operator.pipeline.tables
        }
        changes = tuple(change for ack in acks for change in ack.changes)
        after = replace(before, version=Version(epoch), epoch=epoch, runs=runs, changes=changes)
        return Worked(self.store, self.operator, after, acks[0])

    def epoch(self, watermark_us: int | None, batches: list[pa.RecordBatch]) -> None:
        """Make the next epoch with much memory, and commit it."""
        self.manifest = self.attempt(watermark_us, batches, MUCH).after


@dataclass
class Worked:
    """The result of one attempt at an epoch."""

    store: MemoryObjectStore
    operator: Keyed
    after: Manifest
    ack: ShardAck

    @property
    def changes(self) -> pa.Table:
        """The change log, ordered by its rows."""
        table = self.operator.table
        if table is None:
            assert all(ref.kind is not ChangeKind.RUN for ref in self.after.changes)
            return ordered(rows_of_log(self.store, self.after.changes, self.operator.pipeline.output))
        pieces = table_snapshot.changes_of(self.store, [self.after], table.name)
        columns = pa.schema([*self.operator.pipeline.output, (CHANGE_TYPE, pa.string())])
        made = (table.changes_of(piece).rows.cast(columns) for piece in pieces)
        return ordered(pa.concat_tables([columns.empty_table(), *made]))

    @property
    def state(self) -> dict[str, pa.Table]:
        """The rows of each table, ordered."""
        names = [spec.name for spec in self.operator.pipeline.tables]
        return {name: ordered(live_rows(self.store, self.after, name)) for name in names}


def ordered(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names])


def living() -> RunningAggregate:
    return RunningAggregate.build(("k",), WIDE_ROWS, SOURCE, "at", LIFE_US)


def newest() -> Deduplicate:
    return Deduplicate.build(("k",), SOURCE, "last", "at", LIFE_US)


def tumbling() -> WindowAggregate:
    return WindowAggregate.build(("k",), WIDE_ROWS, SOURCE, "at", Tumbling(LIFE_US))


def sessions() -> SessionAggregate:
    return SessionAggregate.build(("k",), WIDE_ROWS, SOURCE, "at", Session(LIFE_US))


def one_by_one(numbers: Any) -> Any:
    return numbers % 1000


def all_at_once(numbers: Any) -> Any:
    return 500 + 0 * numbers


def a_life_later(numbers: Any) -> Any:
    return LIFE_US + numbers % 1000


def two_lives_later(numbers: Any) -> Any:
    return 2 * LIFE_US + numbers % 1000


def much_later(numbers: Any) -> Any:
    return 5 * LIFE_US + numbers % 1000


def same_epoch(stream: Stream, most: Most, watermark_us: int, batches: list[pa.RecordBatch] | None = None) -> Worked:
    """An epoch with little memory, which holds little; it equals one with much memory, and a retry."""
    batches = [] if batches is None else batches
    much = stream.attempt(watermark_us, batches, MUCH)
    for each in ("held", "answer", "written"):
        setattr(most, each, 0)
    most.tables.clear()
    little, again = (stream.attempt(watermark_us, batches, LITTLE) for _ in range(2))
    assert little.changes == again.changes == much.changes
    assert little.state == again.state == much.state
    for other in (again, much):
        assert (little.ack.rows_out, little.ack.counters) == (other.ack.rows_out, other.ack.counters)
    return little


@pytest.mark.parametrize(
    ("times", "back"),
    [(one_by_one, 0), (one_by_one, 2), (all_at_once, 2), (one_by_one, 1)],
    ids=["all leave", "half of them leave", "half of one moment leave", "all stay"],
)
@pytest.mark.parametrize("operator", [living, newest])
def test_few_of_many_expiring_keys_are_held_at_once(
    operator: Callable[[], Keyed], back: int, times: Callable[[Any], Any], most: Most
) -> None:
    stream = Stream(operator())
    stream.epoch(None, batches_of(range(KEYS), times))
    stays = range(0, KEYS, back) if back else range(0)
    if back:
        stream.epoch(None, batches_of(stays, much_later))
    worked = same_epoch(stream, most, 3 * LIFE_US)
    assert worked.changes.num_rows == worked.ack.rows_out == KEYS - len(stays)
    assert [rows.num_rows for rows in worked.state.values()] == [len(stays)] * 2
    assert most.answer <= SOFT // 4
    assert most.held <= 1.5 * SOFT
    assert most.written <= 1.5 * SOFT, "also with what the keys had, which the change log needs"


def test_entries_for_new_keys_are_written_while_those_are_gone_through(most: Most) -> None:
    stream = Stream(living())
    worked = same_epoch(stream, most, 0, batches_of(range(MANY_KEYS), one_by_one, NARROW))
    assert worked.changes.num_rows == worked.ack.rows_out == MANY_KEYS
    assert [rows.num_rows for rows in worked.state.values()] == [MANY_KEYS] * 2
    assert most.held <= 1.5 * SOFT


@pytest.mark.parametrize("operator", [tumbling, sessions])
def test_few_of_many_closing_windows_are_held_at_once(operator: Callable[[], Keyed], most: Most) -> None:
    stream = Stream(operator())
    stream.epoch(None, batches_of(range(KEYS), one_by_one))
    worked = same_epoch(stream, most, 3 * LIFE_US)
    assert worked.changes.num_rows == KEYS
    assert most.answer <= SOFT // 4
    assert max(ref.rows for ref in worked.after.changes) * WIDE <= 0.75 * SOFT
    assert len(worked.after.changes) < 3 * KEYS * WIDE / SOFT, "and the files are no smaller than they must be"
    assert not any(rows.num_rows for rows in worked.state.values())


@pytest.mark.parametrize("operator", [tumbling, sessions])
def test_narrow_windows_come_out_as_few_large_pieces(operator: Callable[[], Keyed], most: Most) -> None:
    stream = Stream(operator())
    stream.epoch(None, batches_of(range(KEYS), one_by_one, NARROW))
    worked = same_epoch(stream, most, 3 * LIFE_US)
    assert len(worked.after.changes) <= 4


def test_few_of_many_extended_sessions_are_held_at_once(most: Most) -> None:
    stream = Stream(sessions())
    for times in (one_by_one, a_life_later, two_lives_later):
        stream.epoch(None, batches_of(range(MANY_KEYS), times, NARROW))
    worked = same_epoch(stream, most, 2 * LIFE_US)
    assert worked.changes.num_rows == 0
    assert [rows.num_rows for rows in worked.state.values()] == [MANY_KEYS] * 2
    assert most.held <= 1.5 * SOFT
