"""Delta Lake: what every destination must do, and what is its own. It needs no server."""

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from dagster_ckpt.delivery.destination import Destination, Transaction
from dagster_ckpt.destinations import DeltaLake
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.testing.destination_suite import APPENDED, UPSERTED, DestinationSuite, Row, added, changed
from dagster_ckpt.testing.schema_suite import SchemaSuite
from tests.unit.delivery.delivery_runs import DeliveryRuns


def rows_of(uri: str, options: dict[str, str] | None = None) -> list[Row]:
    table = DeltaTable(uri, storage_options=options).to_pyarrow_table()
    return list(zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True))


def maintain(uri: str, options: dict[str, str] | None = None) -> None:
    """Everything that may be removed or rewritten is, however young."""
    table = DeltaTable(uri, storage_options=options)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    table.optimize.compact()
    table.optimize.z_order(["carrier"])
    table.create_checkpoint()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.cleanup_metadata()


class TestDeltaLake(DestinationSuite, DeliveryRuns):
    outside: ClassVar = (
        "deltalake:DeltaTable.create",
        "deltalake:DeltaTable.create_write_transaction",
        "deltalake:DeltaTable.update_incremental",
        "deltalake:write_deltalake",
        "deltalake.table:TableMerger.execute",
    )

    def no_reply(self) -> Exception:
        error: Exception = DeltaError("no reply")
        return error

    def maintain(self, destination: Destination) -> None:
        maintain(destination.address)

    def make(self, folder: Path) -> Destination:
        return DeltaLake(str(folder / "delays"))

    def rows(self, destination: Destination) -> Iterable[Row]:
        return rows_of(destination.address)


class TestColumnsOfDeltaLake(SchemaSuite):
    def make(self, folder: Path) -> Destination:
        return DeltaLake(str(folder / "delays"))

    def records(self, destination: Destination) -> list[dict[str, object]]:
        found: list[dict[str, object]] = DeltaTable(destination.address).to_pyarrow_table().to_pylist()
        return found


@pytest.fixture
def delta(tmp_path: Path) -> DeltaLake:
    return DeltaLake(str(tmp_path / "delays"))


POSITION = '{"uuid": "9f0c2d6a1e4b4e0f9d3c5a7b8e6f1a2b", "epoch": 41, "part": 3, "parts": 8, "term": 5}'


def test_the_position_survives_whatever_maintains_the_table(delta: DeltaLake) -> None:
    with delta.open("one", APPENDED) as session:
        session.apply(Transaction(None, "a longer position than the next one has", added(("UA", 1))))
        session.apply(Transaction("a longer position than the next one has", POSITION, added(("AA", 1))))
    table = DeltaTable(delta.uri)
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.cleanup_metadata()
    with delta.open("one", APPENDED) as session:
        assert session.position == POSITION


def test_rows_of_others_in_between_are_no_conflict(delta: DeltaLake) -> None:
    with delta.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        write_deltalake(delta.uri, pa.table({"carrier": ["ZZ"], "flights": [9]}), mode="append")
        session.apply(Transaction("1", "2", added(("AA", 1))))
    assert sorted(rows_of(delta.uri)) == [("AA", 1), ("UA", 1), ("ZZ", 9)]


def test_a_restored_table_is_noticed(delta: DeltaLake) -> None:
    with delta.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
        before = DeltaTable(delta.uri).version()
        session.apply(Transaction("1", "2", changed(("insert", ("AA", 1)))))
    DeltaTable(delta.uri).restore(before)
    for _ in range(2):
        with pytest.raises(IncompatibleStateError, match="restored to an older version"):
            delta.open("one", UPSERTED)


@pytest.mark.parametrize("by", ["delete", "overwrite"])
def test_a_table_that_another_has_emptied_is_noticed(delta: DeltaLake, by: str) -> None:
    with delta.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)), ("insert", ("AA", 1)))))
        session.apply(Transaction("1", "2", changed(("insert", ("DL", 1))), replaces=True))
    with delta.open("one", UPSERTED) as session:  # the delivery's own replacement is none of another
        session.apply(Transaction("2", "3", changed(("insert", ("UA", 1)))))
    DeltaTable(delta.uri).delete("carrier = 'DL'")
    with delta.open("one", UPSERTED) as session:
        assert session.position == "3"
    if by == "delete":
        DeltaTable(delta.uri).delete()
    else:
        write_deltalake(delta.uri, pa.table({"carrier": ["ZZ"], "flights": [9]}), mode="overwrite")
    for _ in range(2):
        with pytest.raises(IncompatibleStateError, match=r"emptied or overwritten.*operation=(DELETE|WRITE)"):
            delta.open("one", UPSERTED)
    DeltaTable(delta.uri).restore((DeltaTable(delta.uri).version() or 0) - 1)
    with delta.open("one", UPSERTED) as session:
        session.apply(Transaction("3", "4", changed(("insert", ("B6", 1)))))
    assert sorted(rows_of(delta.uri)) == [("B6", 1), ("UA", 1)]


def test_deletes_that_match_nothing_move_the_position(delta: DeltaLake) -> None:
    with delta.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
        session.apply(Transaction("1", "2", changed(("delete", ("ZZ", 1)))))
    with delta.open("one", UPSERTED) as session:
        assert session.position == "2"
    assert rows_of(delta.uri) == [("UA", 1)]


@pytest.mark.parametrize("kind", [pa.uint64(), pa.time64("us"), pa.duration("us"), pa.timestamp("ns")], ids=str)
def test_a_type_that_it_cannot_hold_is_refused_with_the_columns_name(kind: pa.DataType, delta: DeltaLake) -> None:
    from dataclasses import replace

    nested = replace(APPENDED, columns=pa.schema([("extra", pa.struct([("x", kind)]))]))
    with pytest.raises(InvalidPipelineError, match=r"column=extra\.x"):
        delta.check(nested)
