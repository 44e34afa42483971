"""Streams that read Kafka, from a broker of this machine: run by `make test-kafka`, which fetches it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka.cluster import Cluster
from tests.servers.kafka import JARS, kafka
from tests.spark.local_spark import local_spark
from tests.spark.streams import StreamUnderTest

collect_ignore_glob = [] if JARS else ["test_*.py"]


def jars(*parts: str) -> str:
    """The jars of these parts, as `spark.jars` takes them."""
    return ",".join(str(jar) for part in parts for jar in sorted(Path(JARS, part).glob("*.jar")))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with local_spark({"spark.jars": jars("connector", "formats")}) as spark:
        yield spark


@pytest.fixture(scope="module")
def cluster(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka(tmp_path_factory.mktemp("kafka")) as broker:
        cluster = Cluster(spark, broker)
        yield cluster
        cluster.close()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark, tmp_path)
