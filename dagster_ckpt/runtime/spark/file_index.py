"""The files that a file source would read now, listed as Spark's source lists them."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.jvm import java_class

_DATASOURCES = "org.apache.spark.sql.execution.datasources"


def file_index(session: SparkSession, path: str, options: Mapping[str, str]) -> Any:
    """Spark's index of the files below `path`: `inputFiles()` are their addresses, `allFiles()` their states.

    Both are in the same order. Lists the folder; raises Spark's error where that fails.
    """
    root = java_class(session, "org.apache.hadoop.fs.Path")(path)
    file_system = root.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    hadoop = java_class(session, "org.apache.spark.deploy.SparkHadoopUtil").get()
    folders = hadoop.globPathIfNecessary(file_system, root)
    option = java_class(session, "scala.Option")
    none = option.empty()
    cache = getattr(java_class(session, f"{_DATASOURCES}.NoopCache$"), "MODULE$")
    return java_class(session, f"{_DATASOURCES}.InMemoryFileIndex")(
        session._jsparkSession,  # noqa: SLF001
        folders,
        java_class(session, "org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options)),
        option.apply(java_class(session, "org.apache.spark.sql.types.StructType")()),
        cache,
        none,
        none,
    )


SEPARATOR = "\0"
"""It is in no file's name. One text for all files takes one call."""


def joined_addresses(session: SparkSession, index: Any) -> str:
    """The addresses of all files in the index, as Spark's source log spells them."""
    return str(java_class(session, "org.apache.hadoop.util.StringUtils").join(SEPARATOR, index.inputFiles()))


def file_states(index: Any) -> list[str]:
    """The string form of each file's Hadoop `FileStatus`, in the order of the addresses."""
    joined = str(index.allFiles().mkString(SEPARATOR))
    return joined.split(SEPARATOR) if joined else []
