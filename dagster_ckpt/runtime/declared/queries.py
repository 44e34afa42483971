"""DataFrames that Spark cannot work row by row: a compiler makes steps of them.

The compiler (`runtime.plans`) builds on `Stream`, and so is above this room: it registers itself when it is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster_ckpt.runtime.declared.query_plan import needs_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dagster_ckpt.runtime.declared.stream import Stream


@dataclass
class _Compiler:
    """From a DataFrame's query to its stream, and from a stream to a DataFrame that queries can read."""

    stream_of: "Callable[[DataFrame], Stream] | None" = None
    dataframe_of: "Callable[[Stream], DataFrame] | None" = None


compiler = _Compiler()


def as_steps(frame: object) -> "Stream | None":
    """The stream of a DataFrame's query; None for one that Spark works row by row, or that does not stream."""
    if compiler.stream_of is None:
        return None
    from pyspark.sql.classic.dataframe import DataFrame

    if not isinstance(frame, DataFrame) or not frame.isStreaming:
        return None
    return compiler.stream_of(frame) if needs_steps(frame) else None
