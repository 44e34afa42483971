"""A loaded Iceberg table: its mark, its columns, its data files, and a commit that is made once.

Some of pyiceberg's names here are private. `tests/destinations/test_iceberg.py` pins the version that they come from.
"""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table import Transaction as IcebergTransaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import NestedField

_MARK = "dagster_ckpt.delivery"

_NUMBER = re.compile(r"-?\d+: ([^<>]*?): (?:optional|required) ")
"""What Iceberg writes before the type of a nested field."""

_PIECE_BYTES = 128 * 1024 * 1024
"""Rows are written to files in pieces of about this much Arrow memory."""


@dataclass(frozen=True)
class Mark:
    """A delivery's property of the table, in JSON.

    `fence` grows by one each time the delivery is opened; `position` is how far it has come, None before its first
    transaction; `sequence` is the sequence number of the snapshot that wrote the mark.
    """

    fence: int
    position: str | None
    sequence: int = 0


class ConflictError(Exception):
    """Another writer has committed since the table was loaded. Nothing was committed, and the table is loaded again."""


def mark_of(table: "Table", delivery: str) -> Mark | None:
    """The delivery's mark; None if it never opened this table."""
    text = table.properties.get(f"{_MARK}.{delivery}")
    return None if text is None else Mark(**json.loads(text))


def was_rolled_back(table: "Table", mark: Mark) -> bool:
    """Whether the snapshot that wrote the mark is neither the current one nor an ancestor of it.

    False where the ancestors have expired before that is known.
    """
    at = table.current_snapshot()
    while at is not None and at.sequence_number > mark.sequence:
        parent = at.parent_snapshot_id
        at = None if parent is None else table.snapshot_by_id(parent)
        if at is None:
            return False
    return at is None or at.sequence_number < mark.sequence


def column_types(columns: pa.Schema) -> dict[str, str]:
    """Iceberg's type of each column, as it spells it."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    return {column.name: type_text(column) for column in _pyarrow_to_schema_without_ids(columns).fields}


def type_text(column: "NestedField") -> str:
    """The column's type without the ids of nested fields."""
    return _NUMBER.sub(r"\1: ", str(column.field_type))


def with_columns(table: "Table", dropped: Iterable[str], added: pa.Schema) -> "IcebergTransaction":
    """A transaction that drops columns, and adds others, which may reuse the names; existing rows have null there."""
    transaction, dropped = table.transaction(), tuple(dropped)
    if dropped:
        with transaction.update_schema(allow_incompatible_changes=True) as change:
            for name in dropped:
                change.delete_column((name,))
    if added.names:
        with transaction.update_schema() as change:
            change.union_by_name(pa.schema([column.with_nullable(True) for column in added]))
    return transaction


def commit(
    transaction: "IcebergTransaction",
    delivery: str,
    mark: Mark,
    added: "Iterable[DataFile]" = (),
    removed: "Iterable[DataFile]" = (),
) -> None:
    """Commit one snapshot with these files added and removed, and the mark, of which `sequence` is filled in.

    The table is then loaded. Raises `ConflictError`; after any other error it is unknown whether it was committed.
    """
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table.update import AssertTableUUID

    table, removed = transaction._table, tuple(removed)  # noqa: SLF001  (no other way, here and below)
    update = transaction.update_snapshot(
        snapshot_properties={_MARK: delivery, f"{_MARK}.position": mark.position or ""}
    )
    snapshot = update.overwrite() if removed else update.merge_append()
    if removed:
        snapshot.delete_by_predicate(AlwaysTrue())  # the files may be in any manifest
    for file in removed:
        snapshot.delete_data_file(file)
    for file in added:
        snapshot.append_data_file(file)
    snapshot.commit()
    sequence = transaction.table_metadata.last_sequence_number
    transaction.set_properties({f"{_MARK}.{delivery}": json.dumps({**asdict(mark), "sequence": sequence})})
    # `commit_transaction` would try again, whatever the mark is then.
    updates, requirements = transaction._updates, transaction._requirements  # noqa: SLF001
    try:
        table._do_commit(updates, (*requirements, AssertTableUUID(uuid=table.metadata.table_uuid)))  # noqa: SLF001
    except CommitFailedException as error:
        table.refresh()
        if table.snapshot_by_id(snapshot.snapshot_id) is None:
            snapshot._clean_all_uncommitted()  # noqa: SLF001
            raise ConflictError from error
        # A proxy has sent the request twice, and this is the reply to the second.


