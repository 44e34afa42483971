"""From the user's `Stream` to a checked operator, before anything runs."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import checks
from dagster_ckpt.operators.agg import Function
from dagster_ckpt.operators.aggregate import RunningAggregate
from dagster_ckpt.operators.append import AppendOnly
from dagster_ckpt.protocol.manifest import InputSpec, SourceIdentity
from dagster_ckpt.runtime.layout import HASH
from dagster_ckpt.runtime.stream import Stream


def build_operator(asset: str, stream: Stream, sources: Sequence[SourceIdentity]) -> RunningAggregate | AppendOnly:
    """The operator that the stream's steps name, its columns and types checked. Raises `InvalidPipelineError`."""
    if stream.keys and not stream.aggregations:
        raise InvalidPipelineError(
            "keys alone do nothing: call aggregate(...) after key_by, or leave key_by out. "
            f"asset={asset}, keys={', '.join(stream.keys)}"
        )
    schema = arrow_schema(asset, stream.frame.schema)
    event_time = stream.event_time.column if stream.event_time else None
    checks.check_event_time(event_time, schema)
    source = InputSpec(tuple(sources), schema)
    if not stream.keys:
        return AppendOnly.build(source)
    operator = RunningAggregate.build(stream.keys, dict(stream.aggregations), source, event_time)
    _check_collations(asset, stream)
    return operator


def arrow_schema(asset: str, schema: StructType) -> pa.Schema:
    """A DataFrame's columns as Arrow brings them to a task. Each may be null: what Spark says of that can change."""
    fields = []
    for field in schema.fields:
        try:
            [arrow] = to_arrow_schema(StructType([field]), timezone="UTC")
        except PySparkException as error:
            raise InvalidPipelineError(
                "Arrow has no such type, so no row of it can reach a task: cast the column or leave it out. "
                f"asset={asset}, column={field.name}, type={field.dataType.simpleString()}"
            ) from error
        if field.name.casefold() == HASH:  # to Spark, which adds it, case is nothing
            raise InvalidPipelineError(
                f"this name carries the key's hash: rename the column. asset={asset}, column={field.name}"
            )
        fields.append(arrow.with_nullable(True))
    return pa.schema(fields)


def _check_collations(asset: str, stream: Stream) -> None:
    """No text that is compared has a collation: Arrow does not know of them, so a task compares bytes."""
    valued = [one for _, one in stream.aggregations if one.function is not Function.COUNT]
    compared = {*stream.keys, *(name for one in valued for name in (one.column, one.by))}
    for field in stream.frame.schema.fields:
        type_ = field.dataType
        if field.name in compared and isinstance(type_, StringType) and not type_.isUTF8BinaryCollation():
            raise InvalidPipelineError(
                "keys, and what min, max, first and last compare, must be text without a collation: "
                f"select `{field.name} COLLATE UTF8_BINARY`, or `lower({field.name}) COLLATE UTF8_BINARY` where case "
                "does not matter. "
                f"asset={asset}, column={field.name}, collation={type_.collation}"
            )
