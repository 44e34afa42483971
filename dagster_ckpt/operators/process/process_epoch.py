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
from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Found, Hashes, State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.process.due_timers import DueTimeline
from dagster_ckpt.operators.process.function import ProcessContext, ProcessFunction
from dagster_ckpt.operators.process.process_tables import EXPIRY, LAST, NUMBER, OUT, SEEN, TIME, TIMERS, entries
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys
from dagster_ckpt.operators.process.user_state.keyed_state import KeyedState
from dagster_ckpt.operators.process.user_state.timers import TimerReach, Timers
from dagster_ckpt.operators.process.user_state.user_tables import of_schema
from dagster_ckpt.operators.shared.event_time_range import newest_us
from dagster_ckpt.operators.shared.state_columns import hashes_in, micros
from dagster_ckpt.protocol.manifest.manifest import Pipeline, StateTableSpec

_UNKNOWN = np.iinfo(np.int64).min
_NEVER = np.iinfo(np.int64).max
_AT_ONCE_US = -62_135_596_800_000_000
"""The year 1. While the time of a key is unknown, its entry is due as soon as there is a watermark."""

TIMERS_FIRED = "timers_fired"
"""Timers passed to `on_watermark`."""
KEYS_EXPIRED = "keys_expired"
"""Keys whose state expired."""
_BEGUN = "_process_begun"
_NEWEST_US = "_process_newest_us"
"""The greatest event time of the task's rows in this epoch; absent before the first."""


class Expiry:
    """A key expires `after_us` after its last row. A row without an event time counts as one at the watermark.

    `SEEN` has the time of the last row of each key; `EXPIRY` has an entry for each key, which is checked when it is due
    and put again if there were rows since. So a row costs one look-up and no entry, and expiry costs one scan.
    """

    def __init__(
        self, after_us: int, state: State, seen: StateTableSpec, expiry: StateTableSpec, bytes_max: int
    ) -> None:
        self._after_us = after_us
        self._seen = state.table(SEEN)
        self._schema = seen.schema
        self._keys = list(seen.keys)
        self._timeline = DueTimeline(state.timeline(EXPIRY), expiry, bytes_max)

    def record_rows(self, keys: CallKeys, times: pa.Array, watermark_us: int | None) -> None:
        """Record rows of these keys, with these event times."""
        floor = _UNKNOWN if watermark_us is None else watermark_us
        last_us = np.full(len(keys), floor)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        np.maximum.at(last_us, keys.which[known], micros(times.drop_null()))
        found = self._seen.get(keys.hashes, keys.keys)
        before_us = np.full(len(keys), _UNKNOWN)
        before_us[found.present] = _micros_or_unknown(flat(found.rows.column(LAST)))
        is_new = ~found.present
        later = np.flatnonzero(is_new | (last_us > before_us))
        self._put_seen(keys, later, last_us[later], select(found, later))
        new = np.flatnonzero(is_new)
        self._check_at(keys, new, self._ends(last_us[new]))
        self._timeline.write()

    def record_timers(self, keys: CallKeys, times_us: Positions) -> None:
        """Record fired timers, one for each key: state that they put starts its time to live at the timer.

        Only for keys without an entry in `SEEN`: otherwise the key expires by its last row.
        """
        written = np.flatnonzero(keys.written)
        found = self._seen.get(keys.hashes[written], take(keys.keys, written))
        absent = np.flatnonzero(~found.present)
        new = written[absent]
        self._put_seen(keys, new, times_us[new], select(found, absent))
        self._check_at(keys, new, self._ends(times_us[new]))
        self._timeline.write()

    def expire_by(self, times_us: Positions, keys: CallKeys, forget: Callable[[CallKeys], None]) -> int:
        """Delete those of n keys that have expired by the time given for each; returns their number.

        Their entries in `EXPIRY` stay until they are due, and then have no effect.
        """
        found = self._seen.get(keys.hashes, keys.keys)
        known = np.flatnonzero(found.present)
        last_us = _micros_or_unknown(flat(found.rows.column(LAST)))
        has_ended = (last_us != _UNKNOWN) & (self._ends(last_us) <= times_us[known])
        self._release(keys, known[has_ended], found, forget)
        return int(has_ended.sum())

    def expire(self, watermark_us: int, forget: Callable[[CallKeys], None]) -> Iterator[int]:
        """Delete all keys that have expired at the watermark, in batches; yields the number in each."""
        for piece in self._timeline.due(watermark_us + 1):
            keys = CallKeys.of(hashes_in(piece), piece.select(self._keys))
            found = self._seen.get(keys.hashes, keys.keys)
            known = np.flatnonzero(found.present)
            last_us = _micros_or_unknown(flat(found.rows.column(LAST)))
            begins = np.flatnonzero(last_us == _UNKNOWN)
            last_us[begins] = watermark_us
            self._put_seen(keys, known[begins], last_us[begins], select(found, known[begins]))
            ends_us = self._ends(last_us)
            stays = ends_us > watermark_us
            self._check_at(keys, known[stays], ends_us[stays])
            self._release(keys, known[~stays], found, forget)
            yield int((~stays).sum())

    def _release(self, keys: CallKeys, which: Positions, found: Found, forget: Callable[[CallKeys], None]) -> None:
        if len(which):
            gone = take(keys.keys, which)
            forget(CallKeys.of(keys.hashes[which], gone))
            self._seen.delete(keys.hashes[which], gone, before=select(found, which))

    def _ends(self, last_us: Positions) -> Positions:
        """When these keys expire."""
        ends = np.where(last_us > _NEVER - self._after_us, _NEVER, last_us + self._after_us)
        return np.where(last_us == _UNKNOWN, _AT_ONCE_US, ends)

    def _put_seen(self, keys: CallKeys, which: Positions, last_us: Positions, before: Found) -> None:
        times = pa.array(last_us, mask=last_us == _UNKNOWN).view(self._schema.field(LAST).type)
        columns = [*take(keys.keys, which).columns, times]
        self._seen.put(keys.hashes[which], pa.Table.from_arrays(columns, schema=self._schema), before)

    def _check_at(self, keys: CallKeys, which: Positions, times_us: Positions) -> None:
        """Put entries to check these keys at these times."""
        its_keys, hashes = take(keys.keys, which), keys.hashes[which]
        self._timeline.put(hashes, entries(self._timeline.spec, times_us, hashes, its_keys))


def _micros_or_unknown(times: pa.Array) -> Positions:
    numbers: Positions = times.view(pa.int64()).fill_null(_UNKNOWN).to_numpy().copy()
    return numbers


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
