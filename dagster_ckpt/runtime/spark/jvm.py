"""Classes of Spark's JVM, by their full names, and sequences of Scala's."""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """The class of that full name, found in one call.

    Of a dotted name such as `jvm.org.apache.spark` py4j asks of each part whether it is a class. To learn that it is
    none, the JVM searches all of Spark's jars.
    """
    return getattr(session._jvm, name)  # noqa: SLF001  (Spark exposes it nowhere else)


def scala_seq(session: SparkSession, items: Iterable[Any]) -> Any:
    """A sequence of Scala's."""
    return java_class(session, "org.apache.spark.api.python.PythonUtils").toSeq(list(items))
