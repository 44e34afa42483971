"""`Planner.java`, compiled in the JVM: one call does what would take many.

A call of py4j takes some 50 us, and a query is planned by thousands of steps that take Spark next to nothing.
Janino, which is part of Spark, compiles the text, once in a JVM.
"""

from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import Any

from pyspark.sql import SparkSession

_ARGUMENTS_MAX = 8
"""The most arguments that `Planner.seq` takes."""


def planner(session: SparkSession) -> Any:
    """The object of that class in the session's JVM."""
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    return _planner(jvm)


@lru_cache(maxsize=1)
def _planner(jvm: Any) -> Any:
    compiler = getattr(jvm, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(getattr(jvm, "org.apache.spark.util.Utils").getContextOrSparkClassLoader())
    compiler.cook(files(__package__).joinpath("Planner.java").read_text("utf-8"))
    return compiler.getClassLoader().loadClass("dagster_ckpt.Planner").newInstance()


def sequence(planner: Any, items: Iterable[Any]) -> Any:
    """A sequence of Scala's, in one call if it is short."""
    every = list(items)
    if len(every) <= _ARGUMENTS_MAX:
        return planner.seq(*every)
    parts = (every[place : place + _ARGUMENTS_MAX] for place in range(0, len(every), _ARGUMENTS_MAX))
    return planner.flat(sequence(planner, [planner.seq(*part) for part in parts]))
