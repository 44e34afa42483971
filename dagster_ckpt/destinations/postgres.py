"""PostgreSQL: one SQL transaction holds the rows and the position.

The position is a row of `dagster_ckpt_positions` in the same schema:

    delivery    the unique name of the delivery
    fence       grows by one each time the delivery is opened; each transaction checks its session's
    position    how far the delivery has come
    filled      whether the table had rows after the last transaction: if it is empty now, it was truncated or dropped

The update of that row comes first in each transaction, so it is the lock: of two transactions at once the second waits,
and then finds that the position has moved. A session that was opened earlier has an older fence and updates no row.

Rows go by COPY (ADBC) into a temporary table; a few SQL statements merge them into the table.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    PositionMovedError,
    Transaction,
    start_over,
)
from dagster_ckpt.delivery.schema_changes import ColumnThere, Difference, difference, may_replace
from dagster_ckpt.destinations.faults import destination_error, fault_by_sqlstate
from dagster_ckpt.destinations.secrets import public_address, resolve, secrets_hidden, without_secrets
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, UPDATE_PREIMAGE
from dagster_ckpt.protocol.redaction import escape_user, split_user

if TYPE_CHECKING:
    from adbc_driver_manager import Error
    from adbc_driver_postgresql.dbapi import Connection

POSITIONS = "dagster_ckpt_positions"

_NULLS_ARE_EQUAL_SINCE = 150_000
"""The first version with NULLS NOT DISTINCT, which an upsert of a row with a null key needs."""

_TEMPORARY = "dagster_ckpt_rows"
_NAME = re.compile(r"[^\x00.]+")
_URL = re.compile(r"postgres(ql)?://")

_COLUMNS = """
    SELECT attname::text, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity = ''
    FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped
"""
_UNIQUE_INDEXES = """
    SELECT i.indexrelid::regclass::text,
        (SELECT conname::text FROM pg_constraint WHERE conindid = i.indexrelid AND conrelid = i.indrelid),
        k.names,
        k.never_null OR coalesce((to_jsonb(i) ->> 'indnullsnotdistinct')::bool, false)
    FROM pg_index i, LATERAL (
        SELECT array_agg(attname::text) AS names, bool_and(attnotnull) AS never_null
        FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
    ) k
    WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_ALIKE = {"character varying": "text"}
"""Types that hold the same values as the one that the table would be created with."""


@dataclass(frozen=True)
class Postgres:
    """A table of a PostgreSQL database.

        deliver(delay_by_carrier, to=Postgres(dg.EnvVar("SHOP_URL"), table="delays"), mode="upsert")

    `url` is that of libpq: `postgresql://user:password@host:5432/shop`. `table` is made if it is missing, with a unique
    index on the key. `lock_timeout_s` is how long a transaction waits for a lock; a session that is idle within a
    transaction for longer is ended by the server, so that a stopped process holds no lock for ever.
    """

    url: str = field(repr=False)
    table: str
    schema: str = "public"
    lock_timeout_s: int = 60

    def __post_init__(self) -> None:
        for name in (self.table, self.schema):
            if not _NAME.fullmatch(name):
                raise InvalidPipelineError(
                    f"table and schema are plain names: give a schema by schema=. table={self.table!r}, "
                    f"schema={self.schema!r}"
                )
        if type(self.lock_timeout_s) is not int or self.lock_timeout_s < 1:
            raise InvalidPipelineError(f"the lock time-out is 1 second or more. lock_timeout_s={self.lock_timeout_s!r}")
        if not hasattr(self.url, "get_value"):
            _server(self.url)

    @property
    def kind(self) -> str:
        return "postgres"

    @property
    def address(self) -> str:
        return f"{public_address(_server(resolve(self.url)))}/{self.schema}.{self.table}"

    @property
    def table_name(self) -> str:
        database = public_address(_server(resolve(self.url))).split("/", 3)[3:]
        return ".".join(filter(None, (*database, self.schema, self.table)))

    def check_mode(self, mode: DeliveryMode) -> None:
        """Both modes are supported."""

    def check(self, table: DeliveredTable) -> None:
        for column in table.columns:
            _type_of(column.name, column.type)

    def open(self, delivery: str, table: DeliveredTable) -> "PostgresSession":
        return PostgresSession(self, delivery, table)


