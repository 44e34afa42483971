"""A stream on a standalone cluster of Spark: a master and two workers of this machine, with the store on S3."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest

from dagster_ckpt import CheckpointStore
from tests.servers.processes import HOST, Server, free_port, listens, until
from tests.worlds.s3_server import S3Server

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
LOCATION = """
import os

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset
from dagster_pyspark import LazyPySparkResource


@streaming_asset(shards=4)
def totals(spark):
    rows = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1).parquet(os.environ["INBOX"])
    return Stream(rows).key_by("key").aggregate(rows=agg.count(), total=agg.sum("value"))


defs = build_streaming_definitions(
    [totals],
    checkpoints=CheckpointCoordinatorResource(url=os.environ["STORE"], storage_options={STORAGE_OPTIONS}),
    spark=LazyPySparkResource(
        spark_config={
            "spark.master": os.environ["MASTER"],
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.pyspark.python": os.environ["EXECUTORS_PYTHON"],
            "spark.submit.pyFiles": os.environ.get("PY_FILES", ""),
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    ),
)
"""


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a master with two workers of a core each."""
    port, first, second = free_port(), free_port(), free_port()
    address = f"spark://{HOST}:{port}"
    begin = [str(SPARK_CLASS), "org.apache.spark.deploy.master.Master"]
    here = ["--host", HOST]
    commands = [[*begin, *here, "--port", str(port), "--webui-port", str(free_port())]]
    for number, own in enumerate((first, second)):
        work = ["--cores", "1", "--memory", "700m", "--work-dir", str(tmp_path / f"work-{number}")]
        ports = ["--port", str(own), "--webui-port", str(free_port())]
        commands.append([str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", *here, *ports, *work, address])
    started = []
    try:
        for number, command in enumerate(commands):
            started.append(Server(command, tmp_path / f"spark-{number}.log", {}, tmp_path))
            until("Spark's process listens", partial(listens, (port, first, second)[number]), 60)
        yield address
    finally:
        for server in started:
            server.kill()


@pytest.mark.timeout(600)
def test_a_stream_runs_in_executors_and_equals_a_batch(tmp_path: Path, master: str, s3_server: S3Server) -> None:
    inbox, home, store = tmp_path / "inbox", tmp_path / "home", s3_server.empty()
    inbox.mkdir()
    home.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"key": [number, 1, 2], "value": [1, 10, 100]}), inbox / f"{number}.parquet")
    location = tmp_path / "location.py"
    location.write_text(LOCATION.replace("{STORAGE_OPTIONS}", repr(dict(store.options))))
    environment = {
        "DAGSTER_HOME": str(home),
        "EXECUTORS_PYTHON": sys.executable,
        "INBOX": str(inbox),
        "MASTER": master,
        "STORE": store.url,
    }
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-f", str(location), "--select", "totals"]
    run = Server(command, tmp_path / "run.log", environment, tmp_path)
    try:
        run.process.wait(300)
    except subprocess.TimeoutExpired:
        run.kill()
    assert run.process.returncode == 0, run.last_lines()
    table = CheckpointStore(store.url, store.options).stream("totals").read().sort_by("key").to_pylist()
    assert table == [
        {"key": 0, "rows": 1, "total": 1},
        {"key": 1, "rows": 4, "total": 31},
        {"key": 2, "rows": 4, "total": 301},
    ]
    # Both executors had tasks of the epochs: each has the log of its Python workers below its worker's folder.
    executors = [folder for folder in tmp_path.glob("work-*/app-*/*") if (folder / "stderr").exists()]
    assert len({folder.parent.parent for folder in executors}) == 2
    assert all("Running task" in (folder / "stderr").read_text() for folder in executors)
