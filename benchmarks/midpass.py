"""Run lists as those of a stream whose shards are all in the middle of their merges: nothing in them is regular."""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from benchmarks.plan import Commits
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.ack import ShardAck, ShardRuns
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef
from dagster_ckpt.protocol.object_names import FileId, changes_name, state_name

_HASHES = 2**64
_BOTTOM = 3


class MidPass:
    """The shards of a stream, epoch after epoch.

    Each of `tasks` writes two files an epoch for all its shards: their new upper run, and a part of their bottom. A
    shard has `runs` of them: uppers, each with a merge range that ends where the shard's merging has come to, the
    oldest of which goes for the new one; below them a bottom, cut at random hashes, a third of it new.
    """

    def __init__(self, table: str, commits: Commits, chance: np.random.Generator) -> None:
        self._table = table
        self._shards = commits.shards
        self._a_task = commits.shards // commits.tasks
        self._uppers_max = commits.runs - _BOTTOM
        self._chance = chance
        self._uppers: list[tuple[RunRef, ...]] = [()] * commits.shards
        self._bottoms: list[tuple[RunRef, ...]] = [()] * commits.shards

    def epoch(self, term: Term, epoch: Epoch) -> tuple[ShardAck, ...]:
        """The words of all shards for this epoch."""
        return tuple(
            ack for first in range(0, self._shards, self._a_task) for ack in self._of_task(term, epoch, Shard(first))
        )

    def _of_task(self, term: Term, epoch: Epoch, first: Shard) -> list[ShardAck]:
        shards = [Shard(shard) for shard in range(first, first + self._a_task)]
        upper, slice_ = (self._file(term, epoch, shards, number) for number in range(2))
        change = self._change(term, epoch, first)
        acks = []
        for shard in shards:
            within = self._range(shard)
            self._uppers[shard] = self._merged(upper, self._uppers[shard], within)
            self._bottoms[shard] = self._cut(slice_, self._bottoms[shard], within)
            runs = ShardRuns(self._table, (*self._uppers[shard], *self._bottoms[shard]))
            acks.append(ShardAck(shard, (runs,), (change,) if shard == first else (), rows_in=390))
        return acks

    def _merged(self, new: RunRef, before: tuple[RunRef, ...], within: HashRange) -> tuple[RunRef, ...]:
        """The new run on top; of the others more was moved down."""
        cursor = self._hash(within)
        kept = before[: self._uppers_max - 1]
        moved = [replace(ref, moved_lo=ref.moved_lo or self._hash(within), moved_hi=cursor) for ref in kept]
        return (replace(new, clip=within), *moved)

    def _cut(self, new: RunRef, before: tuple[RunRef, ...], within: HashRange) -> tuple[RunRef, ...]:
        """The bottom after a slice was written: the oldest file has nothing left, and all are cut anew."""
        files = [new, *before][:_BOTTOM]
        cuts = sorted(self._hash(within) for _ in files[1:])
        clips = [HashRange(lo, hi - 1) for lo, hi in pairwise([within.lo, *cuts, within.hi + 1])]
        return tuple(replace(file, clip=clip) for file, clip in zip(files, clips, strict=True))

    def _file(self, term: Term, epoch: Epoch, shards: list[Shard], number: int) -> RunRef:
        path = state_name(self._table, shards, self._shards, FileId(term, epoch, shards[0], 0, number))
        lo, hi = self._range(shards[0]).lo, self._range(shards[-1]).hi
        return RunRef(
            path,
            rows=int(self._chance.integers(10_000, 200_000)),
            bytes=int(self._chance.integers(400_000, 8_000_000)),
            checksum=self._checksum(),
            epoch=epoch,
            # Of thousands of rows the first and last lie near the bounds, wherever.
            hashes=HashRange(lo + int(self._chance.integers(2**48)), hi - int(self._chance.integers(2**48))),
        )

    def _change(self, term: Term, epoch: Epoch, first: Shard) -> ChangeRef:
        rows, bytes_ = (int(self._chance.integers(limit // 2, limit)) for limit in (12_500, 400_000))
        return ChangeRef(changes_name(FileId(term, epoch, first, 0)), rows, bytes_, self._checksum(), epoch, first)

    def _checksum(self) -> str:
        """As a run's: the length of its tail, and a CRC-32."""
        return f"{int(self._chance.integers(1_000, 9_000))}:{int(self._chance.integers(2**32)):08x}"

    def _range(self, shard: Shard) -> HashRange:
        width = _HASHES // self._shards
        return HashRange(shard * width, (shard + 1) * width - 1)

    def _hash(self, within: HashRange) -> int:
        """Any but the least of these."""
        return within.lo + 1 + int(self._chance.integers(within.hi - within.lo))
