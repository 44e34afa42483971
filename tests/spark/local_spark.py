"""The Spark of tests: two cores of this machine, and as quiet as it can be."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.session import announce_settings
from scripts.test import JAVA
from tests.worlds.examples import TIMES

NO_MORE: Mapping[str, str] = {}
# A usual run ends before a JVM has compiled itself warm: let it not try too hard. `make properties` takes an hour.
_JAVA_OPTIONS = "-XX:+UseSerialGC" if TIMES > 1 else " ".join(JAVA)


@contextmanager
def local_spark(settings: Mapping[str, str] = NO_MORE) -> Iterator[SparkSession]:
    """A session with these settings too; it is stopped after the block."""
    announce_settings(os.environ)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("dagster-ckpt-tests")
        .config("spark.driver.extraJavaOptions", _JAVA_OPTIONS)
        .config("spark.driver.memory", "2g" if TIMES > 1 else "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # Plans of queries that have ended fill the memory of a run of hours.
        .config("spark.sql.ui.retainedExecutions", "1")
        # Queries in batch shuffle a handful of rows: into Spark's 200 pieces takes them twice the time.
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")  # wherever the tests run
    )
    if TIMES == 1:
        # To compile expressions takes longer than to interpret them for a handful of rows. Dagster's tests compile.
        builder = builder.config("spark.sql.codegen.wholeStage", "false")
        builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()
