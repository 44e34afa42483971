"""Many keys looked up, so few at once that what is found fits into memory."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.lsm.table import Found, Hashes, StateTable


class AtOnce:
    """So many questions that the answer has at most about `bytes_max` bytes.

    How large an answer is nobody knows before it is there: each says how many questions would have filled half of what
    may be held, and so many are asked the next time. One question is asked whatever its answer weighs. The answer to
    one is taken for no larger than `room_bytes` until the first answers are there. At most `growth_max` times as many
    are asked the next time: few answers may say little about the others.
    """

    def __init__(self, bytes_max: int, room_bytes: int, growth_max: int) -> None:
        self._bytes_max = bytes_max
        self._growth_max = growth_max
        self.count = max(1, bytes_max // room_bytes)

    def learn(self, count: int, bytes_: int) -> bool:
        """What an answer to so many questions says of the next ones; and whether it can be used itself."""
        fill_half = count * self._bytes_max // max(1, 2 * bytes_)
        if fill_half >= count:
            self.count = max(self.count, min(fill_half, self._growth_max * count))
        else:
            self.count = max(1, fill_half)
        return bytes_ <= self._bytes_max or count == 1


_ROOM_BYTES = 1 << 14
"""A row is taken for no larger until the first rows are there."""


class Lookups:
    """Looks keys of a table up; the rows found at once have at most about `bytes_max` bytes.

    How wide rows are the answers say, as `AtOnce` tells. One key is got whatever its row weighs.
    """

    def __init__(self, table: StateTable, bytes_max: int) -> None:
        self._table = table
        self._at_once = AtOnce(bytes_max, _ROOM_BYTES, growth_max=16)

    def found(self, hashes: Hashes, keys: pa.Table) -> Iterator[tuple[slice, Found]]:
        """What there is of n distinct keys: parts of them in their order, each with its answer, got when it is taken.

        Between two parts anything may be said of the table.
        """
        first = 0
        while first < len(hashes):
            part = slice(first, min(first + self._at_once.count, len(hashes)))
            count = part.stop - first
            found = self._table.get(hashes[part], keys.slice(first, count))
            if self._at_once.learn(count, found.rows.nbytes):
                yield part, found
                first = part.stop
            del found  # one answer at a time
