"""One epoch of a process function: when its methods are called, and with what."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from types import TracebackType

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError
from dagster_ckpt.hash_range import shard_range
from dagster_ckpt.lsm.columns import Positions, flat, flatten
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.process.due_timers import DueTimeline
from dagster_ckpt.operators.process.epoch.process_expiry import Expiry
from dagster_ckpt.operators.process.function import ProcessContext, ProcessFunction
from dagster_ckpt.operators.process.process_tables import EXPIRY, NUMBER, OUT, SEEN, TIME, TIMERS
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys
from dagster_ckpt.operators.process.user_state.keyed_state import KeyedState
from dagster_ckpt.operators.process.user_state.timers import TimerReach, Timers
from dagster_ckpt.operators.process.user_state.user_tables import of_schema
from dagster_ckpt.operators.shared.event_time_range import newest_us
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.protocol.manifest.manifest import Pipeline, StateTableSpec


def table_of_call(call: Callable[[], object], output: pa.Schema, keys: CallKeys, where: str) -> pa.Table:
    """What the call returns: a table of `output`, empty for None. `where` names the method, at the end of each message.

    `keys` are those of the call: if `output` has all key columns, no other key may be returned. Raises
    `InvalidPipelineError` for an invalid table, `CheckpointDeclinedError` for an error of the user's code.
    """
    try:
        made = call()
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointDeclinedError(
            "the process function raised an error: fix it, or the rows that it cannot process. Nothing of the epoch is "
            f"committed, and nothing is lost. {where}{_line(error.__traceback__)}, "
            f"error={type(error).__name__}: {error}"
        ) from error
    if made is None:
        return output.empty_table()
    rows = of_schema(made, output, where)
    if set(keys.rows.column_names) <= set(output.names):
        keys.check_output(rows, where)
    return rows


def _line(trace: TracebackType | None) -> str:
    """The line in the user's method that raised: below the frames of this module and of the call."""
    inner = trace.tb_next.tb_next if trace is not None and trace.tb_next is not None else None
    return "" if inner is None else f", line={inner.tb_lineno}"


TIMERS_FIRED = "timers_fired"
"""Timers passed to `on_watermark`."""
KEYS_EXPIRED = "keys_expired"
"""Keys whose state expired."""

_BEGUN = "_process_begun"
_NEWEST_US = "_process_newest_us"
"""The greatest event time of the task's rows in this epoch; absent before the first."""


class PendingOutput:
    """Output of `on_rows`, kept in the state: it may not fit into memory, and an operator is stateless.

    All has expired at the end of the epoch, without tombstones.
    """

    def __init__(self, spec: StateTableSpec, output: pa.Schema, state: State, context: EpochContext) -> None:
        self._schema = spec.schema
        self._output = output
        self._timeline = state.timeline(OUT)
        self._context = context

    def put(self, rows: pa.Table) -> None:
        """Keep rows with the output's columns."""
        if rows.num_rows == 0:
            return
        numbers = self._context.row_numbers(rows.num_rows).view(self._schema.field(NUMBER).type)
        # All in one shard, whatever their keys: so they are never sorted, and keep their order.
        first = shard_range(self._context.shards[0], self._context.of).lo
        hashes = np.full(rows.num_rows, first, dtype=np.uint64)
        self._timeline.put(hashes, pa.Table.from_arrays([numbers, *rows.columns], schema=self._schema))

    def drain(self) -> Iterator[pa.Table]:
        """All kept rows, in pieces; then they expire."""
        until_us = None
        for piece in self._timeline.scan(None, None):
            if piece.num_rows:
                until_us = int(micros(piece.column(NUMBER))[-1]) + 1
                rows = flatten(piece.select(self._output.names))
                yield pa.Table.from_arrays(rows.columns, schema=self._output)
        if until_us is not None:
            self._timeline.expire(until_us)


