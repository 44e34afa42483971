"""The formats in which sources send the changes of a table, each brought into one form.

A row then has the columns of the table, `KIND`, the columns that order changes and, where tombstones expire, its time.
An update that changes the key is two rows: a delete of the old key and an insert of the new one.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import and_, or_

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, IntegralType, LongType, StringType, StructField, StructType

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.operators.rows.changes_from import DELETE, KIND, NO_ROW, PUT, TRUNCATE, UNORDERED, UNREADABLE

CHANGED_AT = "_changed_at"
"""The time of a change."""
_STREAMED = "_streamed"
"""Debezium: 0 for a row of a snapshot, which is older than any change of its key, else 1.

Not by its position: a transaction that was open at PostgreSQL's snapshot has changes at positions before it, which are
not in it, and come after it.
"""
_IS_PUT = "_is_put"
"""Delta: 0 for a row that goes, which is older than one that comes in the same commit, else 1."""
_OFFSET = "offset"
"""Kafka's number of a record in its partition."""
_VALUE = "value"
_UNREADABLE = "_query_error"
"""Whether the JSON of an event could not be parsed."""


def _number(position: Column) -> Column:
    """A position that is a number, or the text of one; null for anything else."""
    return position.try_cast("long")


def _file_number(file: Column) -> Column:
    """The number after the last dot of a log file's name: `mysql-bin.1000000` comes after `mysql-bin.999999`."""
    return F.regexp_extract(file, r"\.([0-9]+)$", 1).try_cast("long")


def _transaction_number(gtid: Column) -> Column:
    """The last number of MariaDB's `domain-server-number`, which all servers of a domain share; null for another."""
    return F.regexp_extract(gtid, "^[0-9]+-[0-9]+-([0-9]+)$", 1).try_cast("long")


def _text(position: Column) -> Column:
    """A position of fixed width, whose texts have the order of its values."""
    return position


@dataclass(frozen=True)
class _Position:
    """A field of Debezium's `source` that has a position: its type in the JSON, and how its values are compared."""

    type: DataType
    compared: Callable[[Column], Column]


_SEQUENCE = {
    "lsn": _Position(LongType(), _number),  # PostgreSQL
    "scn": _Position(StringType(), _number),  # Oracle
    "file": _Position(StringType(), _file_number),  # MySQL and MariaDB, with pos and row
    "pos": _Position(LongType(), _number),
    "row": _Position(IntegerType(), _number),
    "commit_lsn": _Position(StringType(), _text),  # SQL Server and Db2, with the next two
    "change_lsn": _Position(StringType(), _text),
    "event_serial_no": _Position(LongType(), _number),
}
"""Fields of Debezium's `source` that order changes. Each connector fills some of them."""
_POSITIONS = {**_SEQUENCE, "gtid": _Position(StringType(), _transaction_number)}
"""All positions of `source` that are known. `gtid` is for `sequence=` alone: each domain has numbers of its own."""
_SOURCE = {
    **{name: position.type for name, position in _POSITIONS.items()},
    **dict.fromkeys(("ts_ms", "ts_us", "ts_ns"), LongType()),
}
"""The fields of `source` that are parsed."""

_PUTS = ("c", "create", "i", "insert", "r", "read", "u", "update", "upsert")
_DELETES = ("d", "delete")


class Format(StrEnum):
    """How changes are written."""

    DEBEZIUM = "debezium"
    DELTA_CDF = "delta-cdf"
    OP_COLUMN = "op-column"


@dataclass(frozen=True)
class Wanted:
    """The user's options, by their names in `changes_from`. `timed`: each change needs its time."""

    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    schema: str | StructType | None
    op: str
    exclude: tuple[str, ...]
    time: str | None
    timed: bool


@dataclass(frozen=True)
class ChangeRows:
    """Changes in the one form: which columns the table has, and which order the changes."""

    frame: DataFrame
    columns: tuple[str, ...]
    sequence: tuple[str, ...]
    ties: tuple[str, ...] = ()


