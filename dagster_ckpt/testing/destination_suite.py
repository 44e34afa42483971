"""What every destination must do, as tests: write a class of your own that makes a destination and reads its rows.

    class TestMyDestination(DestinationSuite):
        def make(self, folder: Path) -> Destination:
            return MyDestination(folder / "shop.db", "delays")

        def rows(self, destination: Destination) -> list[dict[str, object]]:
            return my_rows(destination)

It needs pytest. Set `modes` if it does not support both. To let each call of its driver fail too, name these calls in
`outside` and return the driver's error in `no_reply`; `maintain` runs maintenance, which must do no harm.

The environment variable `RACES` is how often two deliveries race; the default is 20.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pytest

from dagster_ckpt.delivery.destination import Destination, PositionMovedError, Session, Transaction
from dagster_ckpt.errors import CheckpointError, InvalidPipelineError
from dagster_ckpt.protocol.change_columns import DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE
from dagster_ckpt.testing.destination_case import APPENDED, COLUMNS, UPSERTED, Row, added, changed
from dagster_ckpt.testing.destination_faults import DestinationFaults

__all__ = ["APPENDED", "COLUMNS", "UPSERTED", "DestinationSuite", "Row", "added", "changed"]

RACES = int(os.environ.get("RACES", "20"))
_TOGETHER_S = 5.0


class DestinationSuite(DestinationFaults):
    """The tests. Each begins with a new destination."""

    def test_rows_and_position_are_there_when_a_transaction_returns(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            assert session.position is None
            session.apply(Transaction(None, "1", added(("UA", 1), ("AA", 2))))
            session.apply(Transaction("1", "2", added(("UA", 1))))
        assert self.sorted_rows(appends) == [("AA", 2), ("UA", 1), ("UA", 1)]
        with appends.open("one", APPENDED) as session:
            assert session.position == "2"
            session.apply(Transaction("2", "3", added(("DL", None))))
        assert self.sorted_rows(appends) == [("AA", 2), ("DL", None), ("UA", 1), ("UA", 1)]

    def test_a_transaction_without_rows_moves_the_position(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", iter(())))
        assert self.sorted_rows(appends) == []
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
        assert self.sorted_rows(upserts) == [("B6", 1), ("DL", None), ("UA", 7), (None, 6)]
        with upserts.open("one", UPSERTED) as session:
            session.apply(Transaction("2", "3", changed((DELETE, (None, 6)), (DELETE, ("DL", None)))))
        assert self.sorted_rows(upserts) == [("B6", 1), ("UA", 7)]

    def test_a_replacement_leaves_only_its_rows(self, upserts: Destination) -> None:
        with upserts.open("one", UPSERTED) as session:
            session.apply(Transaction(None, "1", changed((INSERT, ("UA", 1)), (INSERT, ("AA", 2)))))
            session.apply(Transaction("1", "2", changed((INSERT, ("AA", 3)), (INSERT, (None, 1))), replaces=True))
        assert self.sorted_rows(upserts) == [("AA", 3), (None, 1)]

    def test_a_session_that_was_opened_earlier_cannot_commit(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as zombie:
            zombie.apply(Transaction(None, "1", added(("UA", 1))))
            with appends.open("one", APPENDED) as session:
                assert session.position == "1"
                self._refuse(zombie, Transaction("1", "2", added(("UA", 2))))
                session.apply(Transaction("1", "2", added(("UA", 3))))
        assert self.sorted_rows(appends) == [("UA", 1), ("UA", 3)]

    def test_a_transaction_that_builds_on_another_position_is_refused(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", added(("UA", 1))))
        for after in (None, "0", "2"):
            with appends.open("one", APPENDED) as session:
                self._refuse(session, Transaction(after, "2", added(("UA", 2))))
        assert self.sorted_rows(appends) == [("UA", 1)]

    def test_rows_that_cannot_be_read_leave_nothing(self, appends: Destination) -> None:
        def break_off() -> Iterator[pa.RecordBatch]:
            yield from added(("UA", 1), ("AA", 1))
            raise CheckpointError("a file of the stream is damaged")

        with appends.open("one", APPENDED) as session, pytest.raises(CheckpointError):
            session.apply(Transaction(None, "1", break_off()))
        assert self.sorted_rows(appends) == []
        with appends.open("one", APPENDED) as session:
            assert session.position is None
            session.apply(Transaction(None, "1", added(("UA", 1))))
        assert self.sorted_rows(appends) == [("UA", 1)]

    def test_two_deliveries_at_once_have_one_winner(self, appends: Destination) -> None:
        position: str | None = None
        for race in range(RACES):
            # Both open at the same time, or both are open and commit at the same time.
            won = _race(appends, Transaction(position, str(race), iter(())), ("UA", race), opened=race % 2 == 0)
            assert sorted(won) == [False, True], f"race {race}: {won}"
            position = str(race)
        assert sorted(self.rows(appends)) == [("UA", race) for race in range(RACES)]

    def test_a_table_that_others_have_written_is_not_touched(self, appends: Destination) -> None:
        with appends.open("one", APPENDED) as session:
            session.apply(Transaction(None, "1", added(("UA", 1))))
        with pytest.raises(InvalidPipelineError), appends.open("two", APPENDED):
            raise AssertionError("it must not open")
        assert self.sorted_rows(appends) == [("UA", 1)]

    def _refuse(self, session: Session, transaction: Transaction) -> None:
        with pytest.raises(PositionMovedError):
            session.apply(transaction)


def _race(destination: Destination, transaction: Transaction, row: Row, *, opened: bool) -> list[bool]:
    """Let two sessions deliver the same row at the same time; returns whether each of them did."""
    won: list[bool] = []
    together = threading.Barrier(2)

    def wait() -> None:
        with suppress(threading.BrokenBarrierError):
            together.wait(_TOGETHER_S)

    def deliver() -> None:
        try:
            if not opened:
                wait()
            with destination.open("one", APPENDED) as session:
                if opened:
                    wait()
                session.apply(replace(transaction, rows=added(row)))
            won.append(True)
        except CheckpointError:
            together.abort()  # if it failed to open, the other one must not wait for it
            won.append(False)

    threads = [threading.Thread(target=deliver) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won
