"""Apache Iceberg on SQL catalogs: what every destination must do, and what is its own."""

import inspect
import itertools
import multiprocessing
import random
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import pyarrow as iceberg_arrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table import Transaction as IcebergTransaction
from pyiceberg.table.update.snapshot import _SnapshotProducer
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    Destination,
    DestinationUnavailableError,
    PositionMovedError,
    SchemaChanges,
    Transaction,
)
from dagster_ckpt.destinations import Iceberg, iceberg_table
from dagster_ckpt.destinations.iceberg import IcebergSession
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.testing.destination_suite import APPENDED, UPSERTED, DestinationSuite, Row, added, changed
from dagster_ckpt.testing.schema_suite import SchemaSuite
from tests.unit.delivery.delivery_runs import DeliveryRuns

POSITION = '{"uuid": "9f0c2d6a1e4b4e0f9d3c5a7b8e6f1a2b", "epoch": 41, "part": 3, "parts": 8, "term": 5}'
NUMBERS = itertools.count()


def iceberg_in(folder: Path, table: str = "shop.delays") -> Iceberg:
    (folder / "warehouse").mkdir()
    return Iceberg(
        table,
        catalog="tests",
        properties={"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "warehouse").as_uri()},
    )


def catalog_of(to: Iceberg) -> Catalog:
    return load_catalog(to.catalog, **to.properties)


def table_of(to: Iceberg) -> Table:
    return catalog_of(to).load_table(to.table)


def rows_of(to: Iceberg) -> list[Row]:
    rows = table_of(to).scan().to_arrow()
    return list(zip(rows["carrier"].to_pylist(), rows["flights"].to_pylist(), strict=True))


class TestIceberg(DestinationSuite, DeliveryRuns):
    outside: ClassVar = (
        "pyiceberg.catalog.sql:SqlCatalog.create_table",
        "pyiceberg.catalog.sql:SqlCatalog.commit_table",
    )

    def no_reply(self) -> Exception:
        return OSError("no reply")

    def make(self, folder: Path) -> Destination:
        return iceberg_in(folder)

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, Iceberg)
        return rows_of(destination)


class TestColumnsOfIceberg(SchemaSuite):
    def make(self, folder: Path) -> Destination:
        return iceberg_in(folder)

    def records(self, destination: Destination) -> list[dict[str, object]]:
        assert isinstance(destination, Iceberg)
        found: list[dict[str, object]] = table_of(destination).scan().to_arrow().to_pylist()
        return found


@pytest.mark.skipif(find_spec("psycopg2") is None, reason="make test-destinations installs pyiceberg[sql-postgres]")
class TestIcebergOnPostgres(DestinationSuite):
    """The same with a catalog that locks rows, not the whole of it."""

    @pytest.fixture(autouse=True)
    def server(self, postgres_url: str) -> None:
        self.url = postgres_url.replace("postgresql://", "postgresql+psycopg2://")

    def make(self, folder: Path) -> Destination:
        return Iceberg(f"shop.delays_{next(NUMBERS)}", "tests", {"uri": self.url, "warehouse": folder.as_uri()})

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, Iceberg)
        return rows_of(destination)


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    return iceberg_in(tmp_path)


def deliver(to: Iceberg, after: str | None, until: str, *changes: tuple[str, Row]) -> None:
    """One session with one transaction of an upsert."""
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(after, until, changed(*changes)))


def expire_all(to: Iceberg) -> None:
    table_of(to).maintenance.expire_snapshots().older_than(datetime(3000, 1, 1, tzinfo=UTC)).commit()
    assert len(table_of(to).snapshots()) == 1


def files_on_disk(to: Iceberg) -> int:
    return len(list(Path(table_of(to).location().removeprefix("file://")).rglob("*.parquet")))


def test_the_position_survives_whatever_maintains_the_table(iceberg: Iceberg) -> None:
    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        session.apply(Transaction("1", POSITION, added(("AA", 1))))
    expire_all(iceberg)
    table = table_of(iceberg)
    table.overwrite(table.scan().to_arrow())  # as a compaction does
    expire_all(iceberg)
    with table.update_schema() as change:
        change.add_column("gate", StringType())
    with iceberg.open("one", APPENDED) as session:
        assert session.position == POSITION
        session.apply(Transaction(POSITION, "3", added(("DL", 1))))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("DL", 1), ("UA", 1)]


