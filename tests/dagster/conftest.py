"""One Spark for the tests that need it, as dagster-pyspark makes it, and a place for their streams."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from tests.dagster.place import Place

NOTHING_PRINTED = {
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    }
}


@pytest.fixture(scope="session")
def spark() -> Iterator[LazyPySparkResource]:
    yield LazyPySparkResource(
        spark_config={
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
        }
    )
    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


@pytest.fixture
def place(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, spark: LazyPySparkResource) -> Place:
    """Dagster keeps its records in files, as a user's does: those in memory lock each other out when two runs write.

    What runs print is not kept: Dagster would start four processes for each.
    """
    home = tmp_path_factory.mktemp("dagster")
    return Place(tmp_path, spark, dg.DagsterInstance.local_temp(str(home), overrides=NOTHING_PRINTED))
