"""How Spark writes the scratch checkpoint of a query: as plain files, with a class that its JVM compiles.

Hadoop's own class for local files starts the program `chmod` for each file that it has made, and for the checksum that
it puts beside it: about 9 ms for each of three files in every micro-batch. A scratch checkpoint is in a private folder
of this process, and ends with the query.
"""

import logging
import threading

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.jvm import java_class

_LOG = logging.getLogger(__name__)

_PACKAGE, _NAME = "org.apache.spark.sql.execution.streaming.checkpointing", "DagsterCkptPlainFiles"
SPARKS_OWN = f"{_PACKAGE}.FileSystemBasedCheckpointFileManager"
PLAIN_FILES = f"{_PACKAGE}.{_NAME}"
_SOURCE = f"""
package {_PACKAGE};

public final class {_NAME} extends {SPARKS_OWN} {{
    public {_NAME}(org.apache.hadoop.fs.Path folder, org.apache.hadoop.conf.Configuration settings) {{
        super(folder, settings);
    }}

    public org.apache.hadoop.fs.FSDataOutputStream createTempFile(org.apache.hadoop.fs.Path file)
            throws java.io.IOException {{
        java.io.OutputStream plain = new java.io.FileOutputStream(file.toUri().getPath());
        return new org.apache.hadoop.fs.FSDataOutputStream(new java.io.BufferedOutputStream(plain), null);
    }}
}}
"""


_DEFINING = threading.Lock()


def scratch_files(session: SparkSession) -> str:
    """The class to write scratch checkpoints with, for `spark.sql.streaming.checkpointFileManagerClass`.

    It is compiled once in a JVM. Where that JVM takes no new classes, it is Spark's own for plain renames.
    """
    try:
        with _DEFINING:
            if not _is_defined(session):
                _define(session)
    except Py4JError as error:
        _LOG.info("epochs take some 25 ms longer, since Spark's JVM takes no class of ours: %s", error)
        return SPARKS_OWN
    return PLAIN_FILES


def _is_defined(session: SparkSession) -> bool:
    try:
        java_class(session, "org.apache.spark.util.Utils").classForName(PLAIN_FILES, True, False)
    except Py4JError:
        return False
    return True


def _define(session: SparkSession) -> None:
    """Give the JVM the class as bytes, by a lookup in Spark's package.

    Never by a folder or a jar on its class path: any user who can write there, or make again what was deleted there,
    runs code in the JVM.
    """
    spark_class = java_class(session, "org.apache.spark.util.Utils").classForName(SPARKS_OWN, True, False)
    compiler = java_class(session, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(spark_class.getClassLoader())
    compiler.cook(_SOURCE)
    handles = java_class(session, "java.lang.invoke.MethodHandles")
    handles.privateLookupIn(spark_class, handles.lookup()).defineClass(compiler.getBytecodes().get(PLAIN_FILES))
