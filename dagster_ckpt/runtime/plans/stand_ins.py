"""DataFrames that stand for streams, so that a query can read a table whose rows come and go."""

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.declared.stream import Stream, rows_of

_streams: dict[tuple[str, int], Stream] = {}
"""What each stand-in stands for, by Spark's application and its number there: as many as functions have parameters."""


def dataframe_of(stream: Stream, session: SparkSession | None = None) -> DataFrame:
    """A DataFrame with the columns of a stream's table and no row. A query that reads it reads the stream."""
    if stream.keys and stream.step is None:
        raise InvalidPipelineError(
            "a query brings rows together by itself: leave key_by out of a stream that it reads. "
            f"keys={', '.join(stream.keys)}"
        )
    rows = rows_of(stream).frame
    session = session or rows.sparkSession
    frame, number = Catalyst(session).stand_in(rows.drop(CHANGE_TYPE))
    _streams[_application(session), number] = stream
    return frame


def stream_of_number(session: SparkSession, number: int) -> Stream | None:
    """The stream that the stand-in with this number stands for."""
    return _streams.get((_application(session), number))


def _application(session: SparkSession) -> str:
    return str(session.sparkContext.applicationId)
