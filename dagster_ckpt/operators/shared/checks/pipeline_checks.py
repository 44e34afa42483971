"""What a pipeline may be: each error names the column, the reason, and what there is."""

from collections.abc import Iterable

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.lsm.value_hashes import is_hashable
from dagster_ckpt.operators.shared.arrays.value_order import is_orderable
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH


def check_columns(schema: pa.Schema) -> None:
    """Column names are distinct, and none is one that the change log adds."""
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.casefold() in (EPOCH, CHANGE_TYPE):
            raise InvalidPipelineError(f"the change log adds this column itself: rename yours. column={name}")
        if name.casefold() in seen:
            raise InvalidPipelineError(
                "a Spark session that is not case-sensitive could not tell these columns apart: rename one. "
                f"columns={seen[name.casefold()]}, {name}"
            )
        seen[name.casefold()] = name


def check_storable(schema: pa.Schema) -> None:
    """No column has a type that the change log's files cannot hold."""
    for field in schema:
        if _holds_nothing(field.type):
            raise InvalidPipelineError(
                "Parquet cannot hold a struct without fields: give it one, or leave the column out. "
                f"column={field.name}, type={field.type}"
            )


def check_keys(keys: tuple[str, ...], schema: pa.Schema) -> None:
    """At least one key column, each once, of a type in which equal values have equal bytes."""
    if not keys:
        raise InvalidPipelineError("this step needs key columns: call key_by(column, ...) before it. keys=()")
    for key in keys:
        field = check_column(key, "key", schema)
        if keys.count(key) > 1:
            raise InvalidPipelineError(f"a column can be key only once. key={key}")
        if not is_key(field.type):
            raise InvalidPipelineError(
                "keys are integers, strings, binary, booleans, dates, timestamps or decimals: cast this column, or "
                f"choose another. key={key}, type={field.type}"
            )


def check_hashable(schema: pa.Schema, why: str, where: str = "") -> None:
    """Rows with these columns can be looked up; `why` that is needed, and `where` they are, for the error."""
    for field in schema:
        if not is_hashable(field.type):
            raise InvalidPipelineError(
                f"{why}, and values of this type cannot be looked up: cast the column, or leave it out. "
                f"column={field.name}, type={field.type}{where}"
            )


def check_event_time(event_time: str | None, schema: pa.Schema) -> None:
    """The event-time column, if there is one, is a timestamp of microseconds."""
    if event_time is not None:
        type_ = check_column(event_time, "event time", schema).type
        if not (pa.types.is_timestamp(type_) and type_.unit == "us"):
            raise InvalidPipelineError(
                f"event time must be a timestamp: cast the column. column={event_time}, type={type_}"
            )


def check_state_names(keys: Iterable[str], state: Iterable[str]) -> None:
    """No key has the name of a column that the state adds."""
    for key in set(keys).intersection(state):
        raise InvalidPipelineError(f"the state has a column of this name: rename the key before key_by. key={key}")


def check_column(name: str | None, use: str, schema: pa.Schema) -> pa.Field:
    """The input's column of this name; raises `InvalidPipelineError`. `use` is its purpose, for the error."""
    if not isinstance(name, str):
        raise InvalidPipelineError(f"name the column with a string. use={use}, got={name!r}")
    if schema.names.count(name) > 1:
        raise InvalidPipelineError(f"the input has several columns of this name: rename them. column={name}, use={use}")
    if name in schema.names:
        return schema.field(name)
    raise InvalidPipelineError(
        f"the input has no such column.{did_you_mean(name, schema.names)} "
        f"column={name}, use={use}, columns={', '.join(schema.names)}"
    )


def is_number(type_: pa.DataType) -> bool:
    """Whether sums of this type are taken."""
    kinds = pa.types
    return bool(kinds.is_signed_integer(type_) or kinds.is_floating(type_) or kinds.is_decimal128(type_))


def is_key(type_: pa.DataType) -> bool:
    """Whether equal values of this type have equal bytes, so that a key may have it."""
    return is_orderable(type_) and not pa.types.is_floating(type_)


def _holds_nothing(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_) and type_.num_fields == 0:
        return True
    return any(_holds_nothing(type_.field(index).type) for index in range(type_.num_fields))
