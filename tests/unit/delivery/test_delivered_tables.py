"""What one transaction takes, and the columns and rows of the destination's table."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.delivery import delivery_rows
from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators import AppendOnly, RunningAggregate, agg
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.run_mode import Mode
from examples.destinations.sqlite_destination import SQLite
from tests.unit.delivery.delivering import NO_PAUSE, Delivering
from tests.unit.history.made_streams import DEPARTURES, SOURCE, append, departures
from tests.worlds.clock import StillClock


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    return Delivering(tmp_path)


@pytest.fixture
def with_rows(delivering: Delivering) -> Delivering:
    for delay in range(3):
        delivering.stream.commit(departures({"UA": [float(delay)], "AA": [1.0]}))
    delivering.deliver()
    return delivering


def test_one_transaction_takes_no_more_rows_than_its_bound(
    delivering: Delivering, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivering.stream.commit(departures({"B6": [1.0]}))
    delivering.deliver()
    for bound, transactions in (("ROWS_A_PART", 3), ("BYTES_A_PART", 5)):
        for delay in range(5):
            delivering.stream.commit(departures({f"{bound} {delay}": [1.0], "UA": [1.0], "AA": [1.0]}))
        before = delivering.store.stream("delays_in_sqlite").manifest().statistics.total_epochs
        with monkeypatch.context() as patch:
            patch.setattr(delivery_rows, bound, 10)  # an epoch has 3 to 5 rows of changes
            delivering.deliver()
        after = delivering.store.stream("delays_in_sqlite").manifest().statistics.total_epochs
        assert delivering.delivered() == delivering.table()
        assert after - before == transactions


def test_a_table_of_one_row_is_delivered(tmp_path: Path) -> None:
    def build(keys: tuple[str, ...], source: InputSpec) -> RunningAggregate:
        return RunningAggregate.build(keys, {"flights": agg.count()}, source)

    delivering = Delivering(tmp_path, OperatorStep.of(one_group(InputSpec((SOURCE,), DEPARTURES), build)))
    delivering.deliver()
    for flights in (1, 2, 3):
        delivering.stream.commit(departures({None: [1.0]}))
        delivering.deliver()
        assert delivering.delivered() == delivering.table() == [(flights,)]
    first = delivering.store.stream("delays").epochs()[-1].epoch
    delivering.stream.open(from_epoch=first)
    delivering.deliver()
    assert delivering.delivered() == delivering.table() == [(1,)]


def _rows_of_table(delivering: Delivering) -> int | None:
    return delivering.store.stream("delays_in_sqlite").latest().table_rows


def test_how_many_rows_the_destination_has_is_known(delivering: Delivering) -> None:
    delivering.stream.commit(departures({"UA": [1.0], "AA": [2.0]}))
    delivering.deliver()
    assert _rows_of_table(delivering) == 2
    first = delivering.store.stream("delays").latest().epoch
    delivering.stream.commit(departures({"UA": [1.0], "DL": [2.0]}))
    delivering.deliver()
    assert _rows_of_table(delivering) == 3
    delivering.stream.open(from_epoch=first)
    delivering.deliver()
    assert _rows_of_table(delivering) == len(delivering.delivered()) == 2


def test_how_many_rows_a_history_of_changes_has_is_not_guessed(tmp_path: Path) -> None:
    history = Delivering(tmp_path / "history", mode=DeliveryMode.APPEND)
    rows = Delivering(tmp_path / "rows", append(), DeliveryMode.APPEND)
    for each in (history, rows):
        each.stream.commit(departures({"UA": [1.0], "AA": [2.0]}))
        each.deliver()
        each.stream.commit(departures({"UA": [1.0]}))
        each.deliver()
    assert _rows_of_table(history) is None
    assert _rows_of_table(rows) == len(rows.delivered()) == 3


def test_a_new_column_of_the_stream_is_added(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, append(), DeliveryMode.APPEND)
    delivering.stream.commit(departures({"UA": [1.0]}))
    delivering.deliver()
    wider = pa.schema([pa.field("origin", pa.string()), *DEPARTURES])
    delivering.stream.operator = AppendOnly.build(InputSpec((SOURCE,), wider))
    delivering.stream.open()
    delivering.stream.commit(departures({"AA": [2.0]}).add_column(0, wider.field(0), [["JFK"]]))
    delivering.deliver()
    assert delivering.delivered("carrier, dep_delay, origin") == [("AA", 2.0, "JFK"), ("UA", 1.0, None)]
    delivering.stream.operator = append()
    delivering.stream.open()
    delivering.stream.commit(departures({"DL": [3.0]}))
    delivering.deliver()
    assert ("DL", 3.0, None) in delivering.delivered("carrier, dep_delay, origin")


def test_a_new_column_reaches_a_delivery_that_is_live(tmp_path: Path) -> None:
    delivering = Delivering(tmp_path, append(), DeliveryMode.APPEND)
    delivering.stream.commit(departures({"UA": [1.0]}))
    wider = pa.schema([pa.field("origin", pa.string()), *DEPARTURES])
    columns: list[list[str]] = []

    def on_commit(epoch: CommittedEpoch) -> None:
        columns.append(epoch.manifest.pipeline.output.names)
        if len(columns) == 1:
            delivering.stream.operator = AppendOnly.build(InputSpec((SOURCE,), wider))
            delivering.stream.open()
            delivering.stream.commit(departures({"AA": [2.0]}).add_column(0, wider.field(0), [["JFK"]]))

    hooks = JobHooks(on_commit=on_commit, stop_reason=lambda: "all is delivered" if len(columns) == 2 else None)
    options = replace(NO_PAUSE, mode=Mode.CONTINUOUS, tolerable_failures=0)
    result = delivering.deliver(hooks=hooks, options=options, clock=StillClock())
    assert delivering.delivered("carrier, dep_delay, origin") == [("AA", 2.0, "JFK"), ("UA", 1.0, None)]
    assert columns == [DEPARTURES.names, wider.names]
    assert result.manifest.statistics.total_epochs == 2


def test_another_type_after_a_rollback_to_the_beginning_is_refused_with_the_columns_name(
    with_rows: Delivering,
) -> None:
    source = InputSpec((SOURCE,), DEPARTURES)
    aggregations = {"flights": agg.sum("dep_delay"), "mean_delay": agg.avg("dep_delay")}
    with_rows.stream.operator = RunningAggregate.build(("carrier",), aggregations, source)
    with_rows.stream.open(from_epoch=0)
    before = with_rows.delivered()
    with pytest.raises(IncompatibleStateError, match=r"column flights is INTEGER, and the stream's is REAL.*replace"):
        with_rows.deliver()
    assert with_rows.delivered() == before


def test_a_destination_that_has_moved_goes_on(with_rows: Delivering) -> None:
    with_rows.stream.commit(departures({"DL": [1.0]}))
    moved = with_rows.database.rename(with_rows.folder / "moved.db")
    with_rows.deliver(SQLite(str(moved), "delays"))
    moved.rename(with_rows.database)
    assert with_rows.delivered() == with_rows.table()


def test_another_mode_is_another_delivery(with_rows: Delivering) -> None:
    with_rows.mode = DeliveryMode.APPEND
    before = with_rows.delivered()
    with pytest.raises(IncompatibleStateError, match=r'mode was "upsert", now it is "append".*under another name'):
        with_rows.deliver()
    assert with_rows.delivered() == before