def of_debezium(df: DataFrame, wanted: Wanted) -> ChangeRows:
    """Debezium's events: the columns `before`, `after`, `op`, `source`, or JSON in `value` with rows of this schema."""
    unreadable = F.lit(False)
    if wanted.schema is not None:
        df, unreadable = _parse_json(df, wanted.schema), F.col(_UNREADABLE)
    after = _row_type(df.schema, "after")
    op = _column(df.schema, "op", "format='debezium'")
    columns = _table_columns(after, wanted)
    _check_names(_row_type(df.schema, "before"), wanted.keys, "key in before")
    sequence = wanted.sequence or tuple(f"source.{name}" for name in _SEQUENCE if _has(df.schema, f"source.{name}"))
    if not sequence:
        raise InvalidPipelineError(
            "no field of source is known to order changes: name those that do, such as sequence='source.ts_ms'. "
            "sequence=None"
        )
    marks = {_alias(path): _mark(df.schema, path) for path in sequence}
    unordered = reduce(or_, (_has_no_order(df.schema, path) for path in sequence))
    streamed = F.when(op == "r", 0).otherwise(1).cast("tinyint")
    ties: dict[str, Column] = {}
    if wanted.sequence:
        ties[_STREAMED] = streamed
    else:  # of an event without a position it is null too, so that the event is refused
        marks = {
            _STREAMED: F.when(F.coalesce(*(mark.cast("string") for mark in marks.values())).isNotNull(), streamed),
            **marks,
        }
    if _OFFSET not in sequence and _has(df.schema, _OFFSET):
        ties[_alias(_OFFSET)] = _column(df.schema, _OFFSET, "sequence")
    times = {CHANGED_AT: _time(df.schema, wanted.time or "source.ts_ms")} if wanted.timed else {}
    added = {**marks, **ties, **times}
    for name in columns:
        if name in (*added, KIND):
            raise InvalidPipelineError(f"changes_from adds a column of this name: rename yours. column={name}")
    refused = F.when(unreadable, UNREADABLE).when(unordered, UNORDERED)
    changes = F.explode(_changes(after, columns, wanted.keys, op, refused))
    frame = df.select(changes.alias("_change"), *(column.alias(name) for name, column in added.items()))
    return ChangeRows(frame.select("_change.*", *map(_quote, added)), columns, tuple(marks), tuple(ties))


def of_delta(df: DataFrame, wanted: Wanted) -> ChangeRows:
    """The rows of Delta's change data feed, with `_change_type`, `_commit_version` and `_commit_timestamp`."""
    kind = _column(df.schema, "_change_type", "format='delta-cdf'")
    comes, goes = kind.isin("insert", "update_postimage"), kind.isin("delete", "update_preimage")
    kinds = F.when(comes, PUT).when(goes, DELETE).otherwise(kind)
    added = ("_change_type", "_commit_version", "_commit_timestamp")
    wanted = replace(wanted, sequence=wanted.sequence or added[1:2], time=wanted.time or added[2])
    ties = {_IS_PUT: F.when(comes, 1).otherwise(0).cast("tinyint")}
    return _of_columns(df, wanted, kinds, added, ties)


def of_op_column(df: DataFrame, wanted: Wanted) -> ChangeRows:
    """Rows of the table, with a column that says what each does: one of `_PUTS` or `_DELETES`, in any case."""
    column = _column(df.schema, wanted.op, "op")
    lower = F.lower(column)
    kinds = F.when(lower.isin(*_PUTS), PUT).when(lower.isin(*_DELETES), DELETE).otherwise(column.cast("string"))
    if not wanted.sequence:
        raise InvalidPipelineError(
            "changes need an order: name the columns with the position in the source's log or the row's version, such "
            "as sequence='version'. sequence=None"
        )
    return _of_columns(df, wanted, kinds, (wanted.op,), {})