def test_rows_of_others_in_between_are_no_conflict(iceberg: Iceberg) -> None:
    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        table_of(iceberg).append(pa.table({"carrier": ["ZZ"], "flights": [9]}))
        session.apply(Transaction("1", "2", added(("AA", 1))))
        session.apply(Transaction("2", "3", added(("DL", 1))))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("DL", 1), ("UA", 1), ("ZZ", 9)]
    assert files_on_disk(iceberg) == 4


def test_an_upsert_is_computed_again_after_a_commit_of_others(iceberg: Iceberg) -> None:
    with iceberg.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)), ("insert", ("AA", 1)))))
        table = table_of(iceberg)
        table.overwrite(table.scan().to_arrow())  # the file to rewrite is another one now
        session.apply(Transaction("1", "2", changed(("update_postimage", ("UA", 2)))))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("UA", 2)]


def test_a_table_that_was_rolled_back_is_noticed(iceberg: Iceberg) -> None:
    deliver(iceberg, None, "1", ("insert", ("UA", 1)))
    before = table_of(iceberg).current_snapshot()
    assert before is not None
    deliver(iceberg, "1", "2", ("insert", ("AA", 1)))
    newest = table_of(iceberg).current_snapshot()
    assert newest is not None
    with iceberg.open("one", UPSERTED) as session:
        table_of(iceberg).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        with pytest.raises(IncompatibleStateError, match="rolled back to an older snapshot"):
            session.apply(Transaction("2", "3", changed(("insert", ("DL", 1)))))
    for maintain in (lambda: None, lambda: expire_all(iceberg), lambda: table_of(iceberg).append(THEIRS)):
        maintain()
        with pytest.raises(IncompatibleStateError, match="rolled back to an older snapshot"):
            iceberg.open("one", UPSERTED)
    assert sorted(rows_of(iceberg)) == [("UA", 1), ("ZZ", 9)]


def test_a_rollback_that_was_taken_back_is_none(iceberg: Iceberg) -> None:
    deliver(iceberg, None, "1", ("insert", ("UA", 1)))
    table = table_of(iceberg)
    first, newest = table.snapshots()[0], table.current_snapshot()
    assert newest is not None
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    table.manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    deliver(iceberg, "1", "2", ("insert", ("AA", 1)))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("UA", 1)]


THEIRS = pa.table({"carrier": ["ZZ"], "flights": [9]})


def test_a_table_that_was_made_again_gets_nothing_and_has_no_position(iceberg: Iceberg) -> None:
    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        catalog_of(iceberg).drop_table(iceberg.table)
        catalog_of(iceberg).create_table(iceberg.table, APPENDED.columns)
        with pytest.raises(DestinationUnavailableError, match="UUID"):
            session.apply(Transaction("1", "2", added(("AA", 1))))
    with iceberg.open("one", APPENDED) as session:
        assert session.position is None
    assert rows_of(iceberg) == []


def test_of_two_commits_with_one_fence_one_wins_in_100_of_100_races(iceberg: Iceberg) -> None:
    """The fence keeps two sessions apart. Without it, the comparison alone does."""
    with iceberg.open("one", APPENDED) as one, iceberg.open("one", APPENDED) as two:
        one._fence, position = two._fence, None
        for race in range(100):
            for session in (one, two):
                session._iceberg.refresh()
                session.position = position
            won = together(
                (session, Transaction(position, str(race), added((carrier, race))))
                for session, carrier in ((one, "UA"), (two, "AA"))
            )
            assert sorted(won) == [False, True]
            position = str(race)
    assert sorted(row[1] or 0 for row in rows_of(iceberg)) == list(range(100))


