"""A stream whose resource gives a real session of Spark Connect."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("zstandard", reason="Spark Connect's client needs it: make test-deploy installs it")

LOCATION = """
import os
import sys

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset

remote = SparkSession.builder.remote("local").getOrCreate()


class Connected(dg.ConfigurableResource):
    @property
    def spark_session(self):
        return remote


@streaming_asset(shards=4)
def totals(spark):
    return Stream(spark.readStream.format("rate").load()).key_by("value").aggregate(rows=agg.count())


defs = build_streaming_definitions(
    [totals], checkpoints=CheckpointCoordinatorResource(url=sys.argv[1]), spark=Connected()
)
assert remote.range(3).count() == 3, "the session works"
try:
    ended = defs.resolve_job_def("totals_job").execute_in_process(raise_on_error=False)
    for event in ended.filter_events(lambda event: event.is_step_failure):
        print("ended by", event.step_failure_data.error.to_string())
finally:
    remote.stop()
"""


@pytest.mark.timeout(300)
def test_a_session_of_spark_connect_is_refused_by_name_and_the_store_stays_empty(tmp_path: Path) -> None:
    location = tmp_path / "location.py"
    location.write_text(LOCATION)
    command = [sys.executable, str(location), (tmp_path / "store").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=240)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    said = ended.stdout.partition("ended by")[2]
    assert "InvalidPipelineError: a stream runs in the process of its Spark driver" in said
    assert "Spark Connect cannot run one. session=pyspark.sql.connect.session" in said
    assert not (tmp_path / "store").exists()