def _of_columns(
    df: DataFrame, wanted: Wanted, kinds: Column, left_out: tuple[str, ...], ties: Mapping[str, Column]
) -> ChangeRows:
    """Rows that have the columns of the table, besides those that are left out."""
    _check_names(df.schema, wanted.sequence, "sequence")
    columns = _table_columns(StructType([field for field in df.schema.fields if field.name not in left_out]), wanted)
    added = {KIND: kinds, **ties}
    if wanted.timed:
        added[CHANGED_AT] = _time(df.schema, wanted.time)
    for name in df.columns:
        if name in added:
            raise InvalidPipelineError(f"changes_from adds a column of this name: rename yours. column={name}")
    needed = map(_quote, dict.fromkeys((*columns, *wanted.sequence)))
    frame = df.select(*needed, *(column.alias(name) for name, column in added.items()))
    return ChangeRows(frame, columns, wanted.sequence, tuple(ties))


def _parse_json(df: DataFrame, schema: str | StructType) -> DataFrame:
    """The JSON in `value`, with or without a schema around each event; Kafka's tombstones, which are null, left out."""
    value = _column(df.schema, _VALUE, "format='debezium' with schema=").cast("string")
    row = _row_of(schema)
    source = StructType([StructField(name, kind) for name, kind in _SOURCE.items()])
    fields = [
        StructField("before", row),
        StructField("after", row),
        StructField("op", StringType()),
        StructField("source", source),
        StructField("ts_ms", LongType()),
    ]
    whole = StructType([*fields, StructField("payload", StructType(fields)), StructField(_UNREADABLE, StringType())])
    json = F.from_json(value, whole, {"columnNameOfCorruptRecord": _UNREADABLE})
    others = [name for name in df.columns if name != _VALUE]
    for name in others:
        if name in (*(field.name for field in fields), _UNREADABLE):
            raise InvalidPipelineError(
                f"the events in the column value have a field of this name: drop the column. column={name}"
            )
    parsed = df.where(value.isNotNull()).select(*map(_quote, others), json.alias("_json"))
    events = (F.coalesce(f"_json.payload.{each.name}", f"_json.{each.name}").alias(each.name) for each in fields)
    unreadable = F.col("_json").isNull() | F.col(f"_json.{_UNREADABLE}").isNotNull()
    return parsed.select(*map(_quote, others), *events, unreadable.alias(_UNREADABLE))


def _row_of(schema: str | StructType) -> StructType:
    """The row that `schema=` describes."""
    row: DataType | None = None
    with suppress(ParseException):
        row = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    if not isinstance(row, StructType):
        raise InvalidPipelineError(
            f"schema has the table's columns with their types, such as 'id long, name string'. schema={schema!r}"
        )
    return row


def _changes(after: StructType, columns: tuple[str, ...], keys: tuple[str, ...], op: Column, refused: Column) -> Column:
    """An array of an event's changes of rows: mostly one, two where an update changes the key.

    `refused` says why an event cannot be applied, and is null for the others.
    """
    no_before, no_after = F.col("before").isNull(), F.col("after").isNull()
    kind = (
        F.when(refused.isNotNull(), refused)
        .when(op.isin("c", "r", "u"), F.when(no_after, NO_ROW).otherwise(PUT))
        .when(op == "d", F.when(no_before, NO_ROW).otherwise(DELETE))
        .when(op == "t", TRUNCATE)
        .otherwise(op)
    )
    old, new = ({key: F.col(f"{side}.{_quote(key)}") for key in keys} for side in ("before", "after"))
    had_key = reduce(and_, (old[key].isNotNull() for key in keys))
    moved = (op == "u") & had_key & reduce(or_, (~old[key].eqNullSafe(new[key]) for key in keys))

    def change(kind: Column, key_of: Mapping[str, Column], other: Callable[[str], Column]) -> Column:
        values = [
            (key_of[field.name] if field.name in keys else other(field.name)).cast(field.dataType).alias(field.name)
            for field in after.fields
            if field.name in columns
        ]
        return F.struct(kind.alias(KIND), *values)

    def of_after(name: str) -> Column:
        return F.col(f"after.{_quote(name)}")

    its_key = {key: F.when(op == "d", old[key]).otherwise(new[key]) for key in keys}
    one = change(kind, its_key, of_after)
    two = F.array(change(F.lit(DELETE), old, lambda _: F.lit(None)), change(kind, new, of_after))
    return F.when(moved & refused.isNull(), two).otherwise(F.array(one))


