"""One Spark and one Dagster instance for all examples, and a temporary folder in which they put their data."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from tests.dagster.conftest import NOTHING_PRINTED
from tests.spark.local_spark import local_spark

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as patched:
        # Spark's workers import the class of a process function, as examples/README.md says.
        patched.setenv("PYTHONPATH", str(EXAMPLES), prepend=os.pathsep)
        with local_spark() as spark:
            yield spark


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> dg.DagsterInstance:
    return dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster")), overrides=NOTHING_PRINTED)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the examples put what they make."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "dagster-ckpt-examples"
