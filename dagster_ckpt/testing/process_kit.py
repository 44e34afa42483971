"""Run a process function over given batches, in a user's test: on the real state engine, without Spark."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.ids import Epoch, Nonce, Shard, StreamUuid, Term, Version, can_be_shards
from dagster_ckpt.lsm.columns import flat, flatten, row_codes, rows_equal, stack, take
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators.operator import EpochContext, change_log_table
from dagster_ckpt.operators.process import ListState, ProcessFunction, ProcessOperator
from dagster_ckpt.operators.process.process_tables import INDEX, TIMERS, size_table, state_table
from dagster_ckpt.operators.shared.event_time_range import newest_us
from dagster_ckpt.operators.shared.state_columns import HASH
from dagster_ckpt.operators.shared.subkeys import SHARD_BITS, subkey_hashes
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Owner, RunRef, StateTableSpec
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.edits import Beginning, EpochEdit, Stamp, first_manifest, moved_watermark
from dagster_ckpt.quantities import Duration, Size, microseconds, milliseconds, size_bytes
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.state.engine import Engine
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.task_state import TaskState, open_state
from dagster_ckpt.storage.stores.memory import MemoryObjectStore

_NAME = "kit"


@dataclass(frozen=True)
class _Attempt:
    """The result of one attempt at an epoch."""

    rows: pa.Table
    late: pa.Table
    manifest: Manifest
    """The manifest that the attempt would commit."""


class ProcessKit:
    """Runs a process function, epoch by epoch, as a stream would: all in this process, and in memory.

        kit = ProcessKit(DelayedAlert(), schema, keys="carrier", event_time="scheduled", delay="10 minutes")
        rows = kit.epoch(pa.table({"carrier": ["UA"], "scheduled": [noon]}, schema=schema))

    After each epoch everything but the state is discarded, and the next one begins with a fresh copy of the function.
    Each epoch is run twice from the same state, as after a crash: `InvalidPipelineError` if the second attempt emits
    other rows or leaves other state. Then the function depends on something outside its rows and its state.
    """

    def __init__(
        self,
        function: ProcessFunction,
        schema: pa.Schema,
        *,
        keys: Sequence[str] | str,
        event_time: str | None = None,
        delay: Duration | None = None,
        expire_after: Duration | None = None,
        shards: int = 2,
        memory_limit: Size = "64 MiB",
    ) -> None:
        """`schema` has the columns of the rows; the rest are the options of the stream's steps.

        `keys` may be the name of one column. `delay` is how late a row may come (None: not at all), `expire_after` that
        of `key_by`, `shards` a power of two; with a small `memory_limit`, state is written and read in many pieces.
        Raises `InvalidPipelineError` for invalid options.
        """
        _check_options(event_time, delay, shards)
        self._function = function
        self._operator = ProcessOperator.build(
            deepcopy(function),
            (keys,) if isinstance(keys, str) else tuple(keys),
            InputSpec((), schema),
            event_time,
            expire_after_us=None if expire_after is None else microseconds(expire_after, "expire_after"),
        )
        self._event_time = event_time
        self._delay_us = 0 if delay is None else 1_000 * milliseconds(delay, "delay", least=0)
        clock = SystemClock()
        self._engine = Engine(clock, budget=MemoryBudget(size_bytes(memory_limit, "memory_limit")))
        self._store = MemoryObjectStore(f"{_NAME}-{clock.unique()}")
        beginning = Beginning(_NAME, StreamUuid(_NAME), Owner(_NAME, _NAME), self._operator.pipeline, shards)
        self._manifest = first_manifest(beginning, Stamp(Nonce(_NAME), time_ms=0))
        self._greatest_us: int | None = None
        self._late = schema.empty_table()

    def epoch(self, *batches: pa.Table | pa.RecordBatch) -> pa.Table:
        """Run one epoch over these batches (none is fine); returns the rows that it adds to the stream's table.

        Rows are late by the watermark of the epochs before: this epoch's own rows move that of the next.
        """
        rows = [self._check_batch(batch) for batch in batches]
        first, again = self._attempt(rows, 0), self._attempt(rows, 1)
        if first.rows.num_rows != again.rows.num_rows or not rows_equal(first.rows, again.rows).all():
            raise self._differs("makes other rows", "")
        for spec in self._operator.pipeline.tables:
            if not self._same_state(spec, first, again):
                raise self._differs("leaves other state", f"{_state_part(spec)}, ")
        self._manifest = again.manifest
        self._late = pa.concat_tables([self._late, again.late])
        self._see(rows)
        self._move_watermark()
        return again.rows

    def flush(self) -> pa.Table:
        """The end of the input, with `on_end="flush"`: the watermark passes all rows, and the timers set for them."""
        horizon_us = self._operator.horizon_us
        if self._greatest_us is not None and horizon_us is not None:
            self._move_watermark(at_least_us=self._greatest_us + horizon_us)
        return self.epoch()

    @property
    def watermark(self) -> pa.TimestampScalar | None:
        """The watermark for the next epoch; None: it has not begun."""
        us = self._manifest.watermark_us
        schema = self._operator.pipeline.inputs[0].schema
        return None if us is None else pa.scalar(us, schema.field(self._event_time).type)

    @property
    def late(self) -> pa.Table:
        """All rows so far that were too late: the function has not seen them."""
        return self._late

    def state(self, name: str) -> pa.Table:
        """The state of this name, of all keys: the key's columns and the state's, in no order."""
        kind = self._function.state.get(name)
        if kind is None:
            there = list(self._function.state)
            raise InvalidPipelineError(
                f"the function declares no such state.{did_you_mean(name, there)} "
                f"state={name}, declared={', '.join(there) or 'none'}, function={type(self._function).__name__}"
            )
        names = [*self._operator.pipeline.keys, *kind.schema.names]
        rows = live_rows(self._store, self._manifest, state_table(name))
        assert isinstance(kind, ListState) == (INDEX in rows.column_names), "a list's rows are numbered"
        return rows.select(names)

    def timers(self) -> pa.Table:
        """The timers that are set, of all keys: the key's columns and `_time`, in no order."""
        if self._function.timers_within is None:
            raise InvalidPipelineError(
                f"the function sets no timers: give its class `timers_within`. function={type(self._function).__name__}"
            )
        return live_rows(self._store, self._manifest, TIMERS).drop_columns([HASH])

    def _check_batch(self, batch: pa.Table | pa.RecordBatch) -> pa.Table:
        schema = self._operator.pipeline.inputs[0].schema
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        if not isinstance(batch, pa.Table):
            raise InvalidPipelineError(f"a batch is a pyarrow.Table, or a RecordBatch. given={type(batch).__name__}")
        if not batch.schema.equals(schema):
            raise InvalidPipelineError(
                "a batch must have the kit's schema: cast it. "
                f"columns={batch.schema.to_string()!r}, schema={schema.to_string()!r}"
            )
        return flatten(batch)

    def _differs(self, what: str, where: str) -> InvalidPipelineError:
        return InvalidPipelineError(
            f"called again with the same rows and state, the function {what}: it must not depend on the clock, on "
            "chance, on the order of a set, or on anything it keeps outside its state. "
            f"{where}function={type(self._function).__name__}, epoch={self._manifest.epoch}"
        )

    def _same_state(self, spec: StateTableSpec, first: _Attempt, again: _Attempt) -> bool:
        """Whether a table holds the same rows, each as many times. The position of a row in a list is ignored."""
        names = [name for name in spec.schema.names if name != INDEX]
        one, other = (live_rows(self._store, each.manifest, spec.name, names) for each in (first, again))
        if one.num_rows != other.num_rows or one.num_rows == 0:
            return bool(one.num_rows == other.num_rows)
        codes = row_codes([flat(column) for column in stack([one, other]).columns])
        return bool(np.array_equal(np.sort(codes[: one.num_rows]), np.sort(codes[one.num_rows :])))

    def _attempt(self, batches: Sequence[pa.Table], attempt: int) -> _Attempt:
        """One attempt at the epoch, on the state of the one before."""
        operator = ProcessOperator.from_pipeline(self._operator.pipeline, deepcopy(self._function))
        manifest = self._manifest
        epoch, shards = Epoch(manifest.version + 1), tuple(map(Shard, range(manifest.shards)))
        budget = self._engine.budget
        watermark_us = manifest.watermark_us
        context = EpochContext(
            epoch,
            shards,
            len(shards),
            watermark_us,
            memory_bytes=budget.soft_bytes,
            event_times_us=(self._greatest_us,),
        )
        late = [self._late.slice(0, 0)]
        file = FileId(Term(1), epoch, shards[0], attempt)
        with open_state(self._store, manifest, shards, file, self._engine, change_log_table(operator)) as state:
            state.compact()
            for rows in batches:
                late.append(take(rows, operator.on_rows(0, self._hashes(rows), rows, state, context)))
                state.relieve()
            made = []
            for changes in operator.finish(state, context):
                made.append(changes.rows.drop_columns([CHANGE_TYPE]))
                state.relieve()
            after = _after(manifest, epoch, state)
        rows = pa.concat_tables([operator.pipeline.output.empty_table(), *made])
        return _Attempt(flatten(rows), pa.concat_tables(late), after)

    def _hashes(self, rows: pa.Table) -> Hashes:
        columns = rows.select(list(self._operator.pipeline.keys)).columns
        return subkey_hashes(np.zeros(rows.num_rows, dtype=np.uint64), columns) << np.uint64(SHARD_BITS)

    def _see(self, batches: Sequence[pa.Table]) -> None:
        """Keep the greatest event time."""
        if self._event_time is None:
            return
        for rows in batches:
            known = [us for us in (self._greatest_us, newest_us(rows.column(self._event_time))) if us is not None]
            self._greatest_us = max(known, default=None)

    def _move_watermark(self, at_least_us: int | None = None) -> None:
        """Move the watermark of the next epoch as a stream does."""
        edit = EpochEdit((), (), batch_id=0, epoch_ms=0, delays_us=(self._delay_us,), at_least_us=at_least_us)
        now_us = moved_watermark(self._manifest.watermark_us, (self._greatest_us,), edit)
        self._manifest = replace(self._manifest, watermark_us=now_us)


def _check_options(event_time: str | None, delay: Duration | None, shards: int) -> None:
    if delay is not None and event_time is None:
        raise InvalidPipelineError(
            f"rows are late by event time: name its column with event_time=, or leave delay out. delay={delay!r}"
        )
    if not can_be_shards(shards):
        raise InvalidPipelineError(f"shards must be a power of two: 1, 2, 4, 8 ... shards={shards!r}")


def _state_part(spec: StateTableSpec) -> str:
    """The part of a function's state that is in this table."""
    if spec.name == TIMERS:
        return "of=timers"
    return f"state={spec.name.removeprefix(state_table('')).removeprefix(size_table(''))}"


def _after(manifest: Manifest, epoch: Epoch, state: TaskState) -> Manifest:
    """The manifest of the epoch with this state."""
    lists = state.flush()
    runs: dict[str, tuple[tuple[RunRef, ...], ...]] = {
        spec.name: tuple(next(each.runs for each in lists[shard] if each.table == spec.name) for shard in sorted(lists))
        for spec in manifest.pipeline.tables
    }
    return replace(manifest, version=Version(epoch), epoch=epoch, runs=runs)
