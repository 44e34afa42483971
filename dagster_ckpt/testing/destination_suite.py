"""What every destination must do, as tests: write a class of your own that makes a destination and reads its rows.

    class TestMyDestination(DestinationSuite):
        def make(self, folder: Path) -> Destination:
            return MyDestination(folder / "shop.db", "delays")

        def rows(self, destination: Destination) -> list[dict[str, object]]:
            return my_rows(destination)

It needs pytest. Where a destination is not for one of the modes, set `modes`.
"""

import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    Destination,
    PositionMovedError,
    Session,
    Transaction,
)
from dagster_ckpt.errors import CheckpointError, InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

COLUMNS = pa.schema([pa.field("carrier", pa.string()), pa.field("flights", pa.int64())])
UPSERTED = DeliveredTable("delays", COLUMNS, ("carrier",), DeliveryMode.UPSERT)
APPENDED = DeliveredTable("delays", COLUMNS, (), DeliveryMode.APPEND)

Row = tuple[str | None, int | None]

_RACES = 20
_TOGETHER_S = 5.0


def added(*rows: Row) -> Iterator[pa.RecordBatch]:
    """Rows of a delivery in mode append, in two batches."""
    for part in (rows[:1], rows[1:]):
        yield pa.RecordBatch.from_pylist([dict(zip(COLUMNS.names, row, strict=True)) for row in part], COLUMNS)


def changed(*changes: tuple[str, Row]) -> Iterator[pa.RecordBatch]:
    """Changes of a delivery in mode upsert: `("insert", ("UA", 1))`."""
    schema = COLUMNS.append(pa.field(CHANGE_TYPE, pa.string()))
    rows = [dict(zip(schema.names, (*row, kind), strict=True)) for kind, row in changes]
    yield pa.RecordBatch.from_pylist(rows, schema)


class DestinationSuite:
    """The tests. Each begins with a new destination."""

    modes: tuple[DeliveryMode, ...] = (DeliveryMode.APPEND, DeliveryMode.UPSERT)

    @abstractmethod
    def make(self, folder: Path) -> Destination:
        """A destination that nothing was delivered to. `folder` is empty, and goes with the test."""

    @abstractmethod
    def rows(self, destination: Destination) -> Iterable[Row]:
        """All rows of the table: carrier and flights."""

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
            pytest.skip("this destination only takes tables with a key")
        return destination

    def found(self, destination: Destination) -> list[Row]:
        return sorted(self.rows(destination), key=repr)

    def test_rows_and_position_are_there_when_a_transaction_returns(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            assert session.position is None
            session.apply(Transaction(None, "1", added(("UA", 1), ("AA", 2))))
            session.apply(Transaction("1", "2", added(("UA", 1))))
        assert self.found(appends) == [("AA", 2), ("UA", 1), ("UA", 1)]
        with appends.open("one", APPENDED) as session:
            assert session.position == "2"
            session.apply(Transaction("2", "3", added(("DL", None))))
        assert self.found(appends) == [("AA", 2), ("DL", None), ("UA", 1), ("UA", 1)]

    def test_a_transaction_without_rows_moves_the_position(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", iter(())))
        assert self.found(appends) == []
        with appends.open("one", APPENDED) as session:
            assert session.position == "1"

    def test_changes_are_applied_by_key(self, upserts: Destination) -> None:
        with upserts.open("one", UPSERTED) as session:
            first = changed((INSERT, ("UA", 1)), (INSERT, (None, 5)), (INSERT, ("AA", 2)), (INSERT, ("DL", None)))
            session.apply(Transaction(None, "1", first))
            second = changed(
                (UPDATE_PREIMAGE, ("UA", 1)),
                (UPDATE_POSTIMAGE, ("UA", 7)),
                (UPDATE_PREIMAGE, (None, 5)),
                (UPDATE_POSTIMAGE, (None, 6)),
                (DELETE, ("AA", 2)),
                (INSERT, ("B6", 1)),
            )
            session.apply(Transaction("1", "2", second))
        assert self.found(upserts) == [("B6", 1), ("DL", None), ("UA", 7), (None, 6)]
        with upserts.open("one", UPSERTED) as session:
            session.apply(Transaction("2", "3", changed((DELETE, (None, 6)), (DELETE, ("DL", None)))))
        assert self.found(upserts) == [("B6", 1), ("UA", 7)]

    def test_a_replacement_leaves_only_its_rows(self, upserts: Destination) -> None:
        with upserts.open("one", UPSERTED) as session:
            session.apply(Transaction(None, "1", changed((INSERT, ("UA", 1)), (INSERT, ("AA", 2)))))
            session.apply(Transaction("1", "2", changed((INSERT, ("AA", 3)), (INSERT, (None, 1))), replaces=True))
        assert self.found(upserts) == [("AA", 3), (None, 1)]

    def test_a_session_that_was_opened_earlier_cannot_commit(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as zombie:
            zombie.apply(Transaction(None, "1", added(("UA", 1))))
            with appends.open("one", APPENDED) as session:
                assert session.position == "1"
                self._refused(zombie, Transaction("1", "2", added(("UA", 2))))
                session.apply(Transaction("1", "2", added(("UA", 3))))
        assert self.found(appends) == [("UA", 1), ("UA", 3)]

    def test_a_transaction_that_builds_on_another_position_is_refused(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", added(("UA", 1))))
        for after in (None, "0", "2"):
            with appends.open("one", APPENDED) as session:
                self._refused(session, Transaction(after, "2", added(("UA", 2))))
        assert self.found(appends) == [("UA", 1)]

    def test_rows_that_cannot_be_read_leave_nothing(self, appends: Destination) -> None:
        def broken() -> Iterator[pa.RecordBatch]:
            yield from added(("UA", 1), ("AA", 1))
            raise CheckpointError("a file of the stream is damaged")

        with appends.open("one", APPENDED) as session, pytest.raises(CheckpointError):
            session.apply(Transaction(None, "1", broken()))
        assert self.found(appends) == []
        with appends.open("one", APPENDED) as session:
            assert session.position is None
            session.apply(Transaction(None, "1", added(("UA", 1))))
        assert self.found(appends) == [("UA", 1)]

    def test_two_deliveries_at_once_have_one_winner(self, appends: Destination) -> None:
        position: str | None = None
        for race in range(_RACES):
            won: list[bool] = []
            both = threading.Barrier(2)

            def deliver(after: str | None, race: int, won: list[bool], both: threading.Barrier) -> None:
                try:
                    with appends.open("one", APPENDED) as session:
                        with suppress(threading.BrokenBarrierError):
                            both.wait(_TOGETHER_S)
                        session.apply(Transaction(after, str(race), added(("UA", race))))
                    won.append(True)
                except CheckpointError:
                    won.append(False)

            threads = [threading.Thread(target=deliver, args=(position, race, won, both)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(won) == [False, True]
            position = str(race)
        assert sorted(self.rows(appends)) == [("UA", race) for race in range(_RACES)]

    def test_a_table_that_others_have_written_is_not_touched(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", added(("UA", 1))))
        with pytest.raises(InvalidPipelineError), appends.open("two", APPENDED):
            raise AssertionError("it must not open")
        assert self.found(appends) == [("UA", 1)]

    def _refused(self, session: Session, transaction: Transaction) -> None:
        with pytest.raises(PositionMovedError):
            session.apply(transaction)
