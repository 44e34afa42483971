"""Which buckets rows look into, and so few of those at once that what lies in them fits into memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import FoundAll, Hashes
from dagster_ckpt.operators.shared.bounded.lookups import AtOnce

_ROOM_BYTES = 1 << 16
"""An answer to one question is taken for no larger until the first answers are there."""


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


class Answers:
    """Answers to many questions; those that are there at once have at most about `bytes_max` bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._at_once = AtOnce(bytes_max, _ROOM_BYTES, growth_max=8)

    def to(self, questions: Questions, ask: Callable[[Questions], FoundAll]) -> Iterator[tuple[Questions, FoundAll]]:
        """All questions, in parts, each with its answer, and asked when it is taken: few at once need one answer."""
        if len(questions) > self._at_once.count:
            questions = questions.by_bucket()
        first = 0
        while first < len(questions):
            end = min(first + self._at_once.count, len(questions))
            part = questions if end - first == len(questions) else questions.part(first, end)
            found = ask(part)
            if self._at_once.learn(len(part), found.rows.nbytes):
                yield part, found
                first = end
            else:
                questions = questions.by_bucket()  # they may have been asked as they came, all at once
            del found  # one answer at a time