@dataclass(frozen=True)
class ProcessEpoch:
    """The work of an epoch; all its memory is in the state and the context."""

    function: ProcessFunction
    pipeline: Pipeline
    event_time: str | None
    expire_after_us: int | None
    state: State
    context: EpochContext

    def begin(self) -> Iterator[pa.Table]:
        """Fire due timers, then expire state, before any row of the epoch; only once in an epoch.

        First, because no row of the epoch is before the watermark: so timers see the same state as if the watermark had
        advanced in a separate epoch. Yields a table after each step, even if empty: between steps the caller may flush
        the state held in memory.
        """
        if not self.context.counters[_BEGUN]:
            self.context.counters[_BEGUN] += 1
            yield from self.fire()
            if self.expiry is not None and self.context.watermark_us is not None:
                for gone in self.expiry.expire(self.context.watermark_us, self._forget):
                    self.context.counters[KEYS_EXPIRED] += gone
                    yield self.pipeline.output.empty_table()

    def fire(self) -> Iterator[pa.Table]:
        """Call `on_watermark` for all due timers, those of a key one after another; yields its output."""
        watermark_us = self.context.watermark_us
        if self.timers is None or watermark_us is None:
            return
        for piece in self.timers.due(watermark_us + 1):
            yield self._call_with_timers(piece)

    def take_in(self, hashes: Hashes, rows: pa.Table) -> None:
        """Call `on_rows` with rows; none of them may be late."""
        keys = CallKeys.of(hashes, rows.select(self._keys))
        self._see(rows)
        if self.expiry is not None:
            assert self.event_time is not None, "checks require an event time for state that expires"
            self.expiry.record_rows(keys, flat(rows.column(self.event_time)), self.context.watermark_us)
        where = self._where("on_rows")
        state = self._keyed_state(keys, where, None)
        made = self._call(lambda: self.function.on_rows(rows, state, self._process_context), keys, where)
        if self.timers is not None:
            self.timers.write()
        self.out.put(made)

    def end(self) -> None:
        """Expire processed entries, so that not even tombstones remain."""
        if self.context.watermark_us is not None:
            for name in (TIMERS, EXPIRY):
                if name in self._specs:
                    self.state.timeline(name).expire(self.context.watermark_us + 1)

    @cached_property
    def out(self) -> PendingOutput:
        """The output of `on_rows`."""
        return PendingOutput(self._specs[OUT], self.pipeline.output, self.state, self.context)

    @cached_property
    def timers(self) -> DueTimeline | None:
        """All timers; None: the function sets none."""
        if TIMERS not in self._specs:
            return None
        return DueTimeline(self.state.timeline(TIMERS), self._specs[TIMERS], self._bytes_max)

    @cached_property
    def expiry(self) -> Expiry | None:
        """The expiry of state; None: state does not expire."""
        if self.expire_after_us is None:
            return None
        return Expiry(self.expire_after_us, self.state, self._specs[SEEN], self._specs[EXPIRY], self._bytes_max)

    @cached_property
    def _specs(self) -> dict[str, StateTableSpec]:
        return {spec.name: spec for spec in self.pipeline.tables}

    @property
    def _keys(self) -> list[str]:
        return list(self.pipeline.keys)

    @property
    def _bytes_max(self) -> int:
        return self.context.memory_bytes // 4

    def _call_with_timers(self, timers: pa.Table) -> pa.Table:
        """Call `on_watermark` with timers, one of each key, after deleting state that expired before them."""
        keys = CallKeys.of(hashes_in(timers), timers.select(self._keys))
        times_us = np.empty(len(keys), dtype=np.int64)
        times_us[keys.which] = micros(timers.column(TIME))
        if self.expiry is not None:
            self.context.counters[KEYS_EXPIRED] += self.expiry.expire_by(times_us, keys, self._forget)
        where = self._where("on_watermark")
        state = self._keyed_state(keys, where, times_us)
        given = timers.select([*self._keys, TIME])
        made = self._call(lambda: self.function.on_watermark(given, state, self._process_context), keys, where)
        self.context.counters[TIMERS_FIRED] += timers.num_rows
        if self.expiry is not None:
            self.expiry.record_timers(keys, times_us)
        return made

    def _call(self, call: Callable[[], object], keys: CallKeys, where: str) -> pa.Table:
        """What the call returns, in the types of the stream's table."""
        return table_of_call(call, self.function.output, keys, where).cast(self.pipeline.output)

    def _forget(self, keys: CallKeys) -> None:
        KeyedState(self.function.state, self.state, keys, self._where("expire_after")).forget()

    def _keyed_state(self, keys: CallKeys, where: str, fired_us: Positions | None) -> KeyedState:
        timers = None if self.timers is None else Timers(self.timers, keys, where, self._reach, fired_us)
        return KeyedState(self.function.state, self.state, keys, where, timers)

    def _see(self, rows: pa.Table) -> None:
        if self.event_time is None:
            return
        counters, newest = self.context.counters, newest_us(rows.column(self.event_time))
        if newest is not None:
            counters[_NEWEST_US] = max(newest, counters.get(_NEWEST_US, newest))

    @property
    def _reach(self) -> TimerReach:
        assert self.function.timers_within is not None, "a function with timers declares timers_within"
        of_epoch = self.context.counters.get(_NEWEST_US)
        known = [us for us in (*self.context.event_times_us, of_epoch) if us is not None]
        return TimerReach(max(known, default=None), self.function.timers_within // timedelta(microseconds=1))

    @cached_property
    def _process_context(self) -> ProcessContext:
        watermark = None
        if self.context.watermark_us is not None and self.event_time is not None:
            type_ = self.pipeline.inputs[0].schema.field(self.event_time).type
            watermark = pa.scalar(self.context.watermark_us, type_)
        return ProcessContext(int(self.context.epoch), watermark)

    def _where(self, method: str) -> str:
        return f"operator=process, method={type(self.function).__name__}.{method}"