def together(transactions: Iterable[tuple[IcebergSession, Transaction]]) -> list[bool]:
    """Which of the transactions succeeded, all of them begun at once."""
    won, calls = list[bool](), list(transactions)
    all_there = threading.Barrier(len(calls))

    def apply(session: IcebergSession, transaction: Transaction) -> None:
        all_there.wait()
        try:
            session.apply(transaction)
        except CheckpointError:
            won.append(False)
        else:
            won.append(True)

    threads = [threading.Thread(target=apply, args=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


class Replies:
    """A catalog whose replies to commits are lost."""

    def __init__(self, session: IcebergSession, error: Exception, *, lands: bool) -> None:
        self._commit, self._error, self._lands = session._iceberg.catalog.commit_table, error, lands
        session._iceberg.catalog.commit_table = self.commit_table

    def commit_table(self, *arguments: Any) -> None:
        if self._lands:
            self._commit(*arguments)
        raise self._error


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("error", [CommitStateUnknownException("504"), OSError("connection reset")], ids=repr)
def test_a_lost_reply_never_doubles(error: Exception, lands: bool, iceberg: Iceberg) -> None:
    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        Replies(session, error, lands=lands)
        with pytest.raises(DestinationUnavailableError):
            session.apply(Transaction("1", "2", added(("AA", 1))))
    with iceberg.open("one", APPENDED) as session:
        assert session.position == ("2" if lands else "1")
        if not lands:
            session.apply(Transaction("1", "2", added(("AA", 1))))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("UA", 1)]


def test_a_commit_that_landed_although_it_was_reported_as_failed_is_one(iceberg: Iceberg) -> None:
    """A proxy that sends a request twice gets this reply to the second. pyiceberg would delete the files."""
    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("UA", 1))))
        Replies(session, CommitFailedException("a requirement failed"), lands=True)
        session.apply(Transaction("1", "2", added(("AA", 1))))
    with iceberg.open("one", APPENDED) as session:
        assert session.position == "2"
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("UA", 1)]


def test_other_writers_that_never_pause_end_in_another_try(iceberg: Iceberg) -> None:
    with iceberg.open("one", APPENDED) as session:
        Replies(session, CommitFailedException("a requirement failed"), lands=False)
        with pytest.raises(DestinationUnavailableError, match="other writers committed first each time"):
            session.apply(Transaction(None, "1", added(("UA", 1))))
    assert files_on_disk(iceberg) == 0


def test_a_transaction_that_fails_leaves_no_files(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_table, "_PIECE_BYTES", 1)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from added(("UA", 1), ("AA", 1))
        assert files_on_disk(iceberg) == 2
        raise CheckpointError("a file of the stream is damaged")

    with iceberg.open("one", APPENDED) as session, pytest.raises(CheckpointError, match="damaged"):
        session.apply(Transaction(None, "1", broken()))
    with iceberg.open("one", APPENDED) as zombie:
        iceberg.open("one", APPENDED).__exit__()
        with pytest.raises(PositionMovedError):
            zombie.apply(Transaction(None, "1", added(("UA", 1))))
    assert files_on_disk(iceberg) == 0