def _mark(schema: StructType, path: str) -> Column:
    """The column that orders changes by this column or field: of a known position of `source`, in its own order."""
    position, column = _known_position(path), _column(schema, path, "sequence")
    return column if position is None else position.compared(column)


def _has_no_order(schema: StructType, path: str) -> Column:
    """Whether a known position has a value that cannot be compared. MySQL's file is empty in some snapshots."""
    position = _known_position(path)
    if position is None:
        return F.lit(False)
    text = _column(schema, path, "sequence").cast("string")
    return F.coalesce((text != "") & position.compared(text).isNull(), F.lit(False))


def _known_position(path: str) -> _Position | None:
    return _POSITIONS.get(path.removeprefix("source.")) if path.startswith("source.") else None


def _table_columns(table: StructType, wanted: Wanted) -> tuple[str, ...]:
    """The columns of the stream's table."""
    _check_names(table, wanted.keys, "key")
    _check_names(table, wanted.exclude, "exclude")
    for name in wanted.exclude:
        if name in wanted.keys:
            raise InvalidPipelineError(f"the table has its key: leave the column in. column={name}, use=exclude")
    return tuple(name for name in table.names if name not in wanted.exclude)


def _time(schema: StructType, path: str | None) -> Column:
    """The time of a change; a number is milliseconds since 1970."""
    if path is None:
        raise InvalidPipelineError(
            "tombstones expire by the time of a delete: name the column that has it, time=. time=None"
        )
    column = _column(schema, path, "time")
    return F.timestamp_millis(column) if isinstance(_column_type(schema, path, "time"), IntegralType) else column


def _row_type(schema: StructType, name: str) -> StructType:
    type_ = _column_type(schema, name, "format='debezium'")
    if not isinstance(type_, StructType):
        raise InvalidPipelineError(
            "a Debezium event has the row in a struct: parse it, or give its columns as schema= where the column value "
            f"has JSON. column={name}, type={type_.simpleString()}"
        )
    return type_


def _column(schema: StructType, path: str, use: str) -> Column:
    """The column, or the field of a struct, `source.lsn`. Raises `InvalidPipelineError` where there is none."""
    _column_type(schema, path, use)
    return F.col(_quote(path) if path in schema.names else ".".join(map(_quote, path.split("."))))


def _column_type(schema: StructType, path: str, use: str) -> DataType:
    if path in schema.names:
        return schema[path].dataType
    name, _, field = path.partition(".")
    if field and name in schema.names:
        within = schema[name].dataType
        if isinstance(within, StructType):
            return _column_type(within, field, use)
    raise _missing(schema, path, use)


def _check_names(schema: StructType, names: tuple[str, ...], use: str) -> None:
    for name in names:
        if name not in schema.names:
            raise _missing(schema, name, use)


def _missing(schema: StructType, name: str, use: str) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"the changes have no such column.{did_you_mean(name, schema.names)} column={name}, use={use}, "
        f"columns={', '.join(schema.names)}"
    )


def _has(schema: StructType, path: str) -> bool:
    try:
        _column_type(schema, path, "")
    except InvalidPipelineError:
        return False
    return True


def _alias(path: str) -> str:
    return "_" + path.replace(".", "_")


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


FORMATS: Mapping[Format, Callable[[DataFrame, Wanted], ChangeRows]] = {
    Format.DEBEZIUM: of_debezium,
    Format.DELTA_CDF: of_delta,
    Format.OP_COLUMN: of_op_column,
}
