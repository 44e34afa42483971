"""Stores on servers of this machine: run by `make test-stores`, which installs them."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.storage.stores.address import StoreAddress
from tests.servers.emulators import BUCKET, PROGRAMS, azurite, fake_gcs
from tests.servers.hdfs import Hdfs, hdfs
from tests.servers.processes import HOST
from tests.spark.local_spark import local_spark

collect_ignore_glob = [] if PROGRAMS else ["test_*.py"]


@pytest.fixture(scope="session")
def gs_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreAddress]:
    with fake_gcs(tmp_path_factory.mktemp("gs")) as options:
        yield StoreAddress(f"gs://{BUCKET}", options)


@pytest.fixture(scope="session")
def azure_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreAddress]:
    with azurite(tmp_path_factory.mktemp("azure")) as options:
        yield StoreAddress(f"abfs://{BUCKET}", options)


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def webhdfs_root(hdfs_cluster: Hdfs) -> StoreAddress:
    return StoreAddress(f"webhdfs://{HOST}:{hdfs_cluster.port}/checkpoints", {"user": "root"})


@pytest.fixture(params=["gs", "azure", "webhdfs"])
def root(request: pytest.FixtureRequest) -> StoreAddress:
    """The store of each server, whole."""
    address: StoreAddress = request.getfixturevalue(f"{request.param}_root")
    return address


@pytest.fixture(scope="session")
def spark_of_all() -> Iterator[SparkSession]:
    with local_spark({}) as spark:
        yield spark
