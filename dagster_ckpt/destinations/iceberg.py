"""Apache Iceberg: one snapshot of the table holds the rows and the position.

The position is a property of the table, `dagster_ckpt.delivery.<name>`: see `Mark`. Expiry of snapshots, compaction and
schema changes keep it. It is also in the snapshot's summary, for people.

A catalog refuses a commit whose base is not the table's newest snapshot. Properties alone are not compared, so each
commit adds a snapshot, if need be without files, and opening is a commit too: an earlier session's next one is refused.
The table is then loaded again. If its mark has changed, another session has taken over; if not, another writer has
committed, and the commit is made again on the newer snapshot.

pyiceberg's own retries only do the last: they would add the rows a second time. They also delete the files of a commit
that was reported as failed and is there all the same. So the commit is made here, once (see `iceberg_table.commit`).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    DestinationUnavailableError,
    PositionMovedError,
    Transaction,
    start_over,
    upserted,
)
from dagster_ckpt.delivery.schema_changes import ColumnThere, Difference, difference, may_replace
from dagster_ckpt.destinations.faults import Fault, destination_error, fault_by_text
from dagster_ckpt.destinations.iceberg_table import (
    ConflictError,
    Mark,
    column_types,
    commit,
    delete_files,
    mark_of,
    pieces,
    rewritten,
    type_text,
    was_rolled_back,
    with_columns,
    write_files,
)
from dagster_ckpt.destinations.secrets import (
    connection_options,
    public_address,
    resolve,
    secrets_hidden,
    without_secrets,
)
from dagster_ckpt.errors import CheckpointError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table import Transaction as IcebergTransaction

_ATTEMPTS = 10
"""How often in a row another writer may commit first. Each time the table has made progress."""

_CREATED_WITH = {
    "format-version": "2",
    # Else there is a manifest and a file of metadata for each transaction, for ever.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
}

_NAME = re.compile(r"[^.]+(\.[^.]+)+")


@dataclass(frozen=True)
class Iceberg:
    """An Iceberg table.

        deliver(delay_by_carrier, to=Iceberg("shop.delays", catalog="prod", properties={"uri": dg.EnvVar("CATALOG")}))

    `table` is its namespace and name. `catalog` and `properties` are those of `pyiceberg.catalog.load_catalog`; each
    property may be a `dg.EnvVar`, and what pyiceberg's own configuration has need not be repeated. The namespace and
    the table are made if they are missing.
    """

    table: str
    catalog: str = "default"
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.table):
            raise InvalidPipelineError(f"a table has a namespace and a name: 'shop.delays'. table={self.table!r}")

    @property
    def kind(self) -> str:
        return "iceberg"

    @property
    def address(self) -> str:
        uri = self.properties.get("uri")
        where = [] if uri is None else [public_address(resolve(uri)).rstrip("/")]
        return "/".join([*where, self.catalog, self.table])

    @property
    def table_name(self) -> str:
        return f"{self.catalog}.{self.table}"

    def check_mode(self, mode: DeliveryMode) -> None:
        """Both modes are supported."""

    def check(self, table: DeliveredTable) -> None:
        for column in table.columns:
            _check_type(column.name, column.type)

    def open(self, delivery: str, table: DeliveredTable) -> "IcebergSession":
        return IcebergSession(self, delivery, table)


class IcebergSession:
    """One loaded table, whose mark has the fence of this session."""

    def __init__(self, to: Iceberg, delivery: str, table: DeliveredTable) -> None:
        self._to, self._delivery, self._table = to, delivery, table
        self.position: str | None = None
        self._fence, self._difference = 0, Difference()
        with self._errors():
            self._catalog = _catalog(to)
        try:
            with self._errors():
                self._iceberg = self._open_table()
        except BaseException:
            self._catalog.close()
            raise

    def __enter__(self) -> "IcebergSession":
        return self

    def __exit__(self, *error: object) -> None:
        self._catalog.close()

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`. Holds a piece of the rows at a time, and of an upsert the keys and one data file."""
        if transaction.after != self.position:
            raise self._moved_error(transaction)
        self._difference.check(self._to.address, replaces=transaction.replaces)
        keys, added = list[pa.RecordBatch](), list["DataFile"]()
        with self._errors():
            metadata = self._begin().table_metadata
        # Cast to the table's types: Iceberg stores an 8-bit integer as 32 bits.
        there = metadata.schema().as_arrow()
        columns = pa.schema([there.field(name) for name in self._table.columns.names])
        try:
            for piece in pieces(self._rows(transaction, columns, keys), columns):
                with self._errors():
                    added += write_files(metadata, self._iceberg.io, piece)
        except BaseException:
            delete_files(self._iceberg, added)  # no snapshot refers to them
            raise
        with self._errors():
            self._commit(transaction, added, keys)
        self.position, self._difference = transaction.until, Difference()

    def _begin(self) -> "IcebergTransaction":
        """A transaction in which the table has the columns that are delivered."""
        missing = [self._table.columns.field(name) for name in self._difference.missing]
        other = [name for name in self._difference.columns if name in self._table.columns.names]
        wanted = pa.schema([*missing, *map(self._table.columns.field, other)])
        return with_columns(self._iceberg, self._difference.columns, wanted)

    def _rows(
        self, transaction: Transaction, columns: pa.Schema, keys: list[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """The rows to add, with the types of `columns`. `keys` collects the keys whose old rows must go."""
        for batch in transaction.rows:
            if self._table.key and not transaction.replaces:
                keys.append(batch.select(list(self._table.key)))
            rows = batch if self._table.mode is DeliveryMode.APPEND else upserted(batch)
            if rows.num_rows:
                yield rows.cast(columns)

    def _commit(self, transaction: Transaction, added: "list[DataFile]", keys: list[pa.RecordBatch]) -> None:
        for _ in range(_ATTEMPTS):
            removed, kept = list["DataFile"](), list["DataFile"]()
            if transaction.replaces:
                removed = [task.file for task in self._iceberg.scan().plan_files()]
            elif keys:
                removed, kept = rewritten(self._iceberg, self._of_table(keys))
            try:
                commit(self._begin(), self._delivery, Mark(self._fence, transaction.until), added + kept, removed)
                return
            except ConflictError:
                delete_files(self._iceberg, kept)
            found = mark_of(self._iceberg, self._delivery)
            if found is None or (found.fence, found.position) != (self._fence, self.position):
                delete_files(self._iceberg, added)
                raise self._moved_error(transaction)
            self._check_not_rolled_back(found, self._iceberg)
            if self._difference != Difference():
                break  # the files name columns by id, and an id may be another column now
        delete_files(self._iceberg, added)
        raise self._busy()

    def _of_table(self, keys: list[pa.RecordBatch]) -> pa.Table:
        there = self._iceberg.schema().as_arrow()
        return pa.Table.from_batches(keys).cast(pa.schema([there.field(name) for name in self._table.key]))

    def _open_table(self) -> "Table":
        """The table, with the fence of this session, and every column that is delivered."""
        for _ in range(_ATTEMPTS):
            table = self._create_table()
            found = mark_of(table, self._delivery)
            self._check(table, found)
            self._fence = 1 if found is None else found.fence + 1
            self.position = None if found is None else found.position
            self._difference = self._compare(table)
            self._difference.check(self._to.address, replaces=may_replace(self._table))
            missing = () if self._difference.misfits else self._difference.missing
            begun = with_columns(table, (), pa.schema([self._table.columns.field(name) for name in missing]))
            try:
                commit(begun, self._delivery, Mark(self._fence, self.position))
            except ConflictError:
                continue
            if missing:
                self._difference = Difference()
            return table
        raise self._busy()

    def _create_table(self) -> "Table":
        name = self._to.table
        if not self._catalog.table_exists(name):
            self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            # A column that the stream drops one day must not be required.
            columns = pa.schema([column.with_nullable(True) for column in self._table.columns])
            self._catalog.create_table_if_not_exists(name, columns, properties=_CREATED_WITH)
        return self._catalog.load_table(name)

    def _check(self, table: "Table", found: Mark | None) -> None:
        if table.format_version < 2:
            raise InvalidPipelineError(
                "a table of format version 1 has no sequence numbers to detect a rollback by: upgrade it to 2. "
                f"destination={self._to.address}"
            )
        if found is not None and found.position is not None:
            self._check_not_rolled_back(found, table)
        elif any(task.file.record_count for task in table.scan().plan_files()):
            raise InvalidPipelineError(
                "a delivery begins with an empty table, and this one has rows that it has not written: empty it, or "
                f"name another. destination={self._to.address}, delivery={self._delivery}"
            )

    def _compare(self, table: "Table") -> Difference:
        there = {column.name: ColumnThere(type_text(column), column.required) for column in table.schema().fields}
        return difference(self._table, column_types(self._table.columns), there)

    def _check_not_rolled_back(self, found: Mark, table: "Table") -> None:
        """Raise `IncompatibleStateError` if the table was rolled back: that removes rows, but leaves the position."""
        if was_rolled_back(table, found):
            raise IncompatibleStateError(
                "the table was rolled back to an older snapshot, which takes back rows that were delivered but not the "
                "position: nothing was written. Make a snapshot of this delivery's current again, or "
                f"{start_over(self._delivery, self._table)}. destination={self._to.address}, "
                f"sequence_number={found.sequence}"
            )

    def _moved_error(self, transaction: Transaction) -> PositionMovedError:
        return PositionMovedError(
            "another delivery has taken over, or has moved the position: this one has committed nothing. "
            f"destination={self._to.address}, delivery={self._delivery}, after={transaction.after}"
        )

    def _busy(self) -> DestinationUnavailableError:
        return DestinationUnavailableError(
            f"other writers committed first each time: nothing was committed. destination={self._to.address}, "
            f"attempts={_ATTEMPTS}"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The errors of pyiceberg, catalog clients and file systems have no common base class."""
        with secrets_hidden(self._to.properties):
            try:
                yield
            except CheckpointError:
                raise
            except Exception as error:
                text = without_secrets(f"{type(error).__name__}: {error}", self._to.properties)
                raise destination_error(
                    _fault(error, text),
                    "the request to Iceberg failed, or its reply was lost: check that catalog and files can be "
                    "reached.",
                    destination=self._to.address,
                    reason=text,
                ) from error


def _fault(error: Exception, text: str) -> Fault:
    # A table that was made again under its name: the next session finds it without a position.
    if "Table UUID does not match" in text:
        return Fault.NO_ANSWER
    return Fault.PERSON if isinstance(error, TypeError | ValueError) else fault_by_text(text)


def _catalog(to: Iceberg) -> "Catalog":
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
    except ImportError as error:
        raise OutsideCodeError(
            "delivering to Iceberg needs its library: pip install 'dagster-ckpt[iceberg]'"
        ) from error
    try:
        return load_catalog(to.catalog, **connection_options(to.properties))
    except (NotInstalledError, ImportError) as error:
        raise OutsideCodeError(
            "this catalog needs an extra of pyiceberg, or a driver: pip install 'pyiceberg[sql-postgres]', for "
            f"example. destination={to.address}, reason={error}"
        ) from error


_TYPES = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
    pa.time64("us"),
)


def _check_type(column: str, kind: pa.DataType) -> None:
    """Raise `InvalidPipelineError` for a type that has no lossless counterpart."""
    kinds = pa.types
    if kind in _TYPES or kinds.is_fixed_size_binary(kind):
        return
    if kinds.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return
    if kinds.is_timestamp(kind) and kind.unit != "ns" and kind.tz in {None, "UTC"}:
        return
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        _check_type(column, kind.value_type)
    elif kinds.is_map(kind):
        _check_type(column, kind.key_type)
        _check_type(column, kind.item_type)
    elif kinds.is_struct(kind):
        for each in kind.fields:
            _check_type(f"{column}.{each.name}", each.type)
    else:
        raise InvalidPipelineError(
            f"Iceberg has no column that holds this type without loss: cast it in the stream. column={column}, "
            f"type={kind}"
        )