def test_rows_are_written_as_they_come(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory holds a piece of them: pyiceberg's own streaming reads ahead of its files, all of the rows if it can."""
    monkeypatch.setattr(iceberg_table, "_PIECE_BYTES", 1)

    def counted() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            assert files_on_disk(iceberg) == number
            yield next(added(("UA", number)))

    with iceberg.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", counted()))
    assert len(rows_of(iceberg)) == 5


@pytest.mark.parametrize(
    "mine", [("UA", 1), ("AA", 1), (None, 1)], ids=["some of the keys", "all of the keys", "a null"]
)
def test_files_without_the_keys_are_not_rewritten(mine: Row, iceberg: Iceberg) -> None:
    deliver(iceberg, None, "1", ("insert", ("B6", 1)), ("insert", ("C5", 1)))
    [file] = table_of(iceberg).scan().plan_files()
    deliver(iceberg, "1", "2", ("update_postimage", mine))
    assert file.file.file_path in {task.file.file_path for task in table_of(iceberg).scan().plan_files()}
    deliver(iceberg, "2", "3", ("delete", ("C5", 1)))
    assert file.file.file_path not in {task.file.file_path for task in table_of(iceberg).scan().plan_files()}
    assert sorted(rows_of(iceberg), key=repr) == sorted([mine, ("B6", 1)], key=repr)


@pytest.mark.parametrize("others", [[("ZZ", 1)], []], ids=["beside a value", "alone"])
def test_a_null_key_is_found_in_a_file_without_the_other_keys(others: list[Row], iceberg: Iceberg) -> None:
    deliver(iceberg, None, "1", ("insert", (None, 1)), ("insert", ("AA", 1)))
    deliver(iceberg, "1", "2", *(("update_postimage", row) for row in [(None, 2), *others]))
    assert sorted(rows_of(iceberg), key=repr) == sorted([("AA", 1), (None, 2), *others], key=repr)


KEYS = pa.table(
    {
        "a number": pa.array([1, None, 1, 2**62], pa.int64()),
        "b.small": pa.array([1, 1, -128, 127], pa.int8()),
        "text": pa.array(["", "é\n", None, "\U0001f600" * 40]),
        "bytes": pa.array([b"", b"\xff", b"\x00", None]),
        "flag": pa.array([True, False, None, True]),
        "day": pa.array([0, None, -719162, 1], pa.date32()),
        "at": pa.array([1, None, -1, 2**50], pa.timestamp("us", "UTC")),
        "local": pa.array([1, None, -1, 2**50], pa.timestamp("us")),
        "price": pa.array([Decimal("1.10"), None, Decimal("-1.10"), Decimal("9.99")], pa.decimal128(30, 2)),
    }
)


@pytest.mark.parametrize("key", [*((name,) for name in KEYS.column_names[2:]), tuple(KEYS.column_names)], ids=str)
def test_rows_are_found_by_keys_of_every_type(key: tuple[str, ...], iceberg: Iceberg) -> None:
    rows = KEYS.append_column("value", pa.array([0, 1, 2, 3]))
    if len(key) == 1:
        rows = rows.filter(pa.array([True, True, True, key != ("flag",)]))  # a key is there once
    table = DeliveredTable("keys", rows.schema, key, DeliveryMode.UPSERT)

    def changes(kind: str, of: pa.Table) -> Iterator[pa.RecordBatch]:
        yield from of.append_column(CHANGE_TYPE, pa.array([kind] * of.num_rows)).to_batches()

    with iceberg.open("one", table) as session:
        session.apply(Transaction(None, "1", changes("insert", rows)))
        newer = rows.set_column(rows.num_columns - 1, "value", pa.array(range(10, 10 + rows.num_rows), pa.int64()))
        session.apply(Transaction("1", "2", changes("update_postimage", newer.slice(1))))
        assert table_of(iceberg).scan().to_arrow().cast(rows.schema).sort_by("value").to_pylist() == [
            *rows.slice(0, 1).to_pylist(),
            *newer.slice(1).to_pylist(),
        ]
        session.apply(Transaction("2", "3", changes("delete", rows)))
    assert table_of(iceberg).scan().to_arrow().num_rows == 0


def test_a_partitioned_table_of_the_users_is_filled(iceberg: Iceberg) -> None:
    columns = Schema(NestedField(1, "flights", LongType()), NestedField(2, "carrier", StringType()))
    catalog_of(iceberg).create_namespace("shop")
    by_carrier = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "carrier"))
    catalog_of(iceberg).create_table(iceberg.table, columns, partition_spec=by_carrier)
    deliver(iceberg, None, "1", ("insert", ("UA", 1)), ("insert", ("AA", 1)), ("insert", (None, 1)))
    deliver(iceberg, "1", "2", ("update_postimage", ("UA", 2)), ("delete", (None, 1)))
    assert sorted(rows_of(iceberg)) == [("AA", 1), ("UA", 2)]
    assert len(list(table_of(iceberg).scan().plan_files())) == 2


