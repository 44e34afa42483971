"""The operator protocol: rows and state in, changes and state out, all as Arrow and numpy arrays."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline

NONE_LATE: Positions = np.empty(0, dtype=np.int64)
"""No row was too late."""
KEYS = "keys"
"""The parameter with the key columns of each input, which are compared in pairs."""
EVENT_TIME = "event_time"
"""The parameter with the event-time column of a step with one input, or None."""
EVENT_TIMES = "event_times"
"""The parameter with the event-time column of each input; absent where none has one."""
InputColumn = tuple[int, str]
"""The number of an input, from 0, and one of its columns."""
Origins = Mapping[str, Sequence[InputColumn]]
"""For each column those that it is made from. One that is not there is made from something unknown."""
LiveRows = Callable[[str], Iterator[pa.Table]]
"""The rows of a state table, by its name, in pieces."""

_NUMBERED = "_rows_numbered"
_NUMBERS_AN_EPOCH_BITS = 32


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What an operator can see of the current epoch and task. It has no clock, on purpose.

    `shards` (adjacent, out of `of`) are those whose rows it receives. `watermark_us` is the watermark of the previous
    epoch: no more rows below it are expected; None: there is no watermark yet. `memory_bytes` is roughly what an
    operator may hold besides its state tables. `counters`, under the names the operator declares, are reported with the
    epoch. `forked_at` is the sum of the epochs at which the stream's ancestors were forked. `event_times_us` has the
    greatest event time of each input in earlier epochs; None, or no entry, where there was none.
    """

    epoch: Epoch
    shards: tuple[Shard, ...]
    of: int
    watermark_us: int | None
    memory_bytes: int
    counters: Counter[str] = field(default_factory=Counter)
    forked_at: int = 0
    event_times_us: tuple[int | None, ...] = ()

    @classmethod
    def following(
        cls, shown: Manifest, epoch: Epoch, shards: Sequence[Shard], memory_bytes: int, step: int = 0
    ) -> "EpochContext":
        """The context of a step in the epoch that follows a manifest."""
        pipeline, times_us = shown.pipeline, dict(enumerate(shown.event_times_us))
        inputs = pipeline.inputs_of_stream(step) if pipeline.before else times_us
        return cls(
            epoch=epoch,
            shards=tuple(shards),
            of=shown.shards,
            watermark_us=_behind(shown.watermark_us, pipeline.behind_us(step)),
            memory_bytes=memory_bytes,
            forked_at=sum(ancestor.epoch for ancestor in shown.ancestors),
            event_times_us=tuple(None if each is None else times_us.get(each) for each in inputs),
        )

    def of_earlier_step(self, shown: Manifest, step: int) -> "EpochContext":
        """The same, for the rows of a step that come from an earlier one.

        That one emits in this epoch what the watermark has made due since it last did. Until then these rows are in
        time, and until then the step has finished its own.
        """
        return replace(self, watermark_us=_behind(shown.harvested_us, shown.pipeline.behind_us(step)))

    @property
    def number(self) -> int:
        """A number for this epoch that no earlier epoch has used in the state.

        `epoch` alone is not unique: a fork counts its epochs from 1, and inherits state from a stream that did too.
        """
        return self.epoch + self.forked_at

    def row_numbers(self, count: int) -> pa.Array:
        """`count` ascending int64 numbers, unique in the whole stream: they distinguish rows that are otherwise equal.

        Unique across all shards, because resharding may merge some. An epoch has 2**32 numbers, divided equally among
        the shards. Raises `CheckpointDeclinedError` if a task needs more than its shards have.
        """
        of_a_shard = (1 << _NUMBERS_AN_EPOCH_BITS) // self.of
        rows, rows_max = self.counters[_NUMBERED] + count, of_a_shard * len(self.shards)
        if rows > rows_max:
            raise CheckpointDeclinedError(
                "an epoch has more rows than can be numbered: limit the rows of an epoch at the source (such as "
                f"maxFilesPerTrigger). Nothing of the epoch is committed. rows={rows}, rows_max={rows_max}, "
                f"epoch={self.epoch}, shards={len(self.shards)}"
            )
        first = (self.number << _NUMBERS_AN_EPOCH_BITS) + of_a_shard * self.shards[0] + self.counters[_NUMBERED]
        self.counters[_NUMBERED] = rows
        return pa.array(np.arange(first, first + count))


