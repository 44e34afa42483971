"""Delta Lake: one commit of the table's log holds the rows and the position.

The position is in the log's `txn` actions, which survive checkpoints, clean-up, optimize and vacuum. Such an action has
a name and a number, so the text of the position is several of them: `<delivery>/length`, then `<delivery>/0`, `/1` ...
with seven bytes each. `<delivery>/fence` grows with each commit of the delivery, the one that opens it included.

Delta's conflict check refuses a commit if one since the version that the table was loaded at has an action of the same
name. So one handle is used throughout: it is loaded before the position is read, and every commit is made from it.
Given a path, deltalake would load the table again, and the commit would pass the check (1 of 100 races doubled rows).
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    DestinationUnavailableError,
    PositionMovedError,
    Transaction,
    start_over,
)
from dagster_ckpt.delivery.schema_changes import ColumnThere, Difference, difference, may_replace
from dagster_ckpt.destinations.faults import destination_error, fault_by_text
from dagster_ckpt.destinations.secrets import public_address, resolve, secrets_hidden, without_secrets
from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError, InvalidPipelineError, OutsideCodeError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, UPDATE_PREIMAGE

if TYPE_CHECKING:
    from deltalake import DeltaTable

_BYTES = 7
_POSITION_BYTES_MAX = 1 << 20
"""A `txn` action's number has 63 bits."""

_HISTORY_MAX = 100
"""How many commits of the history are searched for a restore by others."""

_MARK = "dagster_ckpt.delivery"


@dataclass(frozen=True)
class DeltaLake:
    """A Delta table.

        deliver(delay_by_carrier, to=DeltaLake("s3://shop/delays", storage_options={...}))

    `uri` is a path or a URL that deltalake knows, `storage_options` are its options; each value may be a `dg.EnvVar`.
    The table is made if it is missing.
    """

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        return "deltalake"

    @property
    def address(self) -> str:
        uri = resolve(self.uri)
        return public_address(uri) if "://" in uri else uri

    @property
    def table_name(self) -> None:
        """Only a catalog gives a table a name."""

    def check_mode(self, mode: DeliveryMode) -> None:
        """Both modes are supported."""

    def check(self, table: DeliveredTable) -> None:
        for column in table.columns:
            _check_type(column.name, column.type)

    def open(self, delivery: str, table: DeliveredTable) -> "DeltaSession":
        return DeltaSession(self, delivery, table)


