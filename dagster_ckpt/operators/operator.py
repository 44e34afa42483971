"""What an operator is: rows and state in, changes and state out, all as arrays, and nothing else."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CheckpointDeclinedError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.protocol.manifest.manifest import Manifest, Pipeline

NONE_LATE: Positions = np.empty(0, dtype=np.int64)
"""No row was too late."""

_NUMBERED = "_rows_numbered"
_NUMBERS_AN_EPOCH_BITS = 32


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What an operator may know of the epoch it works in, and of the task. There is no clock in it, on purpose.

    `shards` (adjacent, of `of` in all) are those whose rows it is given. `watermark_us` is the watermark of the epoch
    before: no row below it is expected any more; None: it has not begun. `memory_bytes` is about what an operator may
    hold beside its state tables. What it counts in `counters`, under the names it declares, is shown with the epoch.
    `forked_at` is how far the streams had come that this one was forked from, all together. `event_times_us` has the
    greatest event time of each input in the epochs before; None, or nothing: there was none.
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
    def behind(cls, shown: Manifest, epoch: Epoch, shards: Sequence[Shard], memory_bytes: int) -> "EpochContext":
        """The context of the epoch that follows a manifest."""
        return cls(
            epoch=epoch,
            shards=tuple(shards),
            of=shown.shards,
            watermark_us=shown.watermark_us,
            memory_bytes=memory_bytes,
            forked_at=sum(ancestor.epoch for ancestor in shown.ancestors),
            event_times_us=shown.event_times_us,
        )

    @property
    def number(self) -> int:
        """The epoch as a number that nothing in the state has yet, for what is to be told from all that came before.

        The epoch's own is none: a fork counts its epochs from 1, and has the state of a stream that did as well.
        """
        return self.epoch + self.forked_at

    def row_numbers(self, count: int) -> pa.Array:
        """So many numbers (int64, ascending) that no other row of the stream ever had: they tell equal rows apart.

        Not only of these shards: several may become one. An epoch has four billion numbers, of which each shard has an
        equal part. Raises `CheckpointDeclinedError` where a task needs more than those of its shards.
        """
        of_a_shard = (1 << _NUMBERS_AN_EPOCH_BITS) // self.of
        rows, rows_max = self.counters[_NUMBERED] + count, of_a_shard * len(self.shards)
        if rows > rows_max:
            raise CheckpointDeclinedError(
                "an epoch has more rows than can be told apart: let it have fewer by a limit of the source (such as "
                f"maxFilesPerTrigger). Nothing of the epoch is committed. rows={rows}, rows_max={rows_max}, "
                f"epoch={self.epoch}, shards={len(self.shards)}"
            )
        first = (self.number << _NUMBERS_AN_EPOCH_BITS) + of_a_shard * self.shards[0] + self.counters[_NUMBERED]
        self.counters[_NUMBERED] = rows
        return pa.array(np.arange(first, first + count))


@dataclass(frozen=True)
class Changes:
    """What an epoch changed in the stream's table, or a part of that: `count` rows, which are made when first read."""

    count: int
    make: Callable[[], pa.Table]

    @cached_property
    def rows(self) -> pa.Table:
        """Their columns are the output's, then `_change_type`; an update is two rows."""
        return self.make()


class Operator(Protocol):
    """A pure stateful operator: from the same rows, state and watermark it always makes the same state and changes."""

    @property
    def pipeline(self) -> Pipeline:
        """Its fingerprint: enough to build it again (`operators.from_pipeline`)."""
        ...

    @property
    def event_times(self) -> tuple[str | None, ...]:
        """For each input the column with a row's event time; None: it has none."""
        ...

    @property
    def horizon_us(self) -> int | None:
        """How far the watermark may have to pass a row's event time until nothing of it waits any more.

        None: nothing waits for the watermark, so it need not be moved for its own sake.
        """
        ...

    @property
    def logged(self) -> str | None:
        """The state table that the stream's table is made of; its new runs are the change log (`changes_of`).

        None where the stream's table only grows: the rows that `finish` gives are written down.
        """
        ...

    @property
    def counters(self) -> tuple[str, ...]:
        """The names of what it counts in `EpochContext.counters`: always the same, since each is a plot in Dagster."""
        ...

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """Take in rows of one input (`number`, from 0); called any number of times in an epoch, rows in any order.

        `rows` has the columns of `pipeline.inputs[number].schema`, flat (one chunk each); they are of any of the
        context's shards. Returns which of them were too late to be used, ascending.
        """
        ...

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        """The net changes of the epoch in pieces, once its rows were taken in; called exactly once, rows or none.

        After each piece, which may have no rows, the caller may write down what the state holds in memory.
        """
        ...

    def changes_of(self, touched: Touched) -> Changes:
        """The net changes that follow from what happened to some keys of the `logged` table."""
        ...

    def table(self, state_rows: pa.Table) -> pa.Table:
        """The stream's table, as readers see it, from all live rows of the `logged` table."""
        ...


class OnlyGrows:
    """The part of `Operator` of those whose table only grows: what `finish` gives is all of it."""

    @property
    def logged(self) -> None:
        return None

    def changes_of(self, touched: Touched) -> Changes:
        raise AssertionError("no state table is logged")

    def table(self, state_rows: pa.Table) -> pa.Table:
        raise AssertionError("the stream's table is made of its change log")