def _behind(watermark_us: int | None, behind_us: int) -> int | None:
    return None if watermark_us is None else watermark_us - behind_us


@dataclass(frozen=True)
class Changes:
    """Changes of an epoch to the stream's table, or a part of them: `count` rows, built when first read.

    `more_rows` is how many more rows the table then has, where a row of its state table stands for several; else None.
    """

    count: int
    make: Callable[[], pa.Table]
    more_rows: int | None = None

    @cached_property
    def rows(self) -> pa.Table:
        """The output's columns, then `_change_type`; an update is two rows."""
        return self.make()


@dataclass(frozen=True)
class StreamTable:
    """A stream's table that is derived from the state table `name`, whose new runs are its change log.

    `rows` gives the table as readers see it, from all live rows of the state table, and `changes_of` the net changes
    that follow from changes to some of its keys.
    """

    name: str
    rows: Callable[[pa.Table], pa.Table]
    changes_of: Callable[[Touched], Changes]

    def then(self, rows: Callable[[pa.Table], pa.Table], changes: Callable[[Changes], Changes]) -> "StreamTable":
        """The table that these make of its rows, and of its changes."""
        return StreamTable(
            self.name, lambda state_rows: rows(self.rows(state_rows)), lambda each: changes(self.changes_of(each))
        )


def keys_of_inputs(step: Pipeline) -> tuple[tuple[str, ...], ...]:
    """The key columns of each input of a step."""
    keys: Any = [step.keys] if len(step.inputs) == 1 else step.parameters[KEYS]
    return tuple(map(tuple, keys))


def input_origins(step: Pipeline) -> Origins:
    """The origins of columns that are those of the first input."""
    return {name: [(0, name)] for name in step.output.names}


def event_times_of(step: Pipeline) -> tuple[str | None, ...]:
    """The event-time column of each input of a step, as its options name them."""
    options: Mapping[str, Any] = step.parameters
    return tuple(options.get(EVENT_TIMES, [options.get(EVENT_TIME)] * len(step.inputs)))


class Operator(ABC):
    """A pure stateful operator: the same rows, state and watermark always give the same state and changes.

    What one says nothing of is so: it has event times if its options name them, waits for no watermark, keeps no table
    of its rows, and its rows are in the shards of its keys.
    """

    pipeline: Pipeline
    """The operator's fingerprint: enough to rebuild it (`operators.from_pipeline`)."""

    @property
    def event_times(self) -> tuple[str | None, ...]:
        """The event-time column of each input; None for an input without one."""
        return event_times_of(self.pipeline)

    @property
    def horizon_us(self) -> int | None:
        """How far the watermark must pass a row's event time until nothing waits for that row.

        None: the operator never waits for the watermark, so the driver need not advance it.
        """
        return None

    @property
    def table(self) -> StreamTable | None:
        """The stream's table as a state table has it.

        None: the rows that `finish` yields are written out if they only append. Else the last step of a stream keeps
        them by a `Materializer`, and the options of the operator have the parameter `ROW_KEY`.
        """
        return None

    @property
    def shard_keys(self) -> Sequence[Sequence[str]]:
        """The columns of the output by whose hash a row is in its shard: for each key the first that is not null."""
        return [(key,) for key in self.pipeline.keys]

    @property
    def origins(self) -> Origins:
        """For each column of the output the input columns whose values it has, or is computed from.

        A count of rows has none. Columns that only select rows (in a condition, an order, a watermark) do not count.
        """
        return input_origins(self.pipeline)

    @abstractmethod
    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """Process rows of input `number` (from 0); called any number of times in an epoch, with rows in any order.

        `rows` has the columns of `pipeline.inputs[number].schema`, one chunk each, for any of the context's shards.
        Returns the positions of rows that were too late to use, ascending.
        """

    @abstractmethod
    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        """The net changes of the epoch in pieces, after all its rows; called exactly once, even without rows.

        After each piece, which may be empty, the caller may flush the state held in memory.
        """

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each input, in the columns that `on_rows` reads, as inserts; with the number of the input.

        Worked again, they give the output. Only for steps of which `step_changes.gives_rows` says that.
        """
        raise NotImplementedError(self.pipeline.operator)


def change_log_table(operator: Operator) -> str | None:
    """The state table whose new runs are the change log; None for an operator without one."""
    return None if operator.table is None else operator.table.name
