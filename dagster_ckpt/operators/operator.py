"""What an operator is: rows and state in, changes and state out, all as arrays, and nothing else."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.protocol.manifest import Pipeline


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What an operator may know of the epoch it works in, and of the task. There is no clock in it, on purpose.

    `shards` (adjacent, of `of` in all) are those whose rows it is given. `safe_epoch` is the oldest epoch that the
    stream can still be rolled back to. `memory_bytes` is about what an operator may hold beside its state tables. What
    it counts in `counters`, under the names it declares, is shown with the epoch.
    """

    epoch: Epoch
    shards: tuple[Shard, ...]
    of: int
    watermark_us: int | None
    safe_epoch: Epoch
    memory_bytes: int
    counters: Counter[str] = field(default_factory=Counter)


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
    def logged(self) -> str | None:
        """The state table whose new runs are the change log, because `changes_of` makes it from them.

        None: the rows that `finish` gives are written down.
        """
        ...

    @property
    def counters(self) -> tuple[str, ...]:
        """The names of what it counts in `EpochContext.counters`: always the same, since each is a plot in Dagster."""
        ...

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> int:
        """Take in rows of the context's shards, of any of them in any order; called any number of times in an epoch.

        Returns how many rows were too late to be used.
        """
        ...

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        """The net changes of the epoch in pieces, once its rows were taken in; called exactly once, rows or none."""
        ...

    def changes_of(self, touched: Touched) -> Changes:
        """The net changes that follow from what happened to some keys of the `logged` table."""
        ...

    def table(self, state_rows: pa.Table) -> pa.Table:
        """The stream's table, as readers see it, from all live rows of the operator's state table."""
        ...
