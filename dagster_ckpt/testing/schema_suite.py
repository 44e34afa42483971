"""What a destination with columns must do when the stream's columns change: tests beside `destination_suite`.

    class TestColumnsOfMyDestination(SchemaSuite):
        def make(self, folder: Path) -> Destination:
            return MyDestination(folder / "shop.db", "delays")

        def records(self, destination: Destination) -> list[dict[str, object]]:
            return my_rows(destination)

It needs pytest.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    Destination,
    SchemaChanges,
    Transaction,
)
from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

Record = Mapping[str, object]

NARROW = pa.schema([pa.field("carrier", pa.string()), pa.field("flights", pa.int64())])
WIDE = pa.schema([pa.field("mean_delay", pa.float64()), *NARROW])
"""The new column comes first: a destination that matches columns by position fails."""
OTHER = pa.schema([pa.field("carrier", pa.string()), pa.field("flights", pa.string())])


class SchemaSuite:
    """The tests. Each begins with a new destination."""

    modes: tuple[DeliveryMode, ...] = (DeliveryMode.APPEND, DeliveryMode.UPSERT)
    replaces_columns = True
    """Whether a transaction that replaces all rows can replace the columns too."""

    @abstractmethod
    def make(self, folder: Path) -> Destination:
        """A new destination. `folder` is empty, and is removed after the test."""

    @abstractmethod
    def records(self, destination: Destination) -> list[dict[str, object]]:
        """All rows of the table, as column name to value, with all of its columns."""

    @pytest.fixture
    def destination(self, tmp_path: Path) -> Destination:
        return self.make(tmp_path)

    @pytest.fixture(params=list(DeliveryMode))
    def mode(self, request: pytest.FixtureRequest) -> DeliveryMode:
        mode: DeliveryMode = request.param
        if mode not in self.modes:
            pytest.skip(f"this destination does not support mode {mode}")
        return mode

    @pytest.fixture
    def upserts(self, destination: Destination) -> Destination:
        if DeliveryMode.UPSERT not in self.modes:
            pytest.skip("this destination has no updates")
        return destination

    def test_a_new_column_is_added_and_null_in_the_rows_before_it(
        self, destination: Destination, mode: DeliveryMode
    ) -> None:
        first, second = {"carrier": "UA", "flights": 1}, {"mean_delay": 2.5, "carrier": "AA", "flights": 3}
        self._deliver(destination, _table(NARROW, mode), None, [first])
        self._deliver(destination, _table(WIDE, mode), "1", [second])
        assert self._sorted_records(destination) == [second, {**first, "mean_delay": None}]

    def test_a_column_that_the_stream_does_not_have_is_left_alone(
        self, destination: Destination, mode: DeliveryMode
    ) -> None:
        first, second = {"mean_delay": 2.5, "carrier": "AA", "flights": 3}, {"carrier": "UA", "flights": 1}
        self._deliver(destination, _table(WIDE, mode), None, [first])
        self._deliver(destination, _table(NARROW, mode), "1", [second])
        assert self._sorted_records(destination) == [first, {**second, "mean_delay": None}]

    def test_another_type_is_refused_with_the_columns_name(self, destination: Destination, mode: DeliveryMode) -> None:
        self._deliver(destination, _table(NARROW, mode), None, [{"carrier": "UA", "flights": 1}])
        with pytest.raises(IncompatibleStateError, match="column flights is"):
            destination.open("one", _table(OTHER, mode))
        assert self._sorted_records(destination) == [{"carrier": "UA", "flights": 1}]

    def test_columns_are_replaced_with_all_rows_and_consent(self, upserts: Destination) -> None:
        if not self.replaces_columns:
            pytest.skip("this destination does not replace columns")
        self._deliver(upserts, _table(WIDE), None, [{"mean_delay": 0.5, "carrier": "UA", "flights": 1}])
        table = replace(_table(OTHER), schema_changes=SchemaChanges.REPLACE)
        row = {"carrier": "UA", "flights": "one"}
        with pytest.raises(IncompatibleStateError, match="column flights is"):
            self._deliver(upserts, table, "1", [row])
        assert self._sorted_records(upserts) == [{"mean_delay": 0.5, "carrier": "UA", "flights": 1}]
        self._deliver(upserts, table, "1", [row], replaces=True)
        assert [(each["carrier"], each["flights"]) for each in self._sorted_records(upserts)] == [("UA", "one")]
        self._deliver(upserts, _table(OTHER), "2", [{"carrier": "UA", "flights": "two"}], UPDATE_POSTIMAGE)
        assert [(each["carrier"], each["flights"]) for each in self._sorted_records(upserts)] == [("UA", "two")]

    def test_a_table_of_one_row_is_replaced_by_each_transaction(self, upserts: Destination) -> None:
        table = replace(_table(NARROW), key=())
        for before, flights in ((None, 1), ("1", 2), ("2", 3)):
            self._deliver(upserts, table, before, [{"carrier": "all", "flights": flights}], replaces=True)
        assert self._sorted_records(upserts) == [{"carrier": "all", "flights": 3}]

    def test_the_position_and_the_columns_stay_when_a_delivery_is_opened_again(
        self, destination: Destination, mode: DeliveryMode
    ) -> None:
        self._deliver(destination, _table(WIDE, mode), None, [])
        for columns in (NARROW, WIDE, NARROW):
            with destination.open("one", _table(columns, mode)) as session:
                assert session.position == "1"

    def _deliver(
        self,
        destination: Destination,
        table: DeliveredTable,
        after: str | None,
        rows: list[Record],
        kind: str = INSERT,
        *,
        replaces: bool = False,
    ) -> None:
        until = str(int(after or "0") + 1)
        with destination.open("one", table) as session:
            assert session.position == after
            session.apply(Transaction(after, until, _batches(table, rows, kind), replaces))

    def _sorted_records(self, destination: Destination) -> list[dict[str, object]]:
        return sorted(self.records(destination), key=lambda row: str(row["carrier"]))


def _table(columns: pa.Schema, mode: DeliveryMode = DeliveryMode.UPSERT) -> DeliveredTable:
    return DeliveredTable("delays", columns, ("carrier",) if mode is DeliveryMode.UPSERT else (), mode)


def _batches(table: DeliveredTable, rows: list[Record], kind: str) -> Iterator[pa.RecordBatch]:
    """The rows as a delivery passes them: an update comes with its preimage."""
    if table.mode is DeliveryMode.APPEND:
        yield pa.RecordBatch.from_pylist([dict(row) for row in rows], table.columns)
        return
    kinds = [UPDATE_PREIMAGE, kind] if kind == UPDATE_POSTIMAGE else [kind]
    changes = [{**row, CHANGE_TYPE: each} for row in rows for each in kinds]
    yield pa.RecordBatch.from_pylist(changes, table.columns.append(pa.field(CHANGE_TYPE, pa.string())))
