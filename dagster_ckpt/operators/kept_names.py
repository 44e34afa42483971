"""A step under the names that its state has, where the code has new names for some columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dagster_ckpt.operators import process
from dagster_ckpt.operators.operator import KEYS, Operator
from dagster_ckpt.operators.registry import rebuild
from dagster_ckpt.operators.rows import changes_from, deduplicate
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.ranked.order_by import order_columns
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

Own = Mapping[str, str]
"""Names in the code, each with the one that the state has; a name that is not there is the same in both."""

_LISTS = ("row_key", "input_key", "event_times", "sequence")
"""The parameters that are lists of columns, or None."""
_NAMES = ("event_time", "rank", "time")
"""The parameters that are a column, or None."""
_FUNCTIONS = ("aggregates", "functions")
"""The parameters that are functions of columns, each with the name of its result."""


def with_own_names(step: Operator | AppendOnly, own: Own, code: object) -> OperatorStep | None:
    """The step under the names that its state has, with an output under those of the code.

    `code` is the user's, under the state's names (`own_code`). None where it has no such form: where its rows
    are in files under the code's names, or two columns would be one.
    """
    pipeline = step.pipeline
    if isinstance(step, AppendOnly) or pipeline.operator == process.NAME:
        return None
    inner = rebuild(_under(pipeline, own), code)
    wanted = [own.get(name, name) for name in pipeline.output.names]
    if isinstance(inner, AppendOnly) or inner.pipeline.output.names != wanted:
        return None  # such as a join whose two keys have one name now
    return inner.with_names(dict(zip(pipeline.output.names, wanted, strict=True)))


def own_code(code: object, own: Own) -> object:
    """The user's code of a step, under the names that the state has: functions by the name of their aggregate."""
    return {own.get(name, name): function for name, function in code.items()} if isinstance(code, Mapping) else code


def _under(pipeline: Pipeline, own: Own) -> Pipeline:
    """The fingerprint under other names. The operator derives its state tables again when it is built from it."""
    return replace(
        pipeline,
        inputs=tuple(_input(each, own) for each in pipeline.inputs),
        keys=tuple(own.get(key, key) for key in pipeline.keys),
        parameters={name: _parameter(pipeline, name, value, own) for name, value in pipeline.parameters.items()},
        output=_schema(pipeline.output, own),
    )


def _input(read: InputSpec, own: Own) -> InputSpec:
    """It remembers the code's names: the output, which has both too, may lack a column that is only read."""
    columns = tuple((own[name], name) for name in read.schema.names if own.get(name, name) != name)
    return replace(read, schema=_schema(read.schema, own), columns=columns)


def _schema(schema: pa.Schema, own: Own) -> pa.Schema:
    return pa.schema([field.with_name(own.get(field.name, field.name)) for field in schema])


def _parameter(pipeline: Pipeline, name: str, value: Any, own: Own) -> Any:
    """A parameter under other names. The text of a condition stays: its names are those that Spark evaluates."""

    def of(column: Any) -> Any:
        return own.get(column, column)

    if value is None:
        return None
    if name == "by":
        return _order(pipeline, value, of)
    if name in _LISTS or (name == "ties" and pipeline.operator == changes_from.NAME):
        return list(map(of, value))
    if name == KEYS:
        return [list(map(of, keys)) for keys in value]
    if name in _FUNCTIONS:
        return [_function(each, of) for each in value]
    return of(value) if name in _NAMES else value


def _order(pipeline: Pipeline, by: Sequence[str], of: Callable[[str], str]) -> list[str]:
    """The columns that order rows: names, or terms as in SQL."""
    if pipeline.operator == deduplicate.NAME:
        return list(map(of, by))
    columns = order_columns(pipeline.operator, by, pipeline.inputs[0].schema)
    return [replace(column, name=of(column.name)).spelling() for column in columns]


def _function(spelled: Mapping[str, Any], of: Callable[[Any], Any]) -> dict[str, Any]:
    """An aggregate, or a function over a partition, as plain JSON values."""
    named = {name: of(spelled[name]) for name in ("name", "column", "by", "other") if name in spelled}
    several = {} if spelled.get("columns") is None else {"columns": list(map(of, spelled["columns"]))}
    return {**spelled, **named, **several}