def test_columns_and_rows_are_replaced_in_one_transaction_or_not_at_all(iceberg: Iceberg) -> None:
    deliver(iceberg, None, "1", ("insert", ("UA", 1)))
    columns = pa.schema([("carrier", pa.string()), ("flights", pa.string())])
    table = DeliveredTable("delays", columns, ("carrier",), DeliveryMode.UPSERT, SchemaChanges.REPLACE)
    rows = pa.table({"carrier": ["AA"], "flights": ["one"], CHANGE_TYPE: ["insert"]})
    with iceberg.open("one", table) as session:
        table_of(iceberg).append(THEIRS)
        with pytest.raises(DestinationUnavailableError):
            session.apply(Transaction("1", "2", iter(rows.to_batches()), replaces=True))
    assert sorted(rows_of(iceberg)) == [("UA", 1), ("ZZ", 9)]
    with iceberg.open("one", table) as session:
        session.apply(Transaction("1", "2", iter(rows.to_batches()), replaces=True))
    assert table_of(iceberg).scan().to_arrow().to_pylist() == [{"carrier": "AA", "flights": "one"}]


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ([NestedField(1, "carrier", LongType())], "column carrier is long, and the stream's is string"),
        ([NestedField(1, "gate", StringType(), required=True)], "column gate must have a value"),
        (
            [NestedField(7, "extra", StructType(NestedField(8, "x", ListType(9, LongType()))))],
            "column extra is struct<x: list<long>>, and the stream's is struct<x: list<string>>",
        ),
    ],
)
def test_a_table_with_other_columns_is_refused(columns: list[NestedField], match: str, iceberg: Iceberg) -> None:
    catalog_of(iceberg).create_namespace("shop")
    catalog_of(iceberg).create_table(iceberg.table, Schema(*columns))
    extra = pa.field("extra", pa.struct([("x", pa.list_(pa.string()))]))
    with pytest.raises(IncompatibleStateError, match=match):
        iceberg.open("one", replace(APPENDED, columns=APPENDED.columns.append(extra)))


def test_a_table_of_format_1_is_refused(iceberg: Iceberg) -> None:
    catalog_of(iceberg).create_namespace("shop")
    catalog_of(iceberg).create_table(iceberg.table, APPENDED.columns, properties={"format-version": "1"})
    with pytest.raises(InvalidPipelineError, match="upgrade it to 2"):
        iceberg.open("one", APPENDED)


TYPES = pa.table(
    {
        "a": pa.array([True, None]),
        "b": pa.array([-128, 127], pa.int8()),
        "c": pa.array([-(2**15), None], pa.int16()),
        "d": pa.array([2**31 - 1, None], pa.int32()),
        "e": pa.array([-(2**63), 2**63 - 1]),
        "f": pa.array([255, 0], pa.uint8()),
        "g": pa.array([2**16 - 1, None], pa.uint16()),
        "h": pa.array([1.5, None], pa.float32()),
        "i": pa.array([float("nan"), float("-inf")]),
        "j": pa.array(["é\n\t\\,\"'\x00", ""]),
        "k": pa.array([b"\x00\xff", None]),
        "l": pa.array([b"\x00\xff", None], pa.binary(2)),
        "m": pa.array([0, -719162], pa.date32()),
        "n": pa.array([1, 86_399_999_999], pa.time64("us")),
        "o": pa.array([1, -1], pa.timestamp("us", "UTC")),
        "p": pa.array([2**50, None], pa.timestamp("us")),
        "q": pa.array([1, -1], pa.timestamp("s", "UTC")),
        "r": pa.array([1, None], pa.timestamp("ms")),
        "s": pa.array(["12345678901234567890.12", "-0.01"]).cast(pa.decimal128(38, 2)),
        "t": pa.array([["a", None, ""], []], pa.list_(pa.string())),
        "u": pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int16())),
        "v": pa.array([{"x": 1, "y": {"z": [None, b"z"]}}, None]),
        "w": pa.array(["a", None], pa.large_string()),
        "with 'quotes', a.dot and Ünicode": pa.array([1, 2]),
    }
)


