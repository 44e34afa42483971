"""One Spark for all of these tests, started as a stream needs it; each test's streams get a new session."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.session import announce_settings, open_session
from tests.spark.streams import StreamUnderTest


@pytest.fixture(scope="session")
def spark_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    announce_settings(os.environ)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("dagster-ckpt-tests")
        # Tests end before a JVM has compiled itself warm: let it not try too hard.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")  # wherever the tests run
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture
def spark(spark_of_all: SparkSession) -> SparkSession:
    return open_session(spark_of_all)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def stream(spark_of_all: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark_of_all, tmp_path)
