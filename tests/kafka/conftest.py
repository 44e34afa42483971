"""Streams that read Kafka, from a broker of this machine: run by `make test-kafka`, which fetches it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.session import announce_settings
from tests.kafka.cluster import Cluster
from tests.servers.kafka import JARS, kafka
from tests.spark.streams import StreamUnderTest

collect_ignore_glob = [] if JARS else ["test_*.py"]


def jars(*parts: str) -> str:
    """The jars of these parts, as `spark.jars` takes them."""
    return ",".join(str(jar) for part in parts for jar in sorted(Path(JARS, part).glob("*.jar")))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    announce_settings(os.environ)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("dagster-ckpt-tests")
        .config("spark.jars", jars("connector", "formats"))
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def cluster(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka(tmp_path_factory.mktemp("kafka")) as broker:
        cluster = Cluster(spark, broker)
        yield cluster
        cluster.close()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark, tmp_path)
