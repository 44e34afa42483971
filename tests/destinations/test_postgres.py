"""PostgreSQL on a real server: what every destination must do, and what is its own."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from adbc_driver_manager import AdbcStatusCode, OperationalError
from adbc_driver_postgresql import dbapi

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    Destination,
    RowsRefusedError,
    SchemaChanges,
    Transaction,
)
from dagster_ckpt.destinations import Postgres
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.testing.destination_suite import APPENDED, UPSERTED, DestinationSuite, Row, added, changed
from dagster_ckpt.testing.schema_suite import SchemaSuite
from tests.unit.delivery.delivery_runs import DeliveryRuns


class TestPostgres(DestinationSuite, DeliveryRuns):
    outside: ClassVar = tuple(
        f"adbc_driver_manager.dbapi:{name}" for name in ("Cursor.execute", "Cursor.adbc_ingest", "Connection.commit")
    )
    numbers: ClassVar = itertools.count()
    url: str
    run: Callable[[str], list[tuple[Any, ...]]]

    def no_reply(self) -> Exception:
        error: Exception = OperationalError("no reply", status_code=AdbcStatusCode.IO)
        return error

    @pytest.fixture(autouse=True)
    def server(self, postgres_url: str) -> Iterator[None]:
        with dbapi.connect(postgres_url, autocommit=True) as connection, connection.cursor() as cursor:

            def run(statement: str) -> list[tuple[Any, ...]]:
                cursor.execute(statement)
                return cursor.fetchall() if statement.startswith("SELECT") else []

            self.url, self.run = postgres_url, run
            yield

    def make(self, folder: Path) -> Destination:
        schema = f"test_{next(self.numbers)}"
        self.run(f"CREATE SCHEMA {schema}")
        return Postgres(self.url, "delays", schema, lock_timeout_s=1)

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, Postgres)
        found = self.run(f'SELECT carrier, flights FROM {destination.schema}."delays"')
        return [(carrier, flights) for carrier, flights in found]

    def maintain(self, destination: Destination) -> None:
        assert isinstance(destination, Postgres)
        for table in ("delays", "dagster_ckpt_positions"):
            if self.run(f"SELECT 1 FROM pg_tables WHERE schemaname = '{destination.schema}' AND tablename = '{table}'"):
                self.run(f"VACUUM (FULL, ANALYZE) {destination.schema}.{table}")
                self.run(f"REINDEX TABLE {destination.schema}.{table}")


class TestColumnsOfPostgres(SchemaSuite):
    numbers: ClassVar = itertools.count()
    url: str

    @pytest.fixture(autouse=True)
    def server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make(self, folder: Path) -> Destination:
        schema = f"columns_{next(self.numbers)}"
        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {schema}")
        return Postgres(self.url, "delays", schema)

    def records(self, destination: Destination) -> list[dict[str, object]]:
        assert isinstance(destination, Postgres)
        with dbapi.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM {destination.schema}."delays"')
            names = [each[0] for each in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


TYPES = pa.table(
    {
        "a": pa.array([True, None]),
        "b": pa.array([-128, 127], pa.int8()),
        "c": pa.array([-(2**15), None], pa.int16()),
        "d": pa.array([2**31 - 1, None], pa.int32()),
        "e": pa.array([-(2**63), 2**63 - 1]),
        "f": pa.array([1.5, None], pa.float32()),
        "g": pa.array([float("nan"), float("-inf")]),
        "h": pa.array(["é\n\t\\,\"'", ""]),
        "i": pa.array([b"\x00\xff", None]),
        "j": pa.array([0, -719162], pa.date32()),
        "k": pa.array([1, -1], pa.timestamp("us", "UTC")),
        "l": pa.array([2**50, None], pa.timestamp("us")),
        "m": pa.array(["12345678901234567890.12", "-0.01"]).cast(pa.decimal128(30, 2)),
        "n": pa.array([["a", None, ""], []], pa.list_(pa.string())),
        'with "quotes" and Ünicode': pa.array([1, 2]),
    }
)


def test_each_type_comes_back_as_it_was(postgres_url: str) -> None:
    to, table = Postgres(postgres_url, "types"), DeliveredTable("types", TYPES.schema, (), DeliveryMode.APPEND)
    to.check(table)
    with to.open("types", table) as session:
        session.apply(Transaction(None, "1", iter(TYPES.to_batches())))
    with dbapi.connect(postgres_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM types ORDER BY 15")
        found = cursor.fetchall()
    # The driver reads numeric as text.
    as_read = TYPES.set_column(12, "m", TYPES["m"].cast(pa.string()))
    expected = list(zip(*(column.to_pylist() for column in as_read.columns), strict=True))
    assert [repr(row) for row in found] == [repr(row) for row in expected]


@pytest.mark.parametrize(
    "kind", [pa.uint64(), pa.struct([("x", pa.int64())]), pa.map_(pa.string(), pa.int64()), pa.timestamp("ns")], ids=str
)
def test_a_type_that_it_cannot_hold_is_refused_with_the_columns_name(kind: pa.DataType) -> None:
    table = DeliveredTable("types", pa.schema([("extra", kind)]), (), DeliveryMode.APPEND)
    with pytest.raises(InvalidPipelineError, match="column=extra"):
        Postgres("postgresql://nowhere/shop", "types").check(table)


def test_no_password_is_shown() -> None:
    to = Postgres("postgresql://shop:secret@db:5432/shop?sslpassword=hidden", "types")
    assert to.address == "postgresql://db:5432/shop/public.types"
    assert "secret" not in repr(to)


@pytest.fixture
def made(postgres_url: str) -> Iterator[tuple[Postgres, dbapi.Cursor]]:
    """A table that the user makes, and a cursor to make it with; in a schema of the test."""
    schema = f"made_{next(TestPostgres.numbers)}"
    with dbapi.connect(postgres_url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(f"SET search_path TO {schema}")
        yield Postgres(postgres_url, "delays", schema), cursor


def in_table(cursor: dbapi.Cursor, columns: str = "*") -> list[tuple[object, ...]]:
    cursor.execute(f"SELECT {columns} FROM delays ORDER BY 1, 2")
    return list(cursor.fetchall())


@pytest.mark.parametrize(
    "columns",
    [
        "carrier text PRIMARY KEY, flights bigint",
        "carrier varchar, flights bigint, UNIQUE NULLS NOT DISTINCT (carrier)",
        "id bigserial PRIMARY KEY, carrier text NOT NULL UNIQUE, flights bigint, at timestamptz NOT NULL DEFAULT now()",
    ],
)
def test_a_table_of_the_users_is_written_and_its_other_columns_are_left_alone(
    made: tuple[Postgres, dbapi.Cursor], columns: str
) -> None:
    to, cursor = made
    cursor.execute(f"CREATE TABLE delays ({columns})")
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)), ("insert", ("AA", 1)))))
        session.apply(Transaction("1", "2", changed(("update_postimage", ("UA", 2)), ("delete", ("AA", 1)))))
    assert in_table(cursor, "carrier, flights") == [("UA", 2)]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("carrier text PRIMARY KEY, flights integer", "column flights is integer, and the stream's is bigint"),
        ("carrier varchar(2) PRIMARY KEY, flights bigint", r"column carrier is character varying\(2\)"),
        ("carrier text PRIMARY KEY, flights bigint, shop text NOT NULL", "column shop must have a value"),
        ("carrier text, flights bigint", "nothing keeps the key carrier unique"),
        ("carrier text UNIQUE, flights bigint", "nothing keeps the key carrier unique"),
        ("carrier text, flights bigint, UNIQUE (carrier, flights)", "nothing keeps the key carrier unique"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_before_anything_is_written(
    made: tuple[Postgres, dbapi.Cursor], columns: str, reason: str
) -> None:
    to, cursor = made
    cursor.execute(f"CREATE TABLE delays ({columns})")
    with pytest.raises(IncompatibleStateError, match=f"{reason}.*destination=.*delays"):
        to.open("one", UPSERTED)
    assert in_table(cursor) == []


def test_columns_and_key_are_replaced_in_the_transaction_that_replaces_the_rows(
    made: tuple[Postgres, dbapi.Cursor],
) -> None:
    to, cursor = made
    columns = "carrier text PRIMARY KEY, flights integer, shop text NOT NULL DEFAULT 'all', must bigint NOT NULL"
    cursor.execute(f"CREATE TABLE delays ({columns})")
    cursor.execute("CREATE VIEW shops AS SELECT DISTINCT shop FROM delays")
    both = replace(UPSERTED, key=("carrier", "flights"), schema_changes=SchemaChanges.REPLACE)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from changed(("insert", ("UA", 1)))
        raise CheckpointError("a file of the stream is damaged")

    with to.open("one", both) as session, pytest.raises(CheckpointError, match="damaged"):
        session.apply(Transaction(None, "1", broken(), replaces=True))
    with to.open("one", both) as session:
        rows = changed(("insert", ("UA", 1)), ("insert", ("UA", 2)), ("insert", (None, 1)))
        session.apply(Transaction(None, "1", rows, replaces=True))
        session.apply(Transaction("1", "2", changed(("delete", ("UA", 1)), ("update_postimage", (None, 1)))))
    assert in_table(cursor, "carrier, flights, shop") == [("UA", 2, "all"), (None, 1, "all")]
    with to.open("one", replace(both, schema_changes=SchemaChanges.ADD)) as session:
        assert session.position == "2"


@pytest.mark.parametrize("loss", ["TRUNCATE delays", "DROP TABLE delays", "DELETE FROM delays"])
def test_a_table_that_has_lost_its_rows_is_noticed(made: tuple[Postgres, dbapi.Cursor], loss: str) -> None:
    to, cursor = made
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
    cursor.execute(loss)
    for _ in range(2):
        with pytest.raises(
            IncompatibleStateError, match=r"lost all rows.*unsubscribe delays one.*delays, delivery=one, position=1"
        ):
            to.open("one", UPSERTED)
    assert in_table(cursor) == []


def test_a_table_that_the_stream_has_emptied_goes_on(made: tuple[Postgres, dbapi.Cursor]) -> None:
    to, cursor = made
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))
        session.apply(Transaction("1", "2", changed(("delete", ("UA", 1)))))
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction("2", "3", changed(("insert", ("AA", 1)))))
    assert in_table(cursor, "carrier, flights") == [("AA", 1)]


REFUSALS = {
    "CHECK (flights >= 0)": (("UA", -1), r"\"delays\" violates check constraint .*Failing row contains \(UA, -1\)"),
    "UNIQUE (flights)": (("AA", 1), r"violates unique constraint .*Key \(flights\)=\(1\) already exists"),
    "NOT NULL": (("UA", None), r"null value in column \"flights\" of relation \"delays\" .*row contains \(UA, null\)"),
    "": (("zero \0 byte", 1), r"COPY delays, line 2, column carrier"),
}


@pytest.mark.parametrize("demand", REFUSALS)
def test_rows_that_the_table_refuses_are_named_and_are_no_missing_answer(demand: str, postgres_url: str) -> None:
    row, says = REFUSALS[demand]
    schema = f"refuses_{next(TestPostgres.numbers)}"
    with dbapi.connect(postgres_url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {schema}")
        more = demand if demand == "NOT NULL" or not demand else f", {demand}"
        cursor.execute(f"CREATE TABLE {schema}.delays (carrier text, flights bigint {more})")
    to = Postgres(postgres_url, "delays", schema)
    with to.open("one", APPENDED) as session:
        session.apply(Transaction(None, "1", added(("AA", 1))))
        with pytest.raises(RowsRefusedError, match=rf"(?s)destination=.*{says}") as refused:
            session.apply(Transaction("1", "2", added(("OK", 7), row)))
    assert "of%20the%20tests" not in str(refused.value)
    with to.open("one", APPENDED) as session:
        assert session.position == "1"


def test_a_password_that_the_server_refuses_is_for_a_person_to_mend(postgres_url: str) -> None:
    wrong = Postgres(postgres_url.replace("of%20the%20tests", "another"), "delays")
    with pytest.raises(OutsideCodeError, match="mend what it names") as refused:
        wrong.open("one", APPENDED)
    assert "another" not in str(refused.value)
