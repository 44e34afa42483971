"""Classes of Spark's JVM, by their full names, sequences and maps of Scala's, and DataFrames of an RDD."""

from collections.abc import Iterable
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """The class of that full name, found in one call.

    For a dotted name such as `jvm.org.apache.spark`, py4j asks whether each part is a class. To learn that it is none,
    the JVM searches all of Spark's jars. py4j would ask for a class each time: once found it stays in its view.
    """
    jvm: Any = session._jvm  # noqa: SLF001  (Spark exposes it nowhere else)
    found = getattr(jvm, name)
    if isinstance(found, JavaClass):  # what is none yet is a package to py4j, and may become one with another jar
        setattr(jvm, name, found)
    return found


def scala_seq(session: SparkSession, items: Iterable[Any]) -> Any:
    """A sequence of Scala's."""
    return java_class(session, "org.apache.spark.api.python.PythonUtils").toSeq(list(items))


def scala_map(session: SparkSession, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """A map of Scala's, which is a partial function too."""
    found = java_class(session, "java.util.HashMap")()
    for key, value in pairs:
        found.put(key, value)
    return java_class(session, "scala.jdk.javaapi.CollectionConverters").asScala(found)


def java_session(session: SparkSession) -> Any:
    """The session in the JVM."""
    own: Any = session
    return own._jsparkSession  # noqa: SLF001  (as above)


def java_frame(frame: DataFrame) -> Any:
    """The DataFrame in the JVM."""
    own: Any = frame
    return own._jdf  # noqa: SLF001  (as above)


def frame_of_rdd(session: SparkSession, rows: Any, schema: Any) -> DataFrame:
    """A DataFrame of an RDD of Spark's internal rows, with the columns of a struct type in the JVM."""
    made = java_session(session).internalCreateDataFrame(rows, schema, False)
    return DataFrame(made, session)