def test_each_type_comes_back_as_it_was(iceberg: Iceberg) -> None:
    table = DeliveredTable("types", TYPES.schema, (), DeliveryMode.APPEND)
    iceberg.check(table)
    with iceberg.open("types", table) as session:
        session.apply(Transaction(None, "1", iter(TYPES.to_batches())))
    found = table_of(iceberg).scan().to_arrow().select(TYPES.column_names).cast(TYPES.schema)
    assert repr(found.to_pylist()) == repr(TYPES.to_pylist())


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint32(),
        pa.uint64(),
        pa.float16(),
        pa.time32("s"),
        pa.time64("ns"),
        pa.duration("us"),
        pa.timestamp("ns"),
        pa.timestamp("us", "Europe/Berlin"),
        pa.decimal256(50, 2),
        pa.decimal128(10, -2),
        pa.null(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_a_type_that_it_cannot_hold_is_refused_with_the_columns_name(kind: pa.DataType, iceberg: Iceberg) -> None:
    nested = replace(APPENDED, columns=pa.schema([("extra", pa.struct([("x", pa.list_(kind))]))]))
    with pytest.raises(InvalidPipelineError, match=r"column=extra\.x"):
        iceberg.check(nested)


class Variable(str):
    """As `dagster.EnvVar`, which Dagster's tests cover."""

    __slots__ = ()

    def get_value(self) -> str:
        return "https://shop:secret@127.0.0.1:1/catalog?token=hidden"


def test_no_password_is_shown(tmp_path: Path) -> None:
    to = Iceberg("shop.delays", "prod", {"uri": Variable("CATALOG"), "token": "a secret", "warehouse": str(tmp_path)})
    assert to.address == "https://127.0.0.1:1/catalog/prod/shop.delays"
    assert to.table_name == "prod.shop.delays"
    with pytest.raises(DestinationUnavailableError) as raised:
        to.open("one", APPENDED)
    for text in (repr(to), str(raised.value)):
        assert "secret" not in text
        assert "hidden" not in text


def test_an_error_that_repeats_a_secret_is_shown_without_it_and_without_its_cause(iceberg: Iceberg) -> None:
    to = replace(iceberg, properties={**iceberg.properties, "token": Variable("TOKEN")})
    with to.open("one", APPENDED) as session:
        Replies(session, OSError(f"refused: {to.properties['token'].get_value()}"), lands=False)  # type: ignore[attr-defined]
        with pytest.raises(DestinationUnavailableError, match="reason=OSError: refused: <token>") as raised:
            session.apply(Transaction(None, "1", added(("UA", 1))))
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("name", ["delays", "", "shop.", ".delays", "shop..delays"])
def test_a_name_without_a_namespace_is_refused(name: str) -> None:
    with pytest.raises(InvalidPipelineError, match="a namespace and a name"):
        Iceberg(name)


def test_without_the_library_it_says_how_to_install_it(iceberg: Iceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(OutsideCodeError, match=r"pip install 'dagster-ckpt\[iceberg\]'"):
        iceberg.open("one", APPENDED)


def write_until_killed(to: Iceberg, mode: DeliveryMode, opened: Event) -> None:
    append = mode is DeliveryMode.APPEND
    with to.open("one", APPENDED if append else UPSERTED) as session:
        opened.set()
        while True:
            after = session.position
            number = int(after or 0) + 1
            rows = added(("UA", number)) if append else changed(("update_postimage", (f"K{number % 7}", number)))
            session.apply(Transaction(after, str(number), rows))


@pytest.mark.parametrize("mode", DeliveryMode)
def test_a_writer_that_is_killed_20_times_writes_each_row_once(mode: DeliveryMode, iceberg: Iceberg) -> None:
    chance, processes = random.Random(17), multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    for _ in range(20):
        opened = processes.Event()
        writer = processes.Process(target=write_until_killed, args=(iceberg, mode, opened))
        writer.start()
        assert opened.wait(60)
        time.sleep(chance.uniform(0, 0.5))
        writer.kill()
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
    with iceberg.open("one", APPENDED if mode is DeliveryMode.APPEND else UPSERTED) as session:
        delivered = int(session.position or 0)
    assert delivered >= 1
    flights = sorted(flights for _, flights in rows_of(iceberg) if flights is not None)
    assert flights == list(range(1 if mode is DeliveryMode.APPEND else max(1, delivered - 6), delivered + 1))


def test_the_private_names_of_pyiceberg_are_those_of_0_12() -> None:
    """Another version may have changed them: read `destinations/iceberg_table.py` beside it, and then this number."""
    assert version("pyiceberg").startswith("0.12.")
    assert list(inspect.signature(Table._do_commit).parameters) == ["self", "updates", "requirements"]
    assert list(inspect.signature(_SnapshotProducer._clean_all_uncommitted).parameters) == ["self"]
    parameters = list(inspect.signature(iceberg_arrow._dataframe_to_data_files).parameters)
    assert parameters[:3] == ["table_metadata", "df", "io"]
    assert next(iter(inspect.signature(iceberg_arrow._pyarrow_to_schema_without_ids).parameters)) == "schema"
    assert {"_table", "_updates", "_requirements"} <= set(IcebergTransaction.__annotations__)
