"""A folder of Parquet files, on any store that checkpoints may be on: for readers without this package.

    _manifest/<number>.json     what one transaction has added: {"position": ..., "files": [{"path", "rows", "bytes"}],
                                "columns": {"carrier": "string", ...}}
    data/<number>-<nonce>-<n>.parquet

The manifest is the commit: one atomic create of the next number, which of two deliveries only one gets. A file that no
manifest names does not count; a crash before the create leaves such files, and the next session deletes them. Opening
creates a manifest too, without files: it takes the number that an earlier session needs for its next commit.

`columns` are those of all files up to this manifest, with their Arrow types. A file that was written before a column
came does not have it: it is null there.

A reader lists `_manifest/`, in the order of the names, and reads the files that they name. One that lists `data/` may
see rows twice, or rows that were never committed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.delivery.destination import (
    DeliveredTable,
    DeliveryMode,
    PositionMovedError,
    Transaction,
)
from dagster_ckpt.delivery.schema_changes import ColumnThere, difference
from dagster_ckpt.destinations.faults import destination_error, fault_by_text
from dagster_ckpt.destinations.secrets import public_address, resolve
from dagster_ckpt.errors import CheckpointError, CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.storage.stores.address import check_url, open_store
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.stores.retry import retrying

MANIFESTS, DATA = "_manifest", "data"
_DIGITS = 20


@dataclass(frozen=True)
class ParquetFolder:
    """A folder of Parquet files and manifests that name them.

        deliver(orders, to=ParquetFolder("s3://shop/orders", storage_options={...}), mode="append")

    `url` and `storage_options` are as for the checkpoints; each option may be a `dg.EnvVar`. `file_rows` is about how
    many rows a file has at most.
    """

    url: str
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)
    file_rows: int = 1_000_000

    def __post_init__(self) -> None:
        if not hasattr(self.url, "get_value"):
            check_url(self.url)
        if self.file_rows < 1:
            raise InvalidPipelineError(f"file_rows must be 1 or more. file_rows={self.file_rows}")

    @property
    def kind(self) -> str:
        return "parquet"

    @property
    def address(self) -> str:
        return public_address(resolve(self.url))

    @property
    def table_name(self) -> None:
        """A folder has no such name."""

    def check_mode(self, mode: DeliveryMode) -> None:
        if mode is DeliveryMode.UPSERT:
            raise InvalidPipelineError(
                "files cannot be updated: deliver every change with mode='append', or the table to Delta Lake or a "
                f"database. destination={self.kind}"
            )

    def check(self, table: DeliveredTable) -> None:
        for column in table.columns:
            if _as_read(column) != column.type:
                raise InvalidPipelineError(
                    "Parquet has no column that holds this type without loss: convert it in the stream. "
                    f"column={column.name}, type={column.type}"
                )

    def open(self, delivery: str, table: DeliveredTable) -> "ParquetSession":
        return ParquetSession(self, delivery, table, SystemClock())

    def store(self) -> ObjectStore:
        """The folder."""
        options = {
            name: resolve(value) if isinstance(value, str) else value for name, value in self.storage_options.items()
        }
        return open_store(resolve(self.url), options)


class ParquetSession:
    """A delivery that created the newest manifest of the folder."""

    def __init__(self, to: ParquetFolder, delivery: str, table: DeliveredTable, clock: Clock) -> None:
        self._to, self._delivery, self._table, self._clock = to, delivery, table, clock
        try:
            store = to.store()
            prove_atomic_create(store, clock)
            self._store = retrying(store, clock)
            before = None
            while True:
                self._number, newest = self._newest()
                if newest is not None and newest["delivery"] != delivery:
                    raise InvalidPipelineError(
                        "a delivery begins with an empty folder, and another one has written here: name another. "
                        f"destination={to.address}, delivery={delivery}, other={newest['delivery']}"
                    )
                self.position: str | None = None if newest is None else newest["position"]
                self._columns = self._with_new_columns({} if newest is None else newest["columns"])
                self._opened, before = self._number + 1, None if newest is None else newest["opened"]
                if self._create({"position": self.position, "files": []}):
                    break
            if before is not None:
                self._delete_leftovers(before)
        except StoreUnavailableError as error:
            raise self._unavailable(error) from error

    def __enter__(self) -> "ParquetSession":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""

    def apply(self, transaction: Transaction) -> None:
        """See `Session.apply`."""
        nonce = self._clock.unique()
        try:
            if transaction.after != self.position:
                raise self._moved_error(transaction)
            files = [self._write(nonce, number, rows) for number, rows in enumerate(self._pieces(transaction.rows))]
            if not self._create({"position": transaction.until, "files": files}, nonce):
                raise self._moved_error(transaction)
        except StoreUnavailableError as error:
            raise self._unavailable(error) from error
        self.position = transaction.until

    def _with_new_columns(self, there: Mapping[str, str]) -> dict[str, str]:
        wanted = {column.name: str(column.type) for column in self._table.columns}
        found = difference(self._table, wanted, {name: ColumnThere(kind) for name, kind in there.items()})
        found.check(self._to.address, replaces=False)
        return {**there, **wanted}

    def _pieces(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        batches, count = list[pa.RecordBatch](), 0
        for batch in rows:
            batches.append(batch.cast(self._table.columns))
            count += batch.num_rows
            if count >= self._to.file_rows:
                yield pa.Table.from_batches(batches)
                batches, count = [], 0
        if count:
            yield pa.Table.from_batches(batches)

    def _write(self, nonce: str, piece: int, rows: pa.Table) -> dict[str, object]:
        """A durable file that nothing names yet."""
        buffer = BytesIO()
        pq.write_table(rows, buffer, compression="zstd")
        name, data = f"{DATA}/{_number_text(self._number + 1)}-{nonce}-{piece}.parquet", buffer.getbuffer()
        # The name is unique: if the object exists, a retry of this very call created it.
        self._store.put_if_absent(name, data)
        return {"path": name, "rows": rows.num_rows, "bytes": len(data)}

    def _create(self, what: Mapping[str, object], nonce: str | None = None) -> bool:
        """Commit the next manifest. Returns whether that is this session's, also after a lost reply."""
        number = self._number + 1
        fields = {
            "delivery": self._delivery,
            "opened": self._opened,
            "nonce": nonce or self._clock.unique(),
            "columns": self._columns,
            **what,
        }
        name = _manifest_name(number)
        if not self._store.put_if_absent(name, json.dumps(fields).encode()) and self._read(name) != fields:
            return False
        self._number = number
        return True

    def _newest(self) -> tuple[int, dict[str, Any] | None]:
        """The newest manifest and its number; 0 where there is none. A listing may be stale, so it probes onward."""
        listed = [name for name in self._store.list(MANIFESTS) if name.endswith(".json")]
        number = max((int(name.rpartition("/")[2].removesuffix(".json")) for name in listed), default=0)
        while self._store.exists(_manifest_name(number + 1)):
            number += 1
        return number, self._read(_manifest_name(number)) if number else None

    def _read(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._store.get(name))
        except (ObjectMissingError, ValueError) as error:
            raise CorruptStateError(
                f"a manifest of the folder is missing or damaged: restore it from a backup. object={name}, "
                f"destination={self._to.address}"
            ) from error
        return found

    def _delete_leftovers(self, since: int) -> None:
        """Delete the uncommitted files of sessions since that opening. Safe: none of them can commit any more.

        A file's number is that of the manifest that its session was about to create. A higher one than this opening's
        belongs to a later session, which may have committed it.
        """
        named = set[str]()
        for number in range(since, self._number + 1):
            manifest = self._read(_manifest_name(number))
            named.update(file["path"] for file in manifest["files"])
        end = f"{DATA}/{_number_text(self._number + 1)}"
        for name in list(self._store.list(DATA, after=f"{DATA}/{_number_text(since)}")):
            if name < end and name not in named:
                self._store.delete(name)

    def _moved_error(self, transaction: Transaction) -> PositionMovedError:
        return PositionMovedError(
            "another delivery has taken over, or has moved the position: this one has committed nothing. "
            f"delivery={self._delivery}, destination={self._to.address}, after={transaction.after}"
        )

    def _unavailable(self, error: Exception) -> CheckpointError:
        return destination_error(
            fault_by_text(str(error)),
            "a request to the folder's store failed, or its reply was lost.",
            destination=self._to.address,
            reason=error,
        )


def _as_read(column: pa.Field) -> pa.DataType | None:
    """The column's type after a round trip through a file; None where Parquet cannot write it."""
    buffer = BytesIO()
    try:
        pq.write_table(pa.schema([column]).empty_table(), buffer)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None
    return pq.read_schema(BytesIO(buffer.getvalue())).field(0).type


def _manifest_name(number: int) -> str:
    return f"{MANIFESTS}/{_number_text(number)}.json"


def _number_text(number: int) -> str:
    return str(number).zfill(_DIGITS)
