"""What an epoch said of a table and did not write yet."""

from collections.abc import Callable, Sequence

from dagster_ckpt.lsm.runs.deltas import Word, one_word

_WORDS_MAX = 8
"""So many may lie unmerged, and be asked one after another."""


class Memtable:
    """Words, newest first. The newest are made one where they are many, so that there are ever fewer of greater size.

    Words are taken as they come, and put together late: an epoch that takes in its rows at once never copies them.
    """

    def __init__(self, keys: Sequence[str], settled: Callable[[Word], Word]) -> None:
        """`settled` completes a word before it is made one with others: see `one_word`."""
        self._keys = keys
        self._settled = settled
        self._words: list[Word] = []

    def __bool__(self) -> bool:
        return bool(self._words)

    @property
    def words(self) -> Sequence[Word]:
        """All that was said, newest first."""
        return self._words

    @property
    def nbytes(self) -> int:
        """What the words hold, more or less."""
        return sum(word.nbytes for word in self._words)

    def say(self, word: Word) -> None:
        """Put a word above all others; an empty one says nothing."""
        if len(word):
            self._words.insert(0, word)
            if len(self._words) > _WORDS_MAX:
                self._make_one(self._alike())

    def one(self) -> Word | None:
        """All that was said as one word; None: nothing was."""
        self._make_one(len(self._words))
        return self._words[0] if self._words else None

    def replace(self, change: Callable[[Word], Word]) -> None:
        """Put another word in the place of each."""
        self._words = [word for word in map(change, self._words) if len(word)]

    def clear(self) -> None:
        """Forget everything: it was written."""
        self._words.clear()

    def _alike(self) -> int:
        """How many of the newest to make one: as far down as the next is no greater than all before it."""
        count, rows = 1, len(self._words[0])
        while count < len(self._words) and len(self._words[count]) <= rows:
            rows += len(self._words[count])
            count += 1
        return count

    def _make_one(self, count: int) -> None:
        if count > 1:
            self._words[:count] = [one_word([self._settled(word) for word in self._words[:count]], self._keys)]
