"""What you implement: a user-defined operator over Arrow tables."""

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
    """What a process function can see of the epoch. It has no clock, on purpose.

    `watermark` is the watermark of the epoch, the same in all its calls, as a scalar of the event time's type: no more
    rows before it arrive. None: there is no watermark yet, or the stream has no event time. `epoch` is for messages: a
    retried epoch has another number.
    """

    epoch: int
    watermark: pa.TimestampScalar | None


class ProcessFunction(ABC):
    """A user-defined operator. Its output is appended to the stream's table.

    Subclass it, declare `output`, `state` and `timers_within` (as class attributes or properties), and implement
    `on_rows`; if you set timers, `on_watermark` too. Each call receives a table with rows of many keys, and accesses
    the state of all of them at once. A loop over rows or keys is slow.

    Follow these rules, because an epoch may be retried after a crash, and its rows may be batched in any way:

    - The same rows, state and context give the same result: no clock, no randomness, no outside input.
    - Keep data between calls only in `state`: not in `self`, not in a global.
    - The order of an epoch's rows, and their batches, must not affect the state at its end.
    """

    @property
    @abstractmethod
    def output(self) -> pa.Schema:
        """The columns of what the methods return: the stream's table."""
        ...

    @property
    def state(self) -> Mapping[str, StateKind]:
        """The state of each key, by name: each a `ValueState` or a `ListState`."""
        return _NOTHING

    @property
    def timers_within(self) -> timedelta | None:
        """The longest time from a row's event time to a timer set for it; None: the function sets no timers.

        `on_end="flush"` advances the watermark this far past the newest row, so that all timers set by rows fire. A
        timer further than that after the stream's newest row is rejected when it is set. A timer may set the next one
        as far after itself; the flush fires those within reach of the newest row, and the rest of a chain waits for
        later rows. A stream that sets timers needs an event time.
        """
        return None

    @abstractmethod
    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table | None:
        """Process rows; return None for no output. Called any number of times in an epoch, never without rows.

        `rows` has all columns of the input, and no late rows. Due timers fire before the first call of an epoch.
        """
        ...

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table | None:
        """Process timers that the watermark has reached; return None for no output.

        `timers` has the key columns and `_time`, ascending by time, each timer once, and at most one of a key: the next
        timer of the key comes after the changes of this call to its state and timers, as if the watermark had advanced
        from one to the next. There is no other call per watermark: to wait for a time, set a timer. So keys that wait
        for nothing cost nothing.

        Many timers are passed in several calls. A timer that you set here for a time already reached fires in its turn,
        in a later call of the same epoch; one that you clear here before its turn does not fire.
        """
        return None
