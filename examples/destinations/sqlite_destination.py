"""A destination of your own: SQLite, in one transaction for each delivery of rows."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    DestinationUnavailableError,
    PositionMovedError,
    Transaction,
    deleted_keys,
    upserted,
)
from dagster_ckpt.delivery.schema_changes import ColumnThere, difference
from dagster_ckpt.errors import InvalidPipelineError

TYPES = {pa.string(): "TEXT", pa.int64(): "INTEGER", pa.float64(): "REAL", pa.bool_(): "INTEGER", pa.binary(): "BLOB"}


@dataclass(frozen=True)
class SQLite:
    """A table of a SQLite database."""

    path: str
    table: str
    kind = "sqlite"

    @property
    def address(self) -> str:
        return f"sqlite:{self.path}?table={self.table}"

    @property
    def table_name(self) -> str:
        return self.table

    def check_mode(self, mode: DeliveryMode) -> None:
        """Both modes are supported."""

    def check(self, table: DeliveredTable) -> None:
        for field in table.columns:
            if field.type not in TYPES:
                raise InvalidPipelineError(f"SQLite has no such type. column={field.name}, type={field.type}")

    def open(self, delivery: str, table: DeliveredTable) -> "SQLiteSession":
        return SQLiteSession(self, delivery, table)


class SQLiteSession:
    """A connection that holds the newest fence."""

    def __init__(self, to: SQLite, delivery: str, table: DeliveredTable) -> None:
        self._to, self._delivery, self._table = to, delivery, table
        self._connection = sqlite3.connect(to.path, isolation_level=None)
        try:
            self._fence, self.position = self._begin()
        except BaseException:
            self._connection.close()
            raise

    def _begin(self) -> tuple[int, str | None]:
        to, table = self._to, self._table
        key = f", UNIQUE ({names(table.key)})" if table.key else ""
        columns = ", ".join(f'"{field.name}" {TYPES[field.type]}' for field in table.columns)
        with self._transaction() as run:
            run("CREATE TABLE IF NOT EXISTS positions (delivery TEXT PRIMARY KEY, fence INTEGER, position TEXT)")
            run(f'CREATE TABLE IF NOT EXISTS "{to.table}" ({columns}{key})')
            self._compare(run)
            run("INSERT OR IGNORE INTO positions VALUES (?, 0, NULL)", [self._delivery])
            run("UPDATE positions SET fence = fence + 1 WHERE delivery = ?", [self._delivery])
            found = run("SELECT fence, position FROM positions WHERE delivery = ?", [self._delivery])
            fence, position = found.fetchone()
            if position is None and run(f'SELECT 1 FROM "{to.table}" LIMIT 1').fetchone():
                raise InvalidPipelineError(f"a delivery begins with an empty table: empty it. table={to.table}")
        return fence, position

    def _compare(self, run: Callable[..., sqlite3.Cursor]) -> None:
        found = run(f'PRAGMA table_info("{self._to.table}")').fetchall()
        there = {
            name: ColumnThere(kind, bool(never_null) and default is None)
            for _, name, kind, never_null, default, _ in found
        }
        wanted = {field.name: TYPES[field.type] for field in self._table.columns}
        different = difference(self._table, wanted, there)
        different.check(self._to.address, replaces=False)
        for name in different.missing:
            run(f'ALTER TABLE "{self._to.table}" ADD COLUMN "{name}" {wanted[name]}')

    def __enter__(self) -> "SQLiteSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def apply(self, transaction: Transaction) -> None:
        table, key = self._to.table, self._table.key
        mark = "UPDATE positions SET position = ? WHERE delivery = ? AND fence = ? AND position IS ?"
        with self._transaction() as run:
            moved = run(mark, [transaction.until, self._delivery, self._fence, transaction.after])
            if moved.rowcount != 1:
                raise PositionMovedError(f"another delivery writes here. delivery={self._delivery}")
            if transaction.replaces:
                run(f'DELETE FROM "{table}"')
            for batch in transaction.rows:
                added = upserted(batch) if self._table.mode is DeliveryMode.UPSERT else batch
                slots = ", ".join("?" * added.num_columns)
                into = f'"{table}" ({names(tuple(added.schema.names))})'
                if key:
                    same = " AND ".join(f'"{name}" IS ?' for name in key)
                    for name in (deleted_keys(batch, key), added.select(list(key))):
                        self._connection.executemany(f'DELETE FROM "{table}" WHERE {same}', rows_of(name))
                self._connection.executemany(f"INSERT INTO {into} VALUES ({slots})", rows_of(added))

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection.execute
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise DestinationUnavailableError(f"the request to SQLite failed: {error}") from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def names(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
