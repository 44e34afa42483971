"""What a process function may declare: each error names the part, the reason, and what to do."""

import re
from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.process.function import ProcessFunction
from dagster_ckpt.operators.process.process_tables import OWN_COLUMNS
from dagster_ckpt.operators.process.state_kinds import ListState, StateKind, ValueState
from dagster_ckpt.operators.process.user_state.list_state import KEY
from dagster_ckpt.operators.process.user_state.value_state import PRESENT
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.late_rows import check_late
from dagster_ckpt.protocol.manifest.manifest import InputSpec

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_TIMES_US_MAX = 2**63 - 1


def check_process(
    function: object,
    keys: tuple[str, ...],
    source: InputSpec,
    event_time: str | None,
    late: str,
    expire_after_us: int | None,
) -> ProcessFunction:
    """The function, if it is valid for this stream. Raises `InvalidPipelineError`."""
    function = check_function(function)
    if not keys:
        raise InvalidPipelineError(f"state is kept by key: call key_by(column, ...) before process. {_of(function)}")
    pipeline_checks.check_keys(keys, source.schema)
    pipeline_checks.check_state_names(keys, (*OWN_COLUMNS, KEY, PRESENT))
    _check_rows(source.schema, function)
    pipeline_checks.check_event_time(event_time, source.schema)
    check_late(late, source.schema)
    _check_output(function, keys, source.schema)
    _check_state(function, keys)
    _check_timers(function, event_time)
    if expire_after_us is not None:
        _check_expiry(function, event_time, expire_after_us)
    return function


def check_function(function: object) -> ProcessFunction:
    """The function, if it is a `ProcessFunction`."""
    if isinstance(function, type):
        raise InvalidPipelineError(f"give process an object, not its class: {function.__name__}(). got={function!r}")
    if not isinstance(function, ProcessFunction):
        raise InvalidPipelineError(
            f"give process an object whose class is a ProcessFunction. got={type(function).__name__}"
        )
    return function


def _check_rows(rows: pa.Schema, function: ProcessFunction) -> None:
    for name in rows.names:
        if rows.names.count(name) > 1:
            raise InvalidPipelineError(
                "a process function receives all columns, and several have this name: rename or drop all but one. "
                f"column={name}, {_of(function)}"
            )
    for field in rows:
        if _holds_views(field.type):
            raise InvalidPipelineError(
                "rows cannot be chosen from a list view: cast it to a list. "
                f"column={field.name}, type={field.type}, {_of(function)}"
            )


def _check_output(function: ProcessFunction, keys: tuple[str, ...], rows: pa.Schema) -> None:
    output: object = function.output
    if not isinstance(output, pa.Schema):
        raise InvalidPipelineError(
            f"`output` declares the output columns: make it a pyarrow.schema. output={output!r}, {_of(function)}"
        )
    if not output.names:
        raise InvalidPipelineError(f"a table has at least one column: declare one. output=(), {_of(function)}")
    pipeline_checks.check_columns(output)
    pipeline_checks.check_storable(output)
    _check_names("of=output", [name for name in output.names if name not in keys], function)
    for field in output:
        if not _is_writable(field.type):
            raise InvalidPipelineError(
                "the stream's table has plain and nested values and dictionaries, no other encodings, no intervals and "
                f"no extension types: cast it. of=output, column={field.name}, type={field.type}, {_of(function)}"
            )
    for name in output.names:
        if name in keys and output.field(name).type != rows.field(name).type:
            raise InvalidPipelineError(
                "a key column is emitted unchanged: declare it with its type, or give the output another name. "
                f"column={name}, type={rows.field(name).type}, declared={output.field(name).type}, {_of(function)}"
            )


def _check_state(function: ProcessFunction, keys: tuple[str, ...]) -> None:
    declared: object = function.state
    if not isinstance(declared, Mapping):
        raise InvalidPipelineError(
            f"`state` is a dict of names, each with a ValueState or a ListState. state={declared!r}, {_of(function)}"
        )
    for name, kind in declared.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidPipelineError(
                "name a state in small letters, digits and _, a letter first, at most 64 in all. "
                f"state={name!r}, {_of(function)}"
            )
        if not isinstance(kind, ValueState | ListState) or not isinstance(kind.schema, pa.Schema):
            raise InvalidPipelineError(
                "declare a state as ValueState(pa.schema([...])) or ListState(pa.schema([...])). "
                f"state={name}, got={kind!r}, {_of(function)}"
            )
        _check_kind(name, kind, keys, function)


