"""A delivery's runs against SQLite: what is in the database is the stream's table, whatever went wrong in between."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.delivery.destination import DeliveryMode, DestinationMismatchError, Transaction
from dagster_ckpt.errors import CorruptStateError, FencedError, IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from examples.destinations.sqlite_destination import SQLiteSession
from tests.unit.delivery.delivering import NO_PAUSE, Delivering
from tests.unit.history.made_streams import append, departures
from tests.worlds.clock import StillClock


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    return Delivering(tmp_path)


def test_a_table_is_delivered_and_then_what_changes(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))
    delivering.deliver()
    assert delivering.delivered() == delivering.table() != []
    delivering.stream.commit(departures({"UA": [9.0], "DL": [4.0], None: [1.0]}))
    delivering.stream.commit(departures({None: [3.0]}))
    delivering.deliver()
    assert delivering.delivered() == delivering.table()
    assert len(delivering.table()) == 4


def test_nothing_new_is_no_transaction(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))
    first = delivering.deliver().manifest
    again = delivering.deliver().manifest
    assert again.epoch == first.epoch
    assert again.statistics.total_epochs == 1


def test_an_append_delivery_has_every_change_of_every_epoch(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, mode=DeliveryMode.APPEND)
    first = delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.deliver()
    second = delivering.stream.commit(departures({"UA": [3.0]}))
    third = delivering.stream.commit(departures({"AA": [3.0]}))
    delivering.deliver()
    assert delivering.delivered("_epoch, carrier, flights, _change_type") == [
        (first, "UA", 1, "insert"),
        (second, "UA", 1, "update_preimage"),
        (second, "UA", 2, "update_postimage"),
        (third, "AA", 1, "insert"),
    ]


def test_rows_of_a_table_that_only_grows_are_added_once(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, append(), DeliveryMode.APPEND, epochs_max=1)
    for delay in range(5):
        delivering.stream.commit(departures({"UA": [float(delay)]}))
        if delay % 2:
            delivering.deliver()
    delivering.deliver()
    assert delivering.delivered() == [("UA", float(delay)) for delay in range(5)]


def test_an_upsert_of_rows_without_a_key_is_refused(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, append())
    with pytest.raises(InvalidPipelineError, match="mode='append'"):
        delivering.deliver()


def test_an_interrupted_delivery_says_so_in_its_lease(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))

    def interrupted() -> str | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        delivering.deliver(hooks=JobHooks(stop_reason=interrupted))
    manifest = delivering.store.stream("delays_in_sqlite").manifest()
    folder = folder_store(StoreAddress(delivering.url).open(), folder_of(("delays_in_sqlite",)))
    lease = read_lease(folder, manifest.term)
    assert lease is not None
    assert lease.interrupted


def test_the_pin_of_the_snapshot_goes_when_no_retained_epoch_needs_it(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.deliver()
    assert delivering.store.stream("delays").pins() == []


@pytest.fixture
def with_rows(delivering: Delivering) -> Delivering:
    for delay in range(3):
        delivering.stream.commit(departures({"UA": [float(delay)], "AA": [1.0]}))
    delivering.deliver()
    return delivering


def test_a_rollback_below_what_was_delivered_is_taken_to_the_destination(with_rows: Delivering) -> None:
    stream = with_rows.stream
    first = with_rows.store.stream("delays").epochs()[-1].epoch
    stream.commit(departures({"DL": [1.0]}))
    with_rows.deliver()
    stream.open(from_epoch=first)
    with_rows.deliver()
    assert with_rows.delivered() == with_rows.table()
    assert ("DL", 1) not in with_rows.delivered("carrier, flights")
    stream.commit(departures({"B6": [2.0]}))
    with_rows.deliver()
    assert with_rows.delivered() == with_rows.table()


def test_a_rollback_to_the_empty_stream_is_taken_to_the_destination(with_rows: Delivering) -> None:
    with_rows.stream.open(from_epoch=0)
    with_rows.deliver()
    assert with_rows.delivered() == []
    for delay in range(2):
        with_rows.stream.commit(departures({"B6": [float(delay)]}))
        with_rows.deliver()
        assert with_rows.delivered() == with_rows.table() != []


def test_an_append_delivery_stops_where_the_stream_was_rolled_back(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, mode=DeliveryMode.APPEND)
    first = delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.stream.commit(departures({"UA": [2.0]}))
    delivering.deliver()
    before = delivering.delivered()
    delivering.stream.open(from_epoch=first)
    with pytest.raises(IncompatibleStateError, match="rolled back to before what was delivered"):
        delivering.deliver()
    assert delivering.delivered() == before


def test_a_destination_that_was_emptied_is_noticed(with_rows: Delivering) -> None:
    with_rows.database.unlink()
    with pytest.raises(IncompatibleStateError, match="has no position of this delivery, although it had one"):
        with_rows.deliver()


def test_a_delivery_starts_over_as_its_error_says(with_rows: Delivering) -> None:
    with_rows.database.unlink()
    with pytest.raises(IncompatibleStateError) as stopped:
        with_rows.deliver()
    steps = r"empty the table, remove the folder .*, run `dagster-ckpt unsubscribe (\S+) (\S+)`, and materialize it"
    [(stream, name)] = re.findall(steps, str(stopped.value))
    shutil.rmtree(with_rows.folder / "store" / "delays_in_sqlite")
    with_rows.store.stream(stream).unsubscribe(name)
    with_rows.deliver()
    assert with_rows.delivered() == with_rows.table() != []
    assert [each.gone for each in with_rows.store.stream("delays").subscribers()] == [False]


def test_a_destination_restored_from_a_backup_gets_what_it_lacks(with_rows: Delivering) -> None:
    backup = with_rows.database.read_bytes()
    with_rows.stream.commit(departures({"DL": [1.0], "UA": [7.0]}))
    with_rows.deliver()
    with_rows.database.write_bytes(backup)
    with_rows.deliver()
    assert with_rows.delivered() == with_rows.table()


def test_a_table_with_rows_of_others_is_not_touched(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.deliver()
    other = Delivering(delivering.folder / "other")
    other.stream.commit(departures({"ZZ": [1.0]}))
    before = delivering.delivered()
    with pytest.raises(DestinationMismatchError, match="begins with an empty table"):
        other.deliver(delivering.destination)
    assert delivering.delivered() == before


def test_a_delivery_that_was_overtaken_as_it_read_reports_no_damage(
    delivering: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))
    commit = SQLiteSession.apply

    def apply(session: SQLiteSession, transaction: Transaction) -> None:
        monkeypatch.setattr(SQLiteSession, "apply", commit)
        delivering.deliver()
        raise CorruptStateError("a file of the snapshot is gone")

    monkeypatch.setattr(SQLiteSession, "apply", apply)
    with pytest.raises(FencedError, match="another writer took over"):
        delivering.deliver()
    assert delivering.delivered() == delivering.table() != []


def test_a_continuous_delivery_waits_for_a_stream_that_opens_after_it(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0]}))
    stream, hidden = delivering.folder / "store" / "delays", delivering.folder / "hidden"
    stream.rename(hidden)
    committed: list[int] = []

    class OpensLate(StillClock):
        def sleep_ms(self, duration_ms: int) -> None:
            if hidden.exists():
                hidden.rename(stream)
            super().sleep_ms(duration_ms)

    hooks = JobHooks(
        on_commit=lambda epoch: committed.append(epoch.manifest.epoch),
        stop_reason=lambda: "delivered" if committed else None,
    )
    delivering.deliver(hooks=hooks, options=replace(NO_PAUSE, mode=Mode.CONTINUOUS), clock=OpensLate())
    assert delivering.delivered() == delivering.table() != []


def test_a_continuous_delivery_of_a_stream_that_never_opens_says_so(delivering: Delivering) -> None:
    (delivering.folder / "store" / "delays").rename(delivering.folder / "hidden")
    with pytest.raises(InvalidPipelineError, match="never materialized"):
        delivering.deliver(options=replace(NO_PAUSE, mode=Mode.CONTINUOUS), clock=StillClock())
