"""The destination that the docs show does what each must."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from dagster_ckpt.delivery.destination import Destination
from dagster_ckpt.testing.destination_suite import DestinationSuite, Row
from dagster_ckpt.testing.schema_suite import SchemaSuite
from examples.destinations.sqlite_destination import SQLite


class TestSQLite(DestinationSuite):
    def make(self, folder: Path) -> Destination:
        return SQLite(str(folder / "shop.db"), "delays")

    def rows(self, destination: Destination) -> Iterable[Row]:
        assert isinstance(destination, SQLite)
        with closing(sqlite3.connect(destination.path)) as connection:
            return connection.execute("SELECT carrier, flights FROM delays").fetchall()


class TestColumnsOfSQLite(SchemaSuite):
    replaces_columns = False

    def make(self, folder: Path) -> Destination:
        return SQLite(str(folder / "shop.db"), "delays")

    def records(self, destination: Destination) -> list[dict[str, object]]:
        assert isinstance(destination, SQLite)
        with sqlite3.connect(destination.path) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute("SELECT * FROM delays")]