def pieces(rows: Iterable[pa.RecordBatch], columns: pa.Schema) -> Iterator[pa.Table]:
    """The rows in tables that are large enough for a file, and small enough for memory."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        if size >= _PIECE_BYTES:
            yield pa.Table.from_batches(batches, columns)
            batches, size = [], 0
    if batches:
        yield pa.Table.from_batches(batches, columns)


def write_files(metadata: "TableMetadata", io: "FileIO", rows: pa.Table) -> "list[DataFile]":
    """Data files with these rows, which have the table's types. No snapshot names them yet."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    return list(_dataframe_to_data_files(metadata, rows, io)) if rows.num_rows else []


def rewritten(table: "Table", keys: pa.Table) -> "tuple[list[DataFile], list[DataFile]]":
    """The data files that have a row with one of these keys, and new files with their other rows."""
    removed = list["DataFile"]()
    columns = table.schema().as_arrow()
    # pyiceberg 0.12 cannot compare a partition's null with a value.
    partitioned = {field.source_id for spec in table.specs().values() for field in spec.fields}
    fields = [table.schema().find_field(name) for name in keys.column_names]
    compared = [field.name for field in fields if field.required or field.field_id not in partitioned]

    def rows_to_keep() -> Iterator[pa.RecordBatch]:
        for task in table.scan(row_filter=_range(keys.select(compared))).plan_files():
            # Most files may have none of the keys, and they need not be read whole.
            if pc.any(_is_key(_read(table, task, keys.schema), keys)).as_py():
                rows = _read(table, task, columns)
                removed.append(task.file)
                yield from rows.filter(pc.invert(_is_key(rows.select(keys.column_names), keys))).to_batches()

    new = [file for piece in pieces(rows_to_keep(), columns) for file in write_files(table.metadata, table.io, piece)]
    return removed, new


def delete_files(table: "Table", files: "Iterable[DataFile]") -> None:
    """Delete files that no snapshot refers to. Best effort: those that stay do no harm."""
    for file in files:
        with suppress(Exception):
            table.io.delete(file.file_path)


def _read(table: "Table", task: "FileScanTask", columns: pa.Schema) -> pa.Table:
    """These columns of a data file, without the rows that its delete files name."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = table.schema().select(*columns.names)
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    return scan.to_table([task]).select(columns.names).cast(columns)


def _is_key(rows: pa.Table, keys: pa.Table) -> pa.ChunkedArray:
    """Whether each row is one of the keys. Nulls are equal."""
    # Rows and keys get an integer code each, from the values of the keys; it is refined column by column.
    of_rows, of_keys = pa.scalar(0, pa.int64()), pa.scalar(0, pa.int64())
    for name in keys.column_names:
        values = keys[name].unique()
        count = pa.scalar(len(values), pa.int64())
        of_rows = pc.add(pc.multiply(of_rows, count), pc.index_in(rows[name], values))
        of_keys = pc.add(pc.multiply(of_keys, count), pc.index_in(keys[name], values))
        # Codes are made dense again, or they would overflow.
        values = of_keys.unique()
        of_rows, of_keys = pc.index_in(of_rows, values), pc.index_in(of_keys, values)
        of_rows, of_keys = of_rows.cast(pa.int64()), of_keys.cast(pa.int64())
    return pc.is_valid(of_rows)


def _range(keys: pa.Table) -> "BooleanExpression":
    """A predicate that every key satisfies: files whose statistics exclude it are not read."""
    from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, GreaterThanOrEqual, IsNull, LessThanOrEqual, Or

    found: BooleanExpression = AlwaysTrue()
    for name in keys.column_names:
        values, kinds = keys[name], pa.types
        if kinds.is_date32(values.type) or kinds.is_timestamp(values.type):
            values = values.cast(pa.int32() if kinds.is_date32(values.type) else pa.int64())
        if not (kinds.is_integer(values.type) or kinds.is_large_string(values.type)):
            continue
        ends = pc.min_max(values).as_py()
        within: BooleanExpression = AlwaysFalse()
        if ends["min"] is not None:
            within = And(GreaterThanOrEqual(name, ends["min"]), LessThanOrEqual(name, ends["max"]))
        found = And(found, Or(within, IsNull(name)) if values.null_count else within)
    return found
