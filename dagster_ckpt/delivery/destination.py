"""The protocol of a destination: a system with transactions that keeps a delivery's position beside the rows.

A delivery's position is a text. It is written in the same transaction as its rows, so the two never disagree, whatever
is killed. It is never inferred: after any error the delivery opens the destination again and reads it.

    open            takes the fence, then reads the position: no session opened before can commit any more
    apply           one transaction: the position is still `after`, the rows, the position `until`; all or nothing

A crash before the commit of `apply` leaves `after`, one after it `until`. A commit whose reply is lost leaves either.

The destination's table and the delivered one may differ. `open` compares their columns, by name:

| the destination's table                              | what happens                                                  |
|---|---|
| lacks a column                                       | it is added, and null in the rows that are there              |
| has another column, which may be null or has default | it is left alone                                              |
| has another column, which must have a value          | refused, with its name; replaced with `SchemaChanges.REPLACE` |
| has a column with another type                       | the same                                                      |
| is not unique by the delivered key                   | the same, with the key                                        |

`schema_changes` decides this for all destinations.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import FencedError, IncompatibleStateError, OutsideCodeError, StoreUnavailableError
from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE


class DestinationUnavailableError(StoreUnavailableError):
    """A request to the destination failed, or its outcome is unknown. The delivery opens it again and goes on."""


class RowsRefusedError(OutsideCodeError):
    """The destination refuses rows of a transaction, by a constraint or a limit. Nothing of it was written.

    To be mended where the rows come from, or in what the destination demands.
    """


class DestinationMismatchError(OutsideCodeError, IncompatibleStateError):
    """What is in the destination does not fit the delivery. Nothing was written."""


class PositionMovedError(FencedError):
    """The destination's position is not the one that this transaction builds on: another delivery writes there."""


class DeliveryMode(StrEnum):
    """What is delivered."""

    APPEND = "append"
    """Every change of every epoch, with `_epoch` and `_change_type`; of a table that only grows, its rows."""
    UPSERT = "upsert"
    """The table: one row per key, inserted, updated and deleted."""


class SchemaChanges(StrEnum):
    """What a delivery may change in the columns of the destination's table."""

    ADD = "add"
    """Missing columns are added. Changes that would rewrite or lose data are refused."""
    REPLACE = "replace"
    """In addition, a transaction that replaces all rows also gives the table the stream's columns and key."""


@dataclass(frozen=True)
class DeliveredTable:
    """What is delivered: the rows of `stream` with `columns`.

    `key` identifies a row of the destination's table in mode `UPSERT`. It is empty in mode `APPEND`, and for a table of
    one row, which every transaction replaces. In mode `APPEND` of a table that changes, `columns` end in `_epoch` and
    `_change_type`.
    """

    stream: str
    columns: pa.Schema
    key: tuple[str, ...]
    mode: DeliveryMode
    schema_changes: SchemaChanges = SchemaChanges.ADD


@dataclass(frozen=True)
class Transaction:
    """One transaction of the destination.

    `after` is the position that it builds on, None for the first one; `until` is the one that it writes.

    `rows` are read once. In mode `APPEND` each of them is added. In mode `UPSERT` their last column is
    `_change_type`, and each key has at most one change: see `upserted` and `deleted_keys`. If `replaces`, the rows are
    the whole table, and every other row is removed.
    """

    after: str | None
    until: str
    rows: Iterator[pa.RecordBatch]
    replaces: bool = False


class Session(AbstractContextManager["Session"], Protocol):
    """One delivery's connection to a destination. Used by one thread at a time."""

    @property
    def position(self) -> str | None:
        """The position when the session was opened, read after the fence; None if there is none."""

    def apply(self, transaction: Transaction) -> None:
        """Commit a transaction. Raises `PositionMovedError` if the destination's position is not its `after`.

        Raises `RowsRefusedError`, with what is known of the row, if no retry can write them, `OutsideCodeError` for
        what a person must mend, and `DestinationUnavailableError` if it is unknown whether the transaction was
        committed, or if it was not and may be retried. After any error the session is not used again.
        """


class Destination(Protocol):
    """Where a delivery writes. Created in a code location, without a connection; may be pickled."""

    @property
    def kind(self) -> str:
        """The kind that Dagster shows: `postgres`."""

    @property
    def address(self) -> str:
        """Where it is, without user, password and parameters."""

    @property
    def table_name(self) -> str | None:
        """The table's full name, for Dagster's lineage: `shop.public.delays`. None if it has none."""

    def check_mode(self, mode: DeliveryMode) -> None:
        """Raise `InvalidPipelineError`, with the reason, for an unsupported mode. Called where it is declared."""

    def check(self, table: DeliveredTable) -> None:
        """Raise `InvalidPipelineError` for columns that it cannot hold without loss. Needs no connection."""

    def open(self, delivery: str, table: DeliveredTable) -> Session:
        """Begin: make the tables that are missing, take the fence, then read the position.

        `delivery` is the unique name of the delivery: its position is kept under that name. A delivery without a
        position needs an empty table, else `InvalidPipelineError` is raised: rows that it has not written are never
        touched. Columns are compared as described above; those that do not fit raise `IncompatibleStateError`. Also
        raises `OutsideCodeError`, for a missing driver or a right that is not granted, and
        `DestinationUnavailableError`.
        """


def delivery_name(asset: str, uuid: StreamUuid) -> str:
    """The unique name of a delivery in its destination. A delivery whose folder was removed gets another one."""
    return f"{asset}@{uuid}"


def start_over(delivery: str, table: DeliveredTable, empty: str = "empty the table") -> str:
    """How a user starts a delivery over, for errors. `empty` is how its destination is emptied."""
    asset = delivery.rsplit("@", 1)[0]
    # An old subscriber keeps the change log. Later it would have the same name as the new one.
    return (
        f"{empty}, remove the folder of this delivery from the store, run `dagster-ckpt unsubscribe {table.stream} "
        f"{asset}`, and materialize it: it then begins with the whole table"
    )


def upserted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of a batch to insert, or to put in place of the row with their key, without `_change_type`."""
    kinds = pa.array([INSERT, UPDATE_POSTIMAGE])
    return _without_kind(batch.filter(pc.is_in(batch.column(CHANGE_TYPE), value_set=kinds)))


def deleted_keys(batch: pa.RecordBatch, key: tuple[str, ...]) -> pa.RecordBatch:
    """The keys of the rows to delete."""
    return batch.filter(pc.equal(batch.column(CHANGE_TYPE), DELETE)).select(list(key))


def _without_kind(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name != CHANGE_TYPE])
