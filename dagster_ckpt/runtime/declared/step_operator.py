"""The operator of one step, with the columns and types of what it reads checked."""

import json
from collections.abc import Collection, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.nullability import all_nullable_within
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SourceIdentity
from dagster_ckpt.runtime.declared.step_parts import WHOLE_ROWS, BuildsOperator, DeclaredStep, StepInput, StepRows
from dagster_ckpt.runtime.spark.arrow_schemas import to_arrow_schema
from dagster_ckpt.runtime.task.shard_assignment import HASH

_INSTEAD = {
    "variant": "to_json({column}), and parse_json what you read of it",
    "geometry": "ST_AsBinary({column})",
    "geography": "ST_AsBinary({column})",
    "time": "CAST({column} AS STRING), which keeps the order, or the microseconds of the day as a BIGINT",
}
"""Spark types that Arrow maps to other types, or that do not survive the way back, and what to select instead."""

_WATERMARK = "spark.watermarkDelayMs"
"""What Spark adds to a column by `withWatermark`."""

COLUMNS_MAX = 4_000
"""So many columns may a stream read of all its inputs, and keep in its table; each within a nested column is one."""


def declared_operator(stream: DeclaredStep) -> OperatorStep | AppendOnly:
    """The operator of the stream's last step, before it is known what is read. Raises `InvalidPipelineError`."""
    return build_operator("", stream, [step_input("", each, ()) for each in stream.inputs])


def build_operator(asset: str, stream: DeclaredStep, inputs: Sequence[StepInput]) -> OperatorStep | AppendOnly:
    """The operator of one step."""
    if stream.keys and stream.step is None:
        raise InvalidPipelineError(
            "keys alone do nothing: call aggregate(...) or another step that keeps state after key_by, or leave key_by "
            f"out. asset={asset}, keys={', '.join(stream.keys)}"
        )
    if stream.step is None:
        with naming(asset=asset):
            append = AppendOnly.build(inputs[0].spec)
        _check_width(asset, append.pipeline)
        return append
    with naming(operator=stream.step.name, asset=asset):  # an operator does not know the method that the user called
        operator = OperatorStep.of(stream.step.build(inputs))
    _check_width(asset, operator.pipeline)
    for number, each in enumerate(stream.inputs):
        _check_collations(asset, each, _compared_columns(stream.step, each, first=number == 0))
    return operator


def step_input(asset: str, stream: StepRows, sources: Sequence[SourceIdentity]) -> StepInput:
    """One input of a step, which reads `sources`. Raises `InvalidPipelineError` for columns that a task cannot read."""
    schema = arrow_schema(asset, stream.frame.schema)
    event_time = stream.event_time.column if stream.event_time else None
    with naming(asset=asset):
        pipeline_checks.check_event_time(event_time, schema)
    spec = InputSpec(tuple(sources), schema, work=stream.work)
    return StepInput(spec, stream.keys, event_time, stream.upstream)


def arrow_schema(asset: str, schema: StructType) -> pa.Schema:
    """A DataFrame's columns as Arrow brings them to a task.

    Every column, and every field within one, is nullable: Spark's nullability can change, and does not hold in a null.
    """
    fields = []
    for field in _without_watermarks(schema).fields:
        if (name := _unsupported_type(field.dataType)) is not None:
            raise InvalidPipelineError(
                f"a stream has no {name.upper()} columns, nor such values within others: select "
                f"`{_INSTEAD[name].format(column=field.name)}`. "
                f"asset={asset}, column={field.name}, type={field.dataType.simpleString()}"
            )
        try:
            [arrow] = to_arrow_schema(StructType([field]))
        except (PySparkException, ValueError) as error:  # Arrow itself refuses a null that Spark knows to be there
            raise InvalidPipelineError(
                "Arrow has no such type, so no row of it can reach a task: cast the column or leave it out. "
                f"asset={asset}, column={field.name}, type={field.dataType.simpleString()}"
            ) from error
        if field.name == HASH:
            raise InvalidPipelineError(
                f"this name carries the key's hash: rename the column. asset={asset}, column={field.name}"
            )
        fields.append(arrow.with_nullable(True))
    return all_nullable_within(pa.schema(fields))


