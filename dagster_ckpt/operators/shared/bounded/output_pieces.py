"""Small tables of output, combined."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from dagster_ckpt.operators.operator import Changes
from dagster_ckpt.operators.shared.net_changes import label
from dagster_ckpt.protocol.change_columns import INSERT


class OutputPieces:
    """Combines small tables of output into changes of about `bytes_max` bytes, each of which becomes a file."""

    def __init__(self, schema: pa.Schema, bytes_max: int) -> None:
        self._empty = schema.empty_table()
        self._bytes_max = bytes_max
        self._tables: dict[str, list[pa.Table]] = {}
        self._bytes = 0

    def add(self, rows: pa.Table, kind: str = INSERT) -> Iterator[Changes]:
        """Add rows with this change type; yields changes that are ready."""
        if rows.num_rows:
            self._tables.setdefault(kind, []).append(rows)
        yield from self.count(rows.nbytes)

    def count(self, bytes_: int) -> Iterator[Changes]:
        """Count bytes put into state tables; yields changes, possibly empty, so that the caller can flush state."""
        self._bytes += bytes_
        if self._bytes >= self._bytes_max:
            yield self._take()

    def rest(self) -> Iterator[Changes]:
        """Yield the remaining rows, at the end."""
        if self._tables:
            yield self._take()

    def _take(self) -> Changes:
        parts = [(kind, pa.concat_tables(tables)) for kind, tables in self._tables.items()] or [(INSERT, self._empty)]
        self._tables, self._bytes = {}, 0
        return Changes(sum(rows.num_rows for _, rows in parts), partial(label, parts))
