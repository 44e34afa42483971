"""One Spark for all of these tests, started as a stream needs it; each test's streams get a new session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.session import open_session
from tests.spark.local_spark import local_spark
from tests.spark.streams import StreamUnderTest
from tests.spark.ways import WAYS, mix_ways


@pytest.fixture(scope="session")
def spark_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with local_spark({"spark.sql.warehouse.dir": str(warehouse)}) as spark:
        yield spark


@pytest.fixture
def spark(spark_of_all: SparkSession) -> SparkSession:
    return open_session(spark_of_all)


@pytest.fixture(autouse=True)
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each epoch is worked in a way of its own, the same in each run of a test; `@pytest.mark.ways` says which."""
    mark = request.node.get_closest_marker("ways")
    return mix_ways(monkeypatch, request.node.nodeid, WAYS if mark is None else mark.args)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def stream(spark_of_all: SparkSession, tmp_path: Path) -> StreamUnderTest:
    return StreamUnderTest(spark_of_all, tmp_path)
