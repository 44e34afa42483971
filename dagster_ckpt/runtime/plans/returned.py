"""What a streaming function returns, as a `Stream`: a query's text, a DataFrame, or a `Stream` over either."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.query_plan import needs_steps
from dagster_ckpt.runtime.declared import queries
from dagster_ckpt.runtime.declared.stream import Stream, unwrap_last_step
from dagster_ckpt.runtime.plans.compiler import stream_of, stream_of_sql
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of

queries.register(queries.Compiler(stream_of, dataframe_of))


def stream_returned(asset: str, returned: object, session: SparkSession, tables: Mapping[str, object]) -> Stream:
    """The stream of what a function returned. A query in SQL reads the function's arguments, `tables`, by their names.

    Raises `InvalidPipelineError` for what is no stream, and for a query that cannot be kept up to date.
    """
    if isinstance(returned, str):
        named = {name: each for name, each in tables.items() if isinstance(each, Stream | DataFrame)}
        return stream_of_sql(session, returned, named)
    if isinstance(returned, DataFrame):
        return stream_of(returned) if needs_steps(returned) else Stream(returned)
    if not isinstance(returned, Stream):
        raise InvalidPipelineError(
            "a streaming function returns a Stream, a streaming DataFrame, or the text of a query in SQL. "
            f"asset={asset}, returned={type(returned).__name__}"
        )
    return unwrap_last_step(returned)
