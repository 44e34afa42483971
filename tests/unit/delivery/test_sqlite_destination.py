"""The destination that the docs show does what each must."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.testing.destination_suite import DestinationSuite, Row
from dagster_ckpt.testing.schema_suite import SchemaSuite
from examples.destinations.sqlite_destination import SQLite
from tests.unit.delivery.delivery_runs import DeliveryRuns


class TestSQLite(DestinationSuite):
    outside: ClassVar = ("sqlite3:connect().execute", "sqlite3:connect().executemany")

    @pytest.fixture(autouse=True)
    def locks_are_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.01))

    def no_reply(self) -> Exception:
        return sqlite3.OperationalError("disk I/O error")

    def make(self, folder: Path) -> Destination:
        return _made(folder)

    def rows(self, destination: Destination) -> Iterable[Row]:
        return _rows(destination)


class TestColumnsOfSQLite(SchemaSuite):
    replaces_columns = False

    def make(self, folder: Path) -> Destination:
        return _made(folder)

    def records(self, destination: Destination) -> list[dict[str, object]]:
        assert isinstance(destination, SQLite)
        with sqlite3.connect(destination.path) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM delays")]


class TestRunsToSQLite(DeliveryRuns):
    def make(self, folder: Path) -> Destination:
        return _made(folder)

    def rows(self, destination: Destination) -> Iterable[Row]:
        return _rows(destination)


def _made(folder: Path) -> SQLite:
    return SQLite(str(folder / "shop.db"), "delays")


def _rows(destination: Destination) -> Iterable[Row]:
    assert isinstance(destination, SQLite)
    with closing(sqlite3.connect(destination.path)) as connection:
        return connection.execute("SELECT carrier, flights FROM delays").fetchall()
