"""A destination finds the rows of an upsert by their key. When that gets another name, all rows are written again."""

from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.delivery.delivery_rows import DeliveryRows
from dagster_ckpt.delivery.destination import DeliveredTable, DestinationUnavailableError, Transaction
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.epochs.upstream import Reader, Trouble, UpstreamPosition
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError
from examples.destinations.sqlite_destination import SQLite, SQLiteSession
from tests.unit.delivery.delivering import NO_PAUSE, Delivering
from tests.unit.history.made_streams import aggregate, departures

NAMES = {"airline": "carrier", "flights": "flights", "mean_delay": "mean_delay"}
COLUMNS = ", ".join(NAMES)


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    """Two carriers are delivered; then the key is renamed, and one of them changes."""
    found = Delivering(tmp_path)
    found.stream.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))
    found.deliver()
    _rename(found, NAMES)
    found.stream.commit(departures({"UA": [6.0]}))
    return found


def _rename(delivering: Delivering, names: dict[str, str]) -> None:
    delivering.stream.close()
    delivering.stream.operator = OperatorStep.of(aggregate()).with_names(names)
    delivering.stream.open()


def test_all_rows_are_written_again(delivering: Delivering) -> None:
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 1, 2.0), ("UA", 3, 4.0)]
    delivering.stream.commit(departures({"AA": [4.0]}))
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 2, 3.0), ("UA", 3, 4.0)]


class _DiesInstead(SQLite):
    """Opens, and dies before it writes anything, as the process may."""

    def open(self, delivery: str, table: DeliveredTable) -> SQLiteSession:
        session = super().open(delivery, table)

        def apply(transaction: Transaction) -> None:
            raise DestinationUnavailableError("it died")

        session.apply = apply  # type: ignore[method-assign]
        return session


def test_they_are_after_a_crash_in_between_too(delivering: Delivering) -> None:
    """The delivery has opened with the new key by then, and its manifest says so."""
    for _ in range(2):
        with pytest.raises(DestinationUnavailableError):
            delivering.deliver(_DiesInstead(str(delivering.database), "delays"))
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 1, 2.0), ("UA", 3, 4.0)]


def test_they_are_after_a_backup_from_before_the_rename_was_restored(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path)
    delivering.stream.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))
    delivering.deliver()
    backup = delivering.database.read_bytes()
    _rename(delivering, NAMES)
    delivering.stream.commit(departures({"UA": [6.0]}))
    delivering.deliver()
    delivering.database.write_bytes(backup)
    delivering.stream.commit(departures({"AA": [4.0]}))
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 2, 3.0), ("UA", 3, 4.0)]


def test_the_old_name_after_a_rollback_is_another_key_again(delivering: Delivering) -> None:
    delivering.deliver()
    _rename(delivering, {"carrier": "carrier", "flights": "flights", "mean_delay": "mean_delay"})
    delivering.stream.commit(departures({"UA": [8.0]}))
    delivering.deliver()
    columns = "carrier, flights, mean_delay"
    assert delivering.delivered(columns) == delivering.table() == [("AA", 1, 2.0), ("UA", 4, 5.0)]


def test_another_name_of_another_column_writes_nothing_again(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path)
    delivering.stream.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))
    delivering.deliver()
    _rename(delivering, {"carrier": "carrier", "departures": "flights", "mean_delay": "mean_delay"})
    delivering.stream.commit(departures({"UA": [6.0]}))
    delivering.deliver()
    assert delivering.delivered("carrier, flights, departures") == [("AA", 1, None), ("UA", None, 3)]


def test_a_snapshot_that_goes_while_its_key_is_looked_up_is_judged_again(
    delivering: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_at, gone = DeliveryRows.key_at, list[UpstreamPosition]()

    def goes_first(rows: DeliveryRows, at: UpstreamPosition, reader: Reader) -> tuple[str, ...] | None:
        if not gone:
            gone.append(at)
            raise NothingFollowsError(Trouble.UNPINNED, at)
        return key_at(rows, at, reader)

    monkeypatch.setattr(DeliveryRows, "key_at", goes_first)
    delivering.deliver()
    assert len(gone) == 1
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 1, 2.0), ("UA", 3, 4.0)]


def test_a_delivery_in_operation_passes_it_before_the_next_epoch_is_there(tmp_path: Path) -> None:
    """The newest epoch was written under the old names, and the table has the new ones since the stream was opened."""
    delivering, done = Delivering(tmp_path), list[CommittedEpoch]()
    delivering.stream.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))

    def on_commit(epoch: CommittedEpoch) -> None:
        done.append(epoch)
        if len(done) == 1:
            _rename(delivering, NAMES)
        if len(done) == 2:
            delivering.stream.commit(departures({"UA": [6.0]}))

    hooks = JobHooks(on_commit=on_commit, stop_reason=lambda: "delivered" if len(done) == 3 else None)
    delivering.deliver(hooks=hooks, options=replace(NO_PAUSE, mode=Mode.CONTINUOUS, checkpoint_interval_ms=10))
    delivering.deliver()
    assert delivering.delivered(COLUMNS) == delivering.table() == [("AA", 1, 2.0), ("UA", 3, 4.0)]
