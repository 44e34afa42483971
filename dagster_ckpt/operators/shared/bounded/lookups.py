"""Many keys looked up, so few at once that what is found fits into memory."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.lsm.table import Found, Hashes, StateTable
from dagster_ckpt.operators.shared.bounded.at_once import AtOnce

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
