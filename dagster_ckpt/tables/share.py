"""One of several readers' part of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from dagster_ckpt.hash_range import HashRange, shard_range
from dagster_ckpt.protocol.manifest.manifest import ChangeRef


@dataclass(frozen=True, slots=True)
class Share:
    """Share `number` (from 0) of `of` shares: each row is in one of them. Two numbers, cheap to send.

    If the table is made of state, it is a range of key hashes: a key is in the same share at every epoch. If it only
    grows, it is some of the files. Shares `n * number` to `n * number + n - 1` of `n * of` together are this one:
    a share can be split again.
    """

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        assert 0 <= self.number < self.of, f"number={self.number}, of={self.of}"

    @property
    def within(self) -> HashRange:
        """The hashes of the share."""
        return shard_range(self.number, self.of)

    def split(self, pieces: int) -> "list[Share]":
        """So many shares which together are this one."""
        return [Share(self.number * pieces + piece, self.of * pieces) for piece in range(pieces)]

    def files(self, refs: Sequence[ChangeRef]) -> list[ChangeRef]:
        """The files of the share, in their order; all shares have about as many bytes."""
        ends = list(accumulate(ref.bytes for ref in refs))
        # A file belongs where its middle is among all bytes: so with twice as many shares each is half of one of these.
        return [
            ref
            for ref, end in zip(refs, ends, strict=True)
            if (2 * end - ref.bytes) * self.of // (2 * ends[-1]) == self.number
        ]
