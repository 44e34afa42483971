"""Which buckets rows look into, and so few of those at once that what lies in them fits into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import FoundAll, Hashes

_ROOM_BYTES = 1 << 16
"""An answer to one question is taken for no larger until the first answers are there."""

_GROWTH_MAX = 8
"""So many times as many questions are asked at most the next time: few answers may say little about the others."""


@dataclass(frozen=True)
class Questions:
    """The buckets to look into: bucket i under the key of row `rows[i]`. Row `at[j]` asks about bucket `asked[j]`."""

    rows: Positions
    buckets: Positions
    hashes: Hashes
    at: Positions
    asked: Positions

    def __len__(self) -> int:
        return len(self.rows)

    def by_bucket(self) -> "Questions":
        """The same, so that `asked` ascends."""
        order = np.argsort(self.asked, kind="stable")
        return Questions(self.rows, self.buckets, self.hashes, self.at[order], self.asked[order])

    def part(self, first: int, end: int) -> "Questions":
        """The questions `[first, end)` alone, where `asked` ascends."""
        mine, at = slice(first, end), slice(*np.searchsorted(self.asked, [first, end]).tolist())
        return Questions(self.rows[mine], self.buckets[mine], self.hashes[mine], self.at[at], self.asked[at] - first)


class AtOnce:
    """How many questions to ask at once, so that the answer has at most about `bytes_max` bytes.

    How large an answer is nobody knows before it is there: each says how many questions would have filled half of what
    may be held, and so many are asked the next time. One question is asked whatever its answer weighs.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._count = max(1, bytes_max // _ROOM_BYTES)

    def answers(
        self, questions: Questions, ask: Callable[[Questions], FoundAll]
    ) -> Iterator[tuple[Questions, FoundAll]]:
        """All questions, in parts, each with its answer, and asked when it is taken: few at once need one answer."""
        if len(questions) > self._count:
            questions = questions.by_bucket()
        first = 0
        while first < len(questions):
            end = min(first + self._count, len(questions))
            part = questions if end - first == len(questions) else questions.part(first, end)
            found = ask(part)
            if self._learn(len(part), found.rows.nbytes):
                yield part, found
                first = end
            else:
                questions = questions.by_bucket()  # they may have been asked as they came, all at once
            del found  # one answer at a time

    def _learn(self, count: int, bytes_: int) -> bool:
        """What an answer to so many questions says of the next ones; and whether it can be used itself."""
        fill_half = count * self._bytes_max // max(1, 2 * bytes_)
        if fill_half >= count:
            self._count = max(self._count, min(fill_half, _GROWTH_MAX * count))
        else:
            self._count = max(1, fill_half)
        return bytes_ <= self._bytes_max or count == 1
