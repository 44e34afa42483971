"""The rows that the suite of destinations delivers, and what it needs to know about a destination."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, Destination, DestinationUnavailableError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE

COLUMNS = pa.schema([pa.field("carrier", pa.string()), pa.field("flights", pa.int64())])
UPSERTED = DeliveredTable("delays", COLUMNS, ("carrier",), DeliveryMode.UPSERT)
APPENDED = DeliveredTable("delays", COLUMNS, (), DeliveryMode.APPEND)

Row = tuple[str | None, int | None]


def added(*rows: Row) -> Iterator[pa.RecordBatch]:
    """Rows of a delivery in mode append, in two batches."""
    for part in (rows[:1], rows[1:]):
        yield pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in part], COLUMNS)


def changed(*changes: tuple[str, Row]) -> Iterator[pa.RecordBatch]:
    """Changes of a delivery in mode upsert: `("insert", ("UA", 1))`."""
    schema = COLUMNS.append(pa.field(CHANGE_TYPE, pa.string()))
    rows = [dict(zip(schema.names, (*row, kind), strict=True)) for kind, row in changes]
    yield pa.RecordBatch.from_pylist(rows, schema)


class DestinationCase:
    """A destination under test."""

    modes: tuple[DeliveryMode, ...] = (DeliveryMode.APPEND, DeliveryMode.UPSERT)

    @abstractmethod
    def make(self, folder: Path) -> Destination:
        """A new destination. `folder` is empty, and is removed after the test."""

    @abstractmethod
    def rows(self, destination: Destination) -> Iterable[Row]:
        """All rows of the table: carrier and flights."""

    outside: ClassVar[tuple[str, ...]] = ()
    """The calls that change anything outside of the process: `("shop_driver:Connection.commit",)`.

    Each is made to fail in turn. A method that is not written in Python is named by the call that makes its object:
    `sqlite3:connect().execute`.
    """

    def no_reply(self) -> Exception:
        """The error that these calls raise without a reply."""
        return DestinationUnavailableError("no reply")

    def maintain(self, destination: Destination) -> None:
        """What operators do to such a table: compaction, clean-up, a restart of the server."""
        pytest.skip("this destination has no maintenance")

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination:
        return self.make(tmp_path)

    @pytest.fixture
    def upserts(self, destination: Destination) -> Destination:
        if DeliveryMode.UPSERT not in self.modes:
            pytest.skip("this destination has no updates")
        return destination

    @pytest.fixture
    def appends(self, destination: Destination) -> Destination:
        if DeliveryMode.APPEND not in self.modes:
            pytest.skip("this destination only supports tables with a key")
        return destination

    def sorted_rows(self, destination: Destination) -> list[Row]:
        return sorted(self.rows(destination), key=repr)