class PostgresSession:
    """A connection that holds the newest fence of its delivery."""

    def __init__(self, to: Postgres, delivery: str, table: DeliveredTable) -> None:
        self._to, self._delivery, self._table = to, delivery, table
        self._into = f"{_quote(to.schema)}.{_quote(to.table)}"
        self._positions = f"{_quote(to.schema)}.{POSITIONS}"
        self._connection = _connect(to)
        try:
            with self._transaction():
                self._make_tables()
            with self._transaction():
                self._fence, self.position, filled = self._take_fence()
                has_rows = self._one(f"SELECT EXISTS (SELECT FROM {self._into})")
                if self.position is None and has_rows:
                    raise InvalidPipelineError(
                        "a delivery begins with an empty table, and this one has rows that it has not written: empty "
                        f"it, or name another. table={to.schema}.{to.table}, delivery={delivery}"
                    )
                if filled and not has_rows:
                    raise IncompatibleStateError(
                        "the table has lost all rows that were delivered: it was truncated, or dropped and made again. "
                        f"Nothing was written. Restore the database, or {start_over(delivery, table)}. "
                        f"destination={to.address}, delivery={delivery}, position={self.position}"
                    )
                self._difference = self._compare()
                self._difference.check(to.address, replaces=may_replace(table))
                if not self._difference.misfits:
                    self._add(self._difference.missing)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> "PostgresSession":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):  # a broken connection: the server rolls back
            self._connection.close()

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`."""
        with self._transaction():
            moved = self._rows(
                f"UPDATE {self._positions} SET position = $1 WHERE delivery = $2 AND fence = $3 "
                "AND position IS NOT DISTINCT FROM $4 RETURNING fence",
                [transaction.until, self._delivery, self._fence, transaction.after],
            )
            if not moved:
                raise PositionMovedError(
                    "another delivery has taken over, or has moved the position: this one has written nothing. "
                    f"delivery={self._delivery}, table={self._to.schema}.{self._to.table}, after={transaction.after}"
                )
            self._difference.check(self._to.address, replaces=transaction.replaces)
            if self._table.mode is DeliveryMode.UPSERT:
                self._upsert(transaction)
            else:
                self._ingest(transaction.rows, self._table.columns, self._to.table, self._to.schema)
            filled = f"EXISTS (SELECT FROM {self._into})"
            self._run(f"UPDATE {self._positions} SET filled = {filled} WHERE delivery = $1", [self._delivery])

    def _upsert(self, transaction: Transaction) -> None:
        columns = self._table.columns.append(pa.field(CHANGE_TYPE, pa.string()))
        self._make(f"TEMPORARY TABLE {_TEMPORARY}", columns, "ON COMMIT DROP")
        self._ingest(transaction.rows, columns, _TEMPORARY, None)
        if transaction.replaces:
            self._run(f"DELETE FROM {self._into}")
            if self._difference.misfits:
                self._replace_columns()
        elif self._table.key:
            self._delete()
        names = ", ".join(map(_quote, self._table.columns.names))
        others = [name for name in self._table.columns.names if name not in self._table.key]
        update = ", ".join(f"{_quote(name)} = EXCLUDED.{_quote(name)}" for name in others)
        conflict = f"({', '.join(map(_quote, self._table.key))})"
        self._run(
            f"INSERT INTO {self._into} ({names}) SELECT {names} FROM {_TEMPORARY} r "
            f"WHERE r.{CHANGE_TYPE} NOT IN ('{DELETE}', '{UPDATE_PREIMAGE}') "
            + (
                f"ON CONFLICT {conflict} DO {f'UPDATE SET {update}' if others else 'NOTHING'}"
                if self._table.key
                else ""
            )
        )

    def _delete(self) -> None:
        same = " AND ".join(f"t.{_quote(key)} IS NOT DISTINCT FROM r.{_quote(key)}" for key in self._table.key)
        # Only `=` uses the index. Null keys, which are few, get a statement of their own.
        equal = " AND ".join(f"t.{_quote(key)} = r.{_quote(key)}" for key in self._table.key)
        some_null = " OR ".join(f"r.{_quote(key)} IS NULL" for key in self._table.key)
        gone = f"r.{CHANGE_TYPE} = '{DELETE}'"
        self._run(f"DELETE FROM {self._into} t USING {_TEMPORARY} r WHERE {gone} AND {equal}")
        self._run(f"DELETE FROM {self._into} t USING {_TEMPORARY} r WHERE {gone} AND ({some_null}) AND {same}")

    def _compare(self) -> Difference:
        columns = self._rows(_COLUMNS, [self._into])
        there = {name: ColumnThere(_ALIKE.get(kind, kind), required) for name, kind, required in columns}
        wanted = {each.name: _type_of(each.name, each.type) for each in self._table.columns}
        # The index of a nullable key must treat nulls as equal, or an upsert of such a row would insert it again.
        nullable = any(self._table.columns.field(key).nullable for key in self._table.key)
        unique = any(
            set(names) == set(self._table.key) and (alike or not nullable)
            for _, _, names, alike in self._rows(_UNIQUE_INDEXES, [self._into])
        )
        return difference(self._table, wanted, there, unique=unique or not self._table.key)

    def _add(self, names: Iterable[str]) -> None:
        for name in names:
            kind = _type_of(name, self._table.columns.field(name).type)
            self._run(f"ALTER TABLE {self._into} ADD COLUMN {_quote(name)} {kind}")

    def _replace_columns(self) -> None:
        """Give the table, which is empty now, the columns and the key of the stream."""
        for name in self._difference.columns:
            self._run(f"ALTER TABLE {self._into} DROP COLUMN {_quote(name)}")
        left = self._compare()
        self._add(left.missing)
        if left.misfits:  # the key
            for index, constraint, *_ in self._rows(_UNIQUE_INDEXES, [self._into]):
                of_table = f"ALTER TABLE {self._into} DROP CONSTRAINT {_quote(constraint or '')}"
                self._run(f"DROP INDEX {index}" if constraint is None else of_table)
            for key in self._table.key:  # a dropped primary key leaves NOT NULL behind
                self._run(f"ALTER TABLE {self._into} ALTER COLUMN {_quote(key)} DROP NOT NULL")
            self._make_index()
        self._difference = Difference()

    def _make_tables(self) -> None:
        # IF NOT EXISTS does not help two sessions at once: one fails on a unique index of the system catalog.
        self._run("SELECT pg_advisory_xact_lock(hashtext($1))", [self._positions])
        if not self._one("SELECT to_regclass($1) IS NOT NULL", [self._positions]):
            self._run(
                f"CREATE TABLE IF NOT EXISTS {self._positions} "
                "(delivery text PRIMARY KEY, fence bigint NOT NULL, position text, filled boolean DEFAULT false)"
            )
        if self._one("SELECT to_regclass($1) IS NOT NULL", [self._into]):
            return
        self._make(f"TABLE {self._into}", self._table.columns)
        self._make_index()

    def _make_index(self) -> None:
        if not self._table.key:
            return
        nullable = any(self._table.columns.field(key).nullable for key in self._table.key)
        version = int(self._one("SELECT current_setting('server_version_num')"))
        if nullable and version < _NULLS_ARE_EQUAL_SINCE:
            raise InvalidPipelineError(
                "the key may be null, and before PostgreSQL 15 a unique index treats nulls as distinct: use a newer "
                f"server, or leave null keys out. server_version={version}, key={', '.join(self._table.key)}"
            )
        keys = ", ".join(map(_quote, self._table.key))
        alike = " NULLS NOT DISTINCT" if nullable else ""
        self._run(f"CREATE UNIQUE INDEX ON {self._into} ({keys}){alike}")

    def _make(self, what: str, columns: pa.Schema, end: str = "") -> None:
        made = ", ".join(f"{_quote(each.name)} {_type_of(each.name, each.type)}" for each in columns)
        self._run(f"CREATE {what} ({made}) {end}")

    def _take_fence(self) -> tuple[int, str | None, bool]:
        self._run(
            f"INSERT INTO {self._positions} (delivery, fence) VALUES ($1, 0) ON CONFLICT DO NOTHING", [self._delivery]
        )
        [(fence, position, filled)] = self._rows(
            f"UPDATE {self._positions} SET fence = fence + 1 WHERE delivery = $1 RETURNING fence, position, filled",
            [self._delivery],
        )
        return fence, position, filled

    def _ingest(self, rows: Iterator[pa.RecordBatch], columns: pa.Schema, table: str, schema: str | None) -> None:
        reader = pa.RecordBatchReader.from_batches(columns, (batch.cast(columns) for batch in rows))
        with self._connection.cursor() as cursor:
            where: dict[str, Any] = {"temporary": True} if schema is None else {"db_schema_name": schema}
            cursor.adbc_ingest(table, reader, mode="append", **where)

    def _one(self, statement: str, arguments: list[object] | None = None) -> Any:
        [[value]] = self._rows(statement, arguments)
        return value

    def _rows(self, statement: str, arguments: list[object] | None = None) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def _run(self, statement: str, arguments: list[object] | None = None) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, arguments)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction: committed at the end, rolled back by any error."""
        from adbc_driver_manager import Error

        with secrets_hidden({"url": self._to.url}):
            try:
                yield
                self._connection.commit()
            except BaseException as error:
                with suppress(Error):  # a broken connection: the server rolls back
                    self._connection.rollback()
                if isinstance(error, Error):
                    raise _not_done(error, self._to) from error
                raise


def _connect(to: Postgres) -> "Connection":
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise OutsideCodeError(
            "delivering to PostgreSQL needs its driver: pip install 'dagster-ckpt[postgres]'"
        ) from error
    with secrets_hidden({"url": to.url}), ExitStack() as opened:
        try:
            connection = opened.enter_context(closing(dbapi.connect(_server(resolve(to.url)), autocommit=False)))
            with connection.cursor() as cursor:
                cursor.execute(f"SET lock_timeout = '{to.lock_timeout_s}s'")
                cursor.execute(f"SET idle_in_transaction_session_timeout = '{2 * to.lock_timeout_s}s'")
                cursor.execute("SET timezone = 'UTC'")
            connection.commit()
        except Error as error:
            raise _not_done(error, to) from error
        opened.pop_all()
    return connection


def _not_done(error: "Error", to: Postgres) -> CheckpointError:
    # The driver's text has the server's details of a row: table, column, line and detail.
    text = without_secrets(str(error), {"url": to.url})
    return destination_error(
        fault_by_sqlstate(error.sqlstate, text),
        "the request to PostgreSQL failed, or its reply was lost: check that the server can be reached and has disk "
        "space.",
        destination=to.address,
        reason=text,
    )


def _server(url: str) -> str:
    """A URL of PostgreSQL, as libpq reads it. In any other text the password cannot be found, so not be hidden."""
    if not _URL.match(url):
        raise InvalidPipelineError("no URL of PostgreSQL: write postgresql://user:password@host:5432/shop. option=url")
    _, user, rest = split_user(url)
    if user and not rest:
        raise InvalidPipelineError(
            "it cannot be known where the password of this URL ends: write @ as %40 and ? as %3F, in the password and "
            "in the parameters. option=url"
        )
    return escape_user(url)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
}


def _type_of(column: str, kind: pa.DataType) -> str:
    """The type of a column there. Raises `InvalidPipelineError` for one that has no lossless counterpart."""
    if kind in _TYPES:
        return _TYPES[kind]
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return f"timestamp with{'out' if kind.tz is None else ''} time zone"
    if pa.types.is_decimal128(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return f"{_type_of(column, kind.value_type)}[]"
    raise InvalidPipelineError(
        "PostgreSQL has no column that holds this type without loss: convert it in the stream, for example a struct or "
        f"a map by to_json. column={column}, type={kind}"
    )