def _without_watermarks(schema: StructType) -> StructType:
    """The columns without the delays that Spark keeps with them, at any depth: another delay makes no other column."""
    text = schema.json()
    if _WATERMARK not in text:
        return schema
    return StructType.fromJson(
        json.loads(text, object_hook=lambda each: {name: each[name] for name in each if name != _WATERMARK})
    )


def check_initial(asset: str, frame: DataFrame, initial: object) -> None:
    """The rows that a stream begins with are those of a table, and have the source's columns.

    `asset` is for errors; empty where the asset's function is still at work.
    """
    whose = f"asset={asset}, " if asset else ""
    if not isinstance(initial, DataFrame) or initial.isStreaming:
        raise InvalidPipelineError(
            "initial must be a batch DataFrame: read it with spark.read, not spark.readStream. "
            f"{whose}initial={initial!r}"
        )
    wanted, there = arrow_schema(asset, frame.schema), arrow_schema(asset, initial.schema)
    wrong = [
        f"{field.name}: {field.type}, not {there.field(field.name).type if field.name in there.names else 'missing'}"
        for field in wanted
        if field.name not in there.names or there.field(field.name).type != field.type
    ]
    if wrong or len(there) != len(wanted):
        more = [name for name in there.names if name not in wanted.names]
        raise InvalidPipelineError(
            "the initial rows have other columns than the source: select and cast them. "
            f"{whose}wrong={wrong}, more={more}"
        )


def _check_width(asset: str, pipeline: Pipeline) -> None:
    """No more columns are read, of all inputs together, and none more kept than `COLUMNS_MAX`."""
    read = sum(_width(source.schema) for source in pipeline.inputs)
    kept = _width(pipeline.output)
    if max(read, kept) > COLUMNS_MAX:
        raise InvalidPipelineError(
            "the stream has more columns than Spark plans an epoch of in reasonable time: select fewer, or put those "
            "of one type into an array or a map. "
            f"asset={asset}, columns_read={read}, columns_kept={kept}, columns_max={COLUMNS_MAX}"
        )


def _width(schema: pa.Schema) -> int:
    """How many columns of single values a table has, those within its columns among them."""
    return sum(map(_width_of_column, (field.type for field in schema)))


def _width_of_column(type_: pa.DataType) -> int:
    return sum(_width_of_column(type_.field(index).type) for index in range(type_.num_fields)) or 1


def _unsupported_type(type_: DataType) -> str | None:
    """Spark's name of the first type within `type_` that a stream cannot keep; None: there is none."""
    if (name := type_.typeName()) in _INSTEAD:
        return name
    return next((found for each in _within(type_) if (found := _unsupported_type(each)) is not None), None)


def _compared_columns(step: BuildsOperator, rows: StepRows, *, first: bool) -> Collection[str]:
    """The columns of an input by which the step knows rows from each other. `first`: it is the step's first one."""
    if step.name in WHOLE_ROWS:
        return rows.frame.columns
    return {*rows.keys, *(step.compared_columns if first else ())}


def _check_collations(asset: str, stream: StepRows, compared: Collection[str]) -> None:
    """Refuse text with a collation, at any depth, in columns that are compared: Arrow has no collations."""
    for field in stream.frame.schema.fields:
        collation = _collation_in(field.dataType) if field.name in compared else None
        if collation is not None:
            raise InvalidPipelineError(
                "a step compares text by its bytes, so keys, and what distinct, min, max, first and last compare, must "
                f"be text without a collation: select `{field.name} COLLATE UTF8_BINARY`, or `lower({field.name}) "
                "COLLATE UTF8_BINARY` where case does not matter, or write the step in SQL, which groups, joins and "
                f"orders by collations. asset={asset}, column={field.name}, collation={collation}"
            )


def _collation_in(type_: DataType) -> str | None:
    """The first collation of text within `type_` that is not compared by its bytes; None: there is none."""
    if isinstance(type_, StringType):
        return None if type_.isUTF8BinaryCollation() else type_.collation
    return next((found for each in _within(type_) if (found := _collation_in(each)) is not None), None)


def _within(type_: DataType) -> list[DataType]:
    """The types that a nested type is made of."""
    if isinstance(type_, StructType):
        return [field.dataType for field in type_.fields]
    if isinstance(type_, ArrayType):
        return [type_.elementType]
    return [type_.keyType, type_.valueType] if isinstance(type_, MapType) else []
