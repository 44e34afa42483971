"""How Spark writes the scratch checkpoint of a query: as plain files, with a class that its JVM compiles.

Hadoop's own class for local files starts the program `chmod` for each file that it has made, and for the checksum that
it puts beside it: about 9 ms for each of three files in every micro-batch. A scratch checkpoint is in a private folder
of this process, and ends with the query.
"""

import logging
import tempfile
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.jvm import java_class

_LOG = logging.getLogger(__name__)

SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_PACKAGE, _NAME = "dagster_ckpt", "PlainFiles"
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


def scratch_files(session: SparkSession) -> str:
    """The class to write scratch checkpoints with, for `spark.sql.streaming.checkpointFileManagerClass`.

    It is compiled once in a JVM. Where that JVM takes no new classes, it is Spark's own for plain renames.
    """
    try:
        loader = java_class(session, "java.lang.Thread").currentThread().getContextClassLoader()
        if not _has(session, loader):
            _compile(session, loader)
    except Py4JError as error:
        _LOG.info("epochs take some 25 ms longer, since Spark's JVM takes no class of ours: %s", error)
        return SPARKS_OWN
    return PLAIN_FILES


def _has(session: SparkSession, loader: Any) -> bool:
    try:
        java_class(session, "java.lang.Class").forName(PLAIN_FILES, True, loader)
    except Py4JError:
        return False
    return True


def _compile(session: SparkSession, loader: Any) -> None:
    compiler = java_class(session, "org.codehaus.janino.SimpleCompiler")()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, *PLAIN_FILES.split(".")).with_suffix(".class")
        file.parent.mkdir(parents=True)
        file.write_bytes(compiler.getBytecodes().get(PLAIN_FILES))
        loader.addURL(java_class(session, "java.io.File")(folder).toURI().toURL())
        if not _has(session, loader):  # which reads it
            raise Py4JError(f"{PLAIN_FILES} was compiled and is not found")
