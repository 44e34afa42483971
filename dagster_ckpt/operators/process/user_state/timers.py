"""Event-time timers, for the keys of one call of a process function."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, take, to_mask
from dagster_ckpt.operators.process.due_timers import DueTimeline
from dagster_ckpt.operators.process.process_tables import TIME, entries
from dagster_ckpt.operators.process.user_state.call_keys import CallKeys, row_text
from dagster_ckpt.operators.shared.state_columns import micros
from dagster_ckpt.protocol.transitions.edits import WATERMARK_US_MAX

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class TimerReach:
    """The latest time of a timer, so that the flush at the end of the input fires every timer set by rows.

    `newest_us` is the greatest event time of the stream so far (None: there is none), `within_us` the furthest a timer
    may be after it, or after the timer that fires. The watermark is at most `WATERMARK_US_MAX`.
    """

    newest_us: int | None
    within_us: int

    def latest_us(self, count: int, fired_us: Positions | None) -> Positions:
        """The latest time of each of `count` timers; `fired_us` are the times of the timers that set them, if any."""
        by_rows = _NEVER if self.newest_us is None else min(self.newest_us + self.within_us, WATERMARK_US_MAX)
        if fired_us is None:
            return np.full(count, by_rows)
        within_us = min(self.within_us, WATERMARK_US_MAX)
        by_timers = np.minimum(fired_us, WATERMARK_US_MAX - within_us) + within_us
        latest: Positions = np.maximum(by_rows, by_timers)
        return latest


class Timers:
    """A timer is a key and a time: set twice, it is one. Valid only during one call, and for its keys.

    Both methods take a table with the key columns and as many times, of the event time's type; a null time sets no
    timer. They raise `InvalidPipelineError` for arguments that do not fit.
    """

    def __init__(
        self, timeline: DueTimeline, keys: CallKeys, where: str, reach: TimerReach, fired_us: Positions | None = None
    ) -> None:
        """`fired_us`: the time of the fired timer of each key; None if the call has rows."""
        self._timeline = timeline
        self._keys = keys
        self._where = where
        self._reach = reach
        self._fired_us = fired_us

    def set(self, keys: pa.Table, times: pa.Array | pa.ChunkedArray) -> None:
        """Pass these keys to `on_watermark` once the watermark has reached these times.

        A time is at most `timers_within` after the newest event time of the stream so far, which is as far as the flush
        at the end of the input goes. In `on_watermark` it may also be that far after the fired timer, and it must be
        after it, or the loop would never end.
        """
        which, times_us = self._pairs(keys, times)
        self._check_reach(which, times_us)
        if self._fired_us is not None:
            early = np.flatnonzero(times_us <= self._fired_us[which])
            if len(early):
                key = row_text(take(self._keys.keys, which[early[:1]]), 0)
                raise InvalidPipelineError(
                    "a timer must set the next one for a later time, or the watermark would never get past "
                    f"it. key={key}, time={spelled_time(times_us[early[0]], self._type)}, {self._where}"
                )
        self._timeline.put(self._keys.hashes[which], self._entries(which, times_us))

    def clear(self, keys: pa.Table, times: pa.Array | pa.ChunkedArray) -> None:
        """Clear timers; one that was not set is no error.

        In `on_watermark` this clears timers later than the fired one, even if the watermark has reached them: their
        turn has not come.
        """
        which, times_us = self._pairs(keys, times)
        if self._fired_us is not None:
            to_come = np.flatnonzero(times_us > self._fired_us[which])
            which, times_us = which[to_come], times_us[to_come]
        self._timeline.delete(self._keys.hashes[which], self._entries(which, times_us))

    def _check_reach(self, which: Positions, times_us: Positions) -> None:
        fired_us = None if self._fired_us is None else self._fired_us[which]
        latest_us = self._reach.latest_us(len(which), fired_us)
        beyond = np.flatnonzero(times_us > latest_us)
        if len(beyond) == 0:
            return
        first = beyond[0]
        key = row_text(take(self._keys.keys, which[beyond[:1]]), 0)
        time = spelled_time(times_us[first], self._type)
        if latest_us[first] == _NEVER:
            raise InvalidPipelineError(
                "a timer needs an event time, and no row of the stream has had one yet: set timers once a row with an "
                f"event time has arrived. key={key}, time={time}, {self._where}"
            )
        raise InvalidPipelineError(
            "this timer is further than `timers_within` after the newest row, so on_end='flush' would not fire it: "
            f"declare a longer `timers_within`, or set an earlier time. key={key}, time={time}, "
            f"latest={spelled_time(latest_us[first], self._type)}, {self._where}"
        )

    @property
    def _type(self) -> pa.DataType:
        return self._timeline.spec.schema.field(TIME).type

    def _pairs(self, keys: pa.Table, times: pa.Array | pa.ChunkedArray) -> tuple[Positions, Positions]:
        """Distinct keys and times, without null times."""
        which = self._keys.find(keys, self._where)
        times = self._check_times(times, len(which))
        if times.null_count:
            known = np.flatnonzero(to_mask(times.is_valid()))
            which, times = which[known], times.drop_null()
        times_us = micros(times)
        order = np.lexsort((times_us, which))
        which, times_us = which[order], times_us[order]
        first = np.ones(len(which), dtype=np.bool_)
        first[1:] = (which[1:] != which[:-1]) | (times_us[1:] != times_us[:-1])
        return which[first], times_us[first]

    def _check_times(self, times: object, count: int) -> pa.Array:
        if not isinstance(times, pa.Array | pa.ChunkedArray):
            raise InvalidPipelineError(f"give times as an Arrow column. given={type(times).__name__}, {self._where}")
        if times.type != self._type:
            raise InvalidPipelineError(
                f"the times of timers must have the event time's type: cast them. type={times.type}, "
                f"needed={self._type}, {self._where}"
            )
        if len(times) != count:
            raise InvalidPipelineError(f"give each key a time. keys={count}, times={len(times)}, {self._where}")
        return flat(times)

    def _entries(self, which: Positions, times_us: Positions) -> pa.Table:
        return entries(self._timeline.spec, times_us, self._keys.hashes[which], take(self._keys.keys, which))


def spelled_time(time_us: int, type_: pa.DataType) -> str:
    """A time for messages, even one beyond the years of Python."""
    return str(pa.array([time_us]).view(type_).cast(pa.string())[0])
