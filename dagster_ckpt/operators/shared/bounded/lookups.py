"""Look-ups of many keys, in batches whose results fit into memory."""

from collections.abc import Iterator

import pyarrow as pa

from dagster_ckpt.lsm.table import Found, Hashes, StateTable


class BatchSize:
    """Adapts the size of a batch so that its result has at most about `bytes_max` bytes.

    The size of a result is unknown beforehand. So each result determines how many keys would have filled half of
    `bytes_max`, and the next batch has that many, at least one. Until the first result, the estimate is `room_bytes`
    for a key. A batch is at most `growth_max` times as large as the one before: a small sample may be misleading.
    """

    def __init__(self, bytes_max: int, room_bytes: int, growth_max: int) -> None:
        self._bytes_max = bytes_max
        self._growth_max = growth_max
        self.count = max(1, bytes_max // room_bytes)

    def learn(self, count: int, bytes_: int) -> bool:
        """Learn from the result of a batch of `count` keys; returns whether the result is small enough to use."""
        fill_half = count * self._bytes_max // max(1, 2 * bytes_)
        if fill_half >= count:
            self.count = max(self.count, min(fill_half, self._growth_max * count))
        else:
            self.count = max(1, fill_half)
        return bytes_ <= self._bytes_max or count == 1


_ROOM_BYTES = 1 << 14
"""The assumed size of a row until the first rows are known."""


class Lookups:
    """Looks up keys of a table in batches; the rows of a batch have at most about `bytes_max` bytes.

    See `BatchSize`. A single key is looked up whatever the size of its row.
    """

    def __init__(self, table: StateTable, bytes_max: int) -> None:
        self._table = table
        self._batch = BatchSize(bytes_max, _ROOM_BYTES, growth_max=16)

    def find(self, hashes: Hashes, keys: pa.Table) -> Iterator[tuple[slice, Found]]:
        """The rows of n distinct keys: slices of the keys in order, each looked up when the iterator reaches it.

        Between two slices you may change the table.
        """
        first = 0
        while first < len(hashes):
            part = slice(first, min(first + self._batch.count, len(hashes)))
            count = part.stop - first
            found = self._table.get(hashes[part], keys.slice(first, count))
            if self._batch.learn(count, found.rows.nbytes):
                yield part, found
                first = part.stop
            del found  # one result at a time