def _check_kind(name: str, kind: StateKind, keys: tuple[str, ...], function: ProcessFunction) -> None:
    pipeline_checks.check_columns(kind.schema)
    _check_names(f"state={name}", kind.schema.names, function)
    for field in kind.schema:
        if field.name.casefold() in {key.casefold() for key in keys}:
            raise InvalidPipelineError(
                "state always has the key columns: leave this one out, or choose another name. "
                f"state={name}, column={field.name}, {_of(function)}"
            )
        if not _is_storable(field.type):
            raise InvalidPipelineError(
                "state holds plain and nested values, no encodings and no extension types: declare the plain "
                f"type. state={name}, column={field.name}, type={field.type}, {_of(function)}"
            )


def _check_names(what: str, names: list[str], function: ProcessFunction) -> None:
    for name in names:
        if not name or name.startswith("_"):
            raise InvalidPipelineError(
                f"a name that begins with _ is the engine's own: choose another. {what}, column={name}, {_of(function)}"
            )


def _check_timers(function: ProcessFunction, event_time: str | None) -> None:
    within: object = function.timers_within
    has_method = type(function).on_watermark is not ProcessFunction.on_watermark
    if within is None and not has_method:
        return
    if within is None:
        raise InvalidPipelineError(
            "on_watermark is called for timers, and the function declares none: give its class "
            f"`timers_within`, such as timedelta(minutes=10), or leave on_watermark out. {_of(function)}"
        )
    if not isinstance(within, timedelta) or within < timedelta(0):
        raise InvalidPipelineError(
            f"timers are set for some time after a row: give `timers_within` as a timedelta, not below zero. "
            f"timers_within={within!r}, {_of(function)}"
        )
    if within // timedelta(microseconds=1) > _TIMES_US_MAX:
        raise InvalidPipelineError(
            "`timers_within` does not fit into 64 bits of microseconds: give a shorter one. "
            f"timers_within={within}, {_of(function)}"
        )
    if not has_method:
        raise InvalidPipelineError(
            f"timers are for on_watermark: write it, or leave `timers_within` out. {_of(function)}"
        )
    if event_time is None:
        raise InvalidPipelineError(
            "timers go by event time: give the stream one by with_watermark(column, delay). "
            f"timers_within={within}, {_of(function)}"
        )


def _check_expiry(function: ProcessFunction, event_time: str | None, expire_after_us: int) -> None:
    if event_time is None:
        raise InvalidPipelineError(
            "state expires by event time: give the stream one by with_watermark(column, delay), or leave expire_after "
            f"out. expire_after_us={expire_after_us}, {_of(function)}"
        )
    if expire_after_us <= 0:
        raise InvalidPipelineError(
            f"state is kept for some time: give an expire_after above zero. expire_after_us={expire_after_us}, "
            f"{_of(function)}"
        )
    if not function.state:
        raise InvalidPipelineError(f"there is no state that could expire: leave expire_after out. {_of(function)}")


def _is_storable(type_: pa.DataType) -> bool:
    if _is_nest(type_):
        return all(map(_is_storable, _within(type_)))
    kinds = pa.types
    is_text = kinds.is_string(type_) or kinds.is_large_string(type_)
    is_binary = kinds.is_binary(type_) or kinds.is_large_binary(type_) or kinds.is_fixed_size_binary(type_)
    return bool(is_text or is_binary or kinds.is_primitive(type_) or kinds.is_decimal(type_) or kinds.is_null(type_))


def _is_writable(type_: pa.DataType) -> bool:
    if _is_nest(type_):
        return all(map(_is_writable, _within(type_)))
    if pa.types.is_dictionary(type_):
        return _is_writable(type_.value_type)
    return _is_storable(type_) and not pa.types.is_interval(type_)


def _is_nest(type_: pa.DataType) -> bool:
    kinds = pa.types
    is_list = kinds.is_list(type_) or kinds.is_large_list(type_) or kinds.is_fixed_size_list(type_)
    return bool(is_list or kinds.is_struct(type_) or kinds.is_map(type_))


def _holds_views(type_: pa.DataType) -> bool:
    if pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
        return True
    return any(map(_holds_views, _within(type_)))


def _within(type_: pa.DataType) -> list[pa.DataType]:
    """The types that a nested type is made of."""
    return [type_.field(index).type for index in range(type_.num_fields)]


def _of(function: ProcessFunction) -> str:
    return f"operator=process, function={type(function).__name__}"
