"""DataFrames for which Spark would keep state: a compiler makes steps of them.

The compiler (`runtime.plans`) builds on `Stream`, and so is above this room: it registers itself when it is loaded.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dagster_ckpt.runtime.declared.query_plan import keeps_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dagster_ckpt.runtime.declared.stream import Stream

compiler: "Callable[[DataFrame], Stream] | None" = None


def as_steps(frame: object) -> "Stream | None":
    """The stream of a DataFrame's query; None for one that Spark works row by row, or that does not stream."""
    from pyspark.sql.classic.dataframe import DataFrame

    if compiler is None or not isinstance(frame, DataFrame) or not frame.isStreaming:
        return None
    return compiler(frame) if keeps_state(frame) else None
