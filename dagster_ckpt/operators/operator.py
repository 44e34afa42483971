"""What an operator is: rows and state in, changes and state out, all as arrays, and nothing else."""

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.protocol.manifest import Pipeline


@dataclass(frozen=True, slots=True)
class EpochContext:
    """What an operator may know of the epoch it works in. There is no clock in it, on purpose."""

    epoch: Epoch
    shard: Shard
    shards: int
    watermark_us: int | None


@dataclass(frozen=True)
class Changes:
    """What an epoch changed in one shard of the stream's table.

    Its columns are the output's, then `_change_type`; an update is two rows.
    """

    rows: pa.Table


class Operator(Protocol):
    """A pure stateful operator: from the same rows, state and watermark it always makes the same state and changes."""

    @property
    def pipeline(self) -> Pipeline:
        """Its fingerprint: enough to build it again (`operators.from_pipeline`)."""
        ...

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> int:
        """Take in rows of one shard; called any number of times in an epoch.

        Returns how many rows were too late to be used.
        """
        ...

    def finish(self, state: State, context: EpochContext) -> Changes:
        """The net changes of the epoch, once its rows were taken in; called exactly once, also if there were none."""
        ...

    def table(self, state_rows: pa.Table) -> pa.Table:
        """The stream's table, as readers see it, from all live rows of the operator's state table."""
        ...
