"""DataFrames that stand for streams, so that a query can read a table whose rows come and go."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.declared.stream import Stream, rows_of
from dagster_ckpt.runtime.spark.session import session_id

_streams: dict[str, dict[int, Stream]] = {}
"""What each stand-in stands for, by its number among those of Spark's application; for each session, by its id."""


@contextmanager
def stand_ins_of(session: SparkSession) -> Iterator[None]:
    """Within it DataFrames of this session, which is one stream's, stand for streams; after it they are forgotten.

    A query has its steps as soon as it is compiled, and a process may start its stream again and again.
    """
    try:
        yield
    finally:
        _streams.pop(session_id(session), None)


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
    _streams.setdefault(session_id(session), {})[number] = stream
    return frame


def stream_of_number(session: SparkSession, number: int) -> Stream | None:
    """The stream that the stand-in with this number stands for."""
    return _streams.get(session_id(session), {}).get(number)
