"""PostgreSQL on a real server: what every destination must do, and what is its own."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, Destination, Transaction
from dagster_ckpt.destinations import Postgres
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.testing.destination_suite import DestinationSuite, Row


class TestPostgres(DestinationSuite):
    numbers: ClassVar = itertools.count()
    url: str

    @pytest.fixture(autouse=True)
    def server(self, postgres_url: str) -> None:
        self.url = postgres_url

    def make(self, folder: Path) -> Destination:
        schema = f"test_{next(self.numbers)}"
        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE SCHEMA {schema}")
        return Postgres(self.url, "delays", schema)

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, Postgres)
        with dbapi.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(f'SELECT carrier, flights FROM {destination.schema}."delays"')
            return [(carrier, flights) for carrier, flights in cursor.fetchall()]


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