class DeltaSession:
    """One loaded table. A newer commit that moved the position makes every commit of this session fail."""

    def __init__(self, to: DeltaLake, delivery: str, table: DeliveredTable) -> None:
        self._to, self._delivery, self._table = to, delivery, table
        try:
            with self._errors():
                self._handle = _load(to, table)
                found, fence = self._read(self._handle), self._fence + 1
                loaded = self._handle.version() or 0
                if found is not None:  # before any commit, which would hide it from the next session
                    self._check_not_set_back(loaded)
                # A commit of its own, so that the conflict check refuses those who loaded the table before.
                self._commit_nothing({})
                self._check_fence(fence)
                self._difference = self._compare()
                self._difference.check(to.address, replaces=may_replace(table))
                if self._difference.missing and not self._difference.misfits:
                    self._add(self._difference.missing)
                    self._check_fence(fence + 1)
        except PositionMovedError as error:
            raise DestinationUnavailableError(f"another delivery wrote while this one was opening: {error}") from error
        if found is None and self._has_rows():
            raise InvalidPipelineError(
                "a delivery begins with an empty table, and this one has rows that it has not written: empty it, or "
                f"name another. destination={to.address}, delivery={delivery}"
            )
        if found is not None:
            self._check_not_set_back(loaded)
        self.position = found

    def __enter__(self) -> "DeltaSession":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`."""
        if transaction.after != self.position:
            raise PositionMovedError(
                f"this transaction does not build on the destination's position. destination={self._to.address}, "
                f"after={transaction.after}, position={self.position}"
            )
        self._difference.check(self._to.address, replaces=transaction.replaces)
        rows = _TransactionRows(transaction.rows)
        with self._errors(rows, transaction.until):
            numbers, fence = _numbers_of(transaction.until), self._fence + 1
            if self._table.mode is DeliveryMode.APPEND:
                self._write(rows, "append", numbers)
            elif transaction.replaces:
                self._write(rows.without_kind(), "overwrite", numbers)
            else:
                self._merge(rows, numbers)
            if self._read(self._handle) != transaction.until:  # nothing matched, so Delta made no commit
                self._commit_nothing(numbers)
            self._check_fence(fence)
        self.position = transaction.until

    def _write(self, rows: Iterator[pa.RecordBatch], mode: Any, numbers: Mapping[str, int]) -> None:
        from deltalake import write_deltalake

        columns = self._table.columns
        reader = pa.RecordBatchReader.from_batches(columns, (batch.cast(columns) for batch in rows))
        schema_mode: Any = "overwrite" if self._difference.misfits else "merge"
        properties = self._properties(numbers)
        write_deltalake(self._handle, reader, mode=mode, schema_mode=schema_mode, commit_properties=properties)
        self._difference = Difference()

    def _merge(self, rows: "_TransactionRows", numbers: Mapping[str, int]) -> None:
        columns = self._table.columns.append(pa.field(CHANGE_TYPE, pa.string()))
        # Both rows of an update have the same key, and MERGE refuses two source rows for one target row.
        changes = pa.Table.from_batches(list(rows.without_preimages(columns)), columns)
        if changes.num_rows == 0:
            return
        nulls = any(changes[key].null_count for key in self._table.key)
        equal = "IS NOT DISTINCT FROM" if nulls else "="
        same = " AND ".join(f"t.{_quote(key)} {equal} s.{_quote(key)}" for key in self._table.key)
        values = {_quote(name): f"s.{_quote(name)}" for name in self._table.columns.names}
        gone, there = f"s.{_quote(CHANGE_TYPE)} = '{DELETE}'", f"s.{_quote(CHANGE_TYPE)} <> '{DELETE}'"
        (
            self._handle.merge(
                changes,
                same,
                source_alias="s",
                target_alias="t",
                streamed_exec=False,
                commit_properties=self._properties(numbers),
            )
            .when_matched_delete(gone)
            .when_matched_update(values, there)
            .when_not_matched_insert(values, there)
            .execute()
        )

    def _commit_nothing(self, numbers: Mapping[str, int]) -> None:
        self._handle.create_write_transaction(
            [], "append", self._handle.schema(), commit_properties=self._properties(numbers)
        )
        self._handle.update_incremental()

    def _compare(self) -> Difference:
        from deltalake import Schema

        there = {
            each.name: ColumnThere(str(each.type), required=not each.nullable) for each in self._handle.schema().fields
        }
        wanted = {each.name: str(each.type) for each in Schema.from_arrow(self._table.columns).fields}
        return difference(self._table, wanted, there)

    def _add(self, names: Iterable[str]) -> None:
        from deltalake import Field

        columns = [self._table.columns.field(name).with_nullable(True) for name in names]
        self._handle.alter.add_columns(list(map(Field.from_arrow, columns)), commit_properties=self._properties({}))

    def _check_fence(self, fence: int) -> None:
        """Call after a commit, which has that fence: a handle that has loaded a newer one passes the conflict check."""
        if self._fence != fence:
            raise self._overtaken()

    def _properties(self, numbers: Mapping[str, int]) -> Any:
        from deltalake import CommitProperties
        from deltalake import Transaction as AppTransaction

        # The fence is in each, so that any two commits of the delivery conflict.
        numbered = {**numbers, "fence": self._fence + 1}
        named = [AppTransaction(self._app(name), number) for name, number in numbered.items()]
        return CommitProperties(custom_metadata={_MARK: self._delivery}, app_transactions=named)

    def _read(self, handle: "DeltaTable") -> str | None:
        length = handle.transaction_version(self._app("length"))
        if length is None:
            return None
        if not 0 <= length <= _POSITION_BYTES_MAX:
            raise CorruptStateError(
                "the delivery's position in the table is damaged: restore the table's log from a backup, or deliver "
                f"into another table. length={length}, destination={self._to.address}"
            )
        parts = [handle.transaction_version(self._app(str(part))) for part in range(-(-length // _BYTES))]
        data = b"".join((part or 0).to_bytes(_BYTES, "big") for part in parts)
        return data[:length].decode()

    @property
    def _fence(self) -> int:
        """The fence of the newest commit that the handle has loaded."""
        found: int | None = self._handle.transaction_version(self._app("fence"))
        return found or 0

    def _app(self, name: str) -> str:
        return f"dagster_ckpt/{self._delivery}/{name}"

    def _was_overtaken(self, until: str | None) -> bool:
        """Whether a commit of another session is newer than this one's; a conflict with any other is tried again.

        A commit to `until` whose reply was lost conflicts with itself, as the client's second try (S3). It has the
        next fence. So has another session's first one, which leaves the position as it is.
        """
        from deltalake import DeltaTable

        handle = DeltaTable(self._handle.table_uri, storage_options=_options(self._to))
        newest = handle.transaction_version(self._app("fence")) or 0
        return newest > self._fence + 1 or (newest == self._fence + 1 and self._read(handle) != until)

    def _overtaken(self) -> PositionMovedError:
        return PositionMovedError(
            "another delivery has taken over, or has moved the position: this one has committed nothing. "
            f"destination={self._to.address}, delivery={self._delivery}"
        )

    def _has_rows(self) -> bool:
        counts = pa.table(self._handle.get_add_actions(flatten=True))
        # A writer may leave the count null: such a file counts as one with rows.
        return any(count is None or count > 0 for count in counts["num_records"].to_pylist())

    def _check_not_set_back(self, loaded: int) -> None:
        """Raise if others have undone commits of this delivery, up to the version `loaded`.

        Only the newest such commit counts: a table that was emptied may have been restored since.
        """
        event: dict[str, Any] | None = None
        for commit in self._handle.history(_HISTORY_MAX):
            if commit.get(_MARK) == self._delivery and commit.get("operation") != "RESTORE":
                if commit["version"] > loaded:
                    continue  # this session's own
                if event is None or _restores(event, commit["version"]):
                    return
                break
            if event is None and (commit.get("operation") == "RESTORE" or _empties(commit)):
                event = commit
        if event is not None:
            raise IncompatibleStateError(
                "the table was restored to an older version, emptied or overwritten, which takes back rows that were "
                "delivered but not the position: nothing was written. Restore it to a version since this delivery's "
                f"newest commit, or {start_over(self._delivery, self._table)}. destination={self._to.address}, "
                f"version={event['version']}, operation={event['operation']}"
            )

    @contextmanager
    def _errors(self, rows: "_TransactionRows | None" = None, until: str | None = None) -> Iterator[None]:
        from deltalake.exceptions import CommitFailedError, DeltaError

        secrets = {"uri": self._to.uri, **self._to.storage_options}
        with secrets_hidden(secrets):
            try:
                yield
            except Exception as error:
                if rows is not None and rows.error is not None:
                    raise rows.error from None  # Delta would keep only its text
                if isinstance(error, CommitFailedError) and self._was_overtaken(until):
                    raise self._overtaken() from error
                if isinstance(error, DeltaError | OSError):
                    raise destination_error(
                        fault_by_text(str(error)),
                        "the commit to Delta Lake failed, or its reply was lost.",
                        destination=self._to.address,
                        reason=without_secrets(str(error), secrets),
                    ) from error
                raise


class _TransactionRows(Iterator[pa.RecordBatch]):
    """The rows of a transaction, and the error that reading them has raised."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self.error: Exception | None = None

    def __next__(self) -> pa.RecordBatch:
        try:
            return next(self._rows)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise

    def without_preimages(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in self:
            yield batch.filter(pc.not_equal(batch.column(CHANGE_TYPE), UPDATE_PREIMAGE)).cast(columns)

    def without_kind(self) -> Iterator[pa.RecordBatch]:
        for batch in self:
            yield batch.select([name for name in batch.schema.names if name != CHANGE_TYPE])


def _load(to: DeltaLake, table: DeliveredTable) -> "DeltaTable":
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise OutsideCodeError(
            "delivering to Delta Lake needs its library: pip install 'dagster-ckpt[deltalake]'"
        ) from error
    uri, options = resolve(to.uri), _options(to)
    if not DeltaTable.is_deltatable(uri, options):
        # A column that the stream drops one day must not be required.
        columns = pa.schema([column.with_nullable(True) for column in table.columns])
        DeltaTable.create(uri, columns, mode="ignore", storage_options=options)
    return DeltaTable(uri, storage_options=options)


def _restores(commit: Mapping[str, Any], version: int) -> bool:
    """Whether this commit restores the table as it was at this version or later."""
    parameters = commit.get("operationParameters") or {}
    return commit.get("operation") == "RESTORE" and int(parameters.get("version") or -1) >= version


def _empties(commit: Mapping[str, Any]) -> bool:
    """Whether this commit has removed all rows."""
    operation, parameters = str(commit.get("operation")), commit.get("operationParameters") or {}
    if operation.startswith(("REPLACE TABLE", "CREATE OR REPLACE TABLE", "TRUNCATE")):
        return True
    overwrites = operation == "WRITE" and str(parameters.get("mode")).lower() == "overwrite"
    everywhere = parameters.get("predicate") in {None, "", "[]", '["true"]'}
    return everywhere and (overwrites or operation == "DELETE")


def _options(to: DeltaLake) -> dict[str, str]:
    return {name: resolve(value) for name, value in to.storage_options.items()}


def _numbers_of(position: str) -> dict[str, int]:
    data = position.encode()
    parts = [data[start : start + _BYTES].ljust(_BYTES, b"\0") for start in range(0, len(data), _BYTES)]
    return {"length": len(data), **{str(number): int.from_bytes(part, "big") for number, part in enumerate(parts)}}


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_TYPES = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.large_string(),
    pa.binary(),
    pa.large_binary(),
    pa.date32(),
)


def _check_type(column: str, kind: pa.DataType) -> None:
    """Raise `InvalidPipelineError` for a type that has no lossless counterpart."""
    if kind in _TYPES or pa.types.is_decimal128(kind):
        return
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in {None, "UTC"}:
        return
    if pa.types.is_list(kind):
        _check_type(column, kind.value_type)
    elif pa.types.is_map(kind):
        _check_type(column, kind.key_type)
        _check_type(column, kind.item_type)
    elif pa.types.is_struct(kind):
        for each in kind.fields:
            _check_type(f"{column}.{each.name}", each.type)
    else:
        raise InvalidPipelineError(
            f"Delta Lake has no column that holds this type without loss: cast it in the stream. column={column}, "
            f"type={kind}"
        )
