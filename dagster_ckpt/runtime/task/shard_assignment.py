"""Which task works on which shards."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dagster_ckpt.ids import Shard
from dagster_ckpt.lsm.table import Hashes

HASH = "_hash"
"""The column that carries the 64-bit key hash from Spark's shuffle to the operator."""

INPUT = "_input"
"""With several inputs: the column with the number of a row's input."""


def columns_of_input(number: int) -> str:
    """With several inputs: the name of the struct with the columns of one; null in rows of the others."""
    return f"_input_{number}"


@dataclass(frozen=True, slots=True)
class ShardAssignment:
    """How `shards` (a power of two) are spread over tasks. `tasks` is None for an unkeyed stream.

    A keyed stream is shuffled: a shard is a range of the key's hash, a task works on a range of shards. An unkeyed one
    is not: each Spark partition is a task, and its rows belong to shard `partition % shards`.
    """

    shards: int
    tasks: int | None

    @classmethod
    def keyed(cls, shards: int, tasks_max: int) -> "ShardAssignment":
        """As few shards per task as `tasks_max` tasks allow; every task has at least one."""
        shards_a_task = -(-shards // max(1, tasks_max))
        return cls(shards, -(-shards // shards_a_task))

    @classmethod
    def unkeyed(cls, shards: int) -> "ShardAssignment":
        return cls(shards, None)

    def shards_of(self, partition: int) -> tuple[Shard, ...]:
        """The shards that the task of this partition works on.

        Where the changes of several steps meet in one Spark stage, its partitions are those of one after the other.
        """
        if self.tasks is None:
            return (Shard(partition % self.shards),)
        first = partition % self.tasks * self._shards_a_task
        return tuple(map(Shard, range(first, min(first + self._shards_a_task, self.shards))))

    @property
    def is_even(self) -> bool:
        """Whether all tasks have as many shards: then their hashes are those of as many shares (`Share`)."""
        return self.tasks is not None and self.shards % self.tasks == 0

    def partition_in_sql(self) -> str:
        """The partition of a row, as a Spark SQL expression over its hash."""
        return f"cast({self._shard_in_sql()} div {self._shards_a_task} as int)"

    def shards_in(self, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """The shard of each hash."""
        if self.shards == 1:
            return np.zeros(len(hashes), np.uint16)  # a shift by all 64 bits is none
        return (hashes >> np.uint64(64 - self._bits)).astype(np.uint16)

    def tasks_in(self, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """The task of each hash."""
        return self.shards_in(hashes) // np.uint16(self._shards_a_task)

    def _shard_in_sql(self) -> str:
        return "0" if self.shards == 1 else f"shiftrightunsigned({HASH}, {64 - self._bits})"

    @property
    def _bits(self) -> int:
        return self.shards.bit_length() - 1

    @property
    def _shards_a_task(self) -> int:
        assert self.tasks is not None, "an unkeyed stream has no shuffle"
        return -(-self.shards // self.tasks)
