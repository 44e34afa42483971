"""DataFrames that stand for streams, so that a query can read a table whose rows come and go."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.stream import Stream, behind
from dagster_ckpt.runtime.plans.catalyst import Catalyst


@dataclass(frozen=True)
class StandIn:
    """`frame` has the columns of a stream's table, and no row. Queries read it in the table's place."""

    stream: Stream
    frame: DataFrame
    number: int

    @classmethod
    def of(cls, session: SparkSession, stream: Stream) -> "StandIn":
        """A stand-in for the rows of a stream, in the session of its query."""
        if stream.keys and stream.step is None:
            raise InvalidPipelineError(
                "a query brings rows together by itself: leave key_by out of a stream that it reads. "
                f"keys={', '.join(stream.keys)}"
            )
        rows = stream.frame if stream.step is None else behind(stream).frame
        frame, number = Catalyst(session).stand_in(rows.drop(CHANGE_TYPE))
        return cls(stream, frame, number)
