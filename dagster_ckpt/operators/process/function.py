"""What a user writes: an operator of his own, over Arrow tables."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType

import pyarrow as pa

from dagster_ckpt.operators.process.state_kinds import StateKind
from dagster_ckpt.operators.process.user_state.keyed_state import KeyedState

_NOTHING: Mapping[str, StateKind] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What a process function may know of the epoch. There is no clock in it, on purpose.

    `watermark` is the one of the epoch, the same in each of its calls, as a scalar of the event time's type: no row
    before it comes any more. None: it has not begun, or the stream has no event time. `epoch` is for messages: an epoch
    that is worked again has another number.
    """

    epoch: int
    watermark: pa.TimestampScalar | None


class ProcessFunction(ABC):
    """User code in the place of an operator. Its rows are appended to the stream's table.

    Subclass it, say what `output`, `state` and `timers_within` are (class attributes will do, or properties), and write
    `on_rows`; where timers are set, `on_watermark` too. Each call is given a table with rows of many keys and reaches
    the state of all of them at once: a loop over rows or keys is what makes a function slow.

    What it must keep to, since an epoch may be worked again after a crash, and its rows may be cut anywhere:

    - The same rows, state and context give the same result: no clock, no chance, nothing from outside.
    - Nothing is kept between calls but in `state`: not in `self`, not in a global.
    - How an epoch's rows are cut into calls, and in which order they come, does not matter to what it leaves.
    """

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """The columns of what the methods return: the stream's table."""
        ...

    @property
    def state(self) -> Mapping[str, StateKind]:
        """What is kept for each key, by name: of each a `ValueState` or a `ListState`."""
        return _NOTHING

    @property
    def timers_within(self) -> timedelta | None:
        """How long after the event time of a row the timers lie that are set because of it; None: it sets no timers.

        So far `on_end="flush"` moves the watermark past the newest row: all timers that rows have set are fired. A
        timer further than that after the stream's newest row is refused when it is set. A timer may set the next one
        as far after itself; the flush fires what lies within reach of the newest row, and the rest of a chain waits for
        later rows. A stream that sets timers needs an event time.
        """
        return None

    @abstractmethod
    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table | None:
        """Take in rows; None for no output. Called any number of times in an epoch, never without rows.

        `rows` has all columns of the input. None of them is late. Timers that were due are fired before the first call
        of an epoch.
        """
        ...

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table | None:
        """Do what waited for the watermark; None for no output.

        Called where it has reached timers: those are its rows, each once, with the key columns and `_time`, ascending
        by time, and at most one of a key: the key's next one comes when what was said here of its state and timers is
        done, as if the watermark had moved from one to the next. There is no other call per watermark, since whatever a
        function waits for, it waits for at a time it knows: that is a timer, and so nothing is called, or looked at,
        for keys that wait for nothing.

        Many timers are given in several calls. A timer that is set here for a time that has come already is fired in
        its turn, in a further call of the same epoch; one that is cleared here before its turn is not fired.
        """
        return None
