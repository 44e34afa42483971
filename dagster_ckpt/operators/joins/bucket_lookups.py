"""Look-ups of the buckets that rows reach into, in batches whose results fit into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import FoundAll, Hashes
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize

_ROOM_BYTES = 1 << 16
"""The assumed size of a bucket until the first buckets are known."""


@dataclass(frozen=True)
class BucketProbes:
    """The buckets to look up: bucket i under the key of row `rows[i]`. Row `at[j]` reaches into bucket `asked[j]`."""

    rows: Positions
    buckets: Positions
    hashes: Hashes
    at: Positions
    asked: Positions

    def __len__(self) -> int:
        return len(self.rows)

    def by_bucket(self) -> "BucketProbes":
        """The same probes with ascending `asked`."""
        order = np.argsort(self.asked, kind="stable")
        return BucketProbes(self.rows, self.buckets, self.hashes, self.at[order], self.asked[order])

    def part(self, first: int, end: int) -> "BucketProbes":
        """The buckets `[first, end)` alone; `asked` must ascend."""
        mine, at = slice(first, end), slice(*np.searchsorted(self.asked, [first, end]).tolist())
        return BucketProbes(self.rows[mine], self.buckets[mine], self.hashes[mine], self.at[at], self.asked[at] - first)


class BucketLookups:
    """Looks up buckets in batches; the rows of a batch have at most about `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._batch = BatchSize(bytes_max, _ROOM_BYTES, growth_max=8)

    def find(
        self, probes: BucketProbes, get: Callable[[BucketProbes], FoundAll]
    ) -> Iterator[tuple[BucketProbes, FoundAll]]:
        """All probes in batches, each looked up when the iterator reaches it."""
        if len(probes) > self._batch.count:
            probes = probes.by_bucket()
        first = 0
        while first < len(probes):
            end = min(first + self._batch.count, len(probes))
            part = probes if end - first == len(probes) else probes.part(first, end)
            found = get(part)
            if self._batch.learn(len(part), found.rows.nbytes):
                yield part, found
                first = end
            else:
                probes = probes.by_bucket()  # they may not be sorted yet, if all were one batch
            del found  # one result at a time
