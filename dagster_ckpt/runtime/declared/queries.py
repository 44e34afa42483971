"""DataFrames that Spark cannot work row by row: a compiler makes steps of them.

The compiler, `runtime.plans`, builds on `Stream` and so is above this room. It is loaded by its name when it is needed,
and registers itself here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagster_ckpt.runtime.catalyst.query_plan import needs_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_HOME = "dagster_ckpt.runtime.plans.returned"


@dataclass(frozen=True)
class Compiler:
    """From a DataFrame's query to its `Stream`, and from one to a DataFrame that queries can read.

    Their type is not named here: `Stream` is above this module.
    """

    stream_of: "Callable[[DataFrame], Any]"
    dataframe_of: "Callable[[Any], DataFrame]"


_registered: list[Compiler] = []


def register(compiler: Compiler) -> None:
    """Make this the compiler. It calls this itself when it is loaded."""
    _registered[:] = [compiler]


def as_steps(frame: object) -> Any:
    """The `Stream` of a DataFrame's query; None for one that Spark works row by row, or that does not stream."""
    from pyspark.sql.classic.dataframe import DataFrame

    if not isinstance(frame, DataFrame) or not frame.isStreaming or not needs_steps(frame):
        return None
    return _compiler().stream_of(frame)


def as_dataframe(stream: Any) -> "DataFrame":
    """A DataFrame that stands for the table of a `Stream` in a query."""
    return _compiler().dataframe_of(stream)


def _compiler() -> Compiler:
    import_module(_HOME)
    [compiler] = _registered
    return compiler
