"""Streams on a standalone cluster of Spark: a master and two workers of this machine, with the store on S3 or shared.

The executors' Python has neither Dagster nor this package: Spark brings them the driver's.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_ckpt import CheckpointStore
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.micro_batch.driver_work import ROWS_MAX
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.servers.machines import Machine
from tests.servers.processes import HOST, Server
from tests.servers.spark_cluster import SparkCluster
from tests.worlds.s3_server import S3Server

EXECUTORS = Path(os.environ.get("DAGSTER_CKPT_TEST_EXECUTORS", ""))
LOCATION = """
import os

from dagster_ckpt import CheckpointCoordinatorResource, Stream, agg, build_streaming_definitions, streaming_asset
from dagster_pyspark import LazyPySparkResource


@streaming_asset(shards=4)
def totals(spark):
    reader = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", 1)
    rows = reader.format(os.environ["FORMAT"]).load(os.environ["INBOX"])
    return Stream(rows).key_by("key").aggregate(rows=agg.count(), total=agg.sum("value"))


defs = build_streaming_definitions(
    [totals],
    checkpoints=CheckpointCoordinatorResource(
        url=os.environ["STORE"], storage_options={STORAGE_OPTIONS}, tolerable_failures=0
    ),
    spark=LazyPySparkResource(
        spark_config={
            "spark.master": os.environ["MASTER"],
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": f"-Djava.io.tmpdir={os.environ['LONG_TMPDIR']}",
            "spark.pyspark.python": os.environ["EXECUTORS_PYTHON"],
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
    ),
)
"""
TABLE = [
    {"key": 0, "rows": 1, "total": 1},
    {"key": 1, "rows": 4, "total": 31},
    {"key": 2, "rows": 4, "total": 301},
]
FILES = 3
ROWS_OF_TASKS = 2 * ROWS_MAX
"""Rows of one more key that make of each file one that the driver leaves to tasks."""
SEES_NOTHING = 'hostname "$0"; mount -t tmpfs tmpfs "$1"; shift; exec "$@"'
SEES_A_COPY = """
hostname "$0"; store=$1; shift; layers=$(mktemp -d -p "$(dirname "$store")"); mount -t tmpfs tmpfs "$layers"
mkdir "$layers/upper" "$layers/work"
mount -t overlay overlay -o "lowerdir=$store,upperdir=$layers/upper,workdir=$layers/work" "$store"; exec "$@"
"""


def machines(*wraps: Sequence[str]) -> list[Machine]:
    return [Machine(f"worker-{number + 1}", HOST, wrap=(*wrap,)) for number, wrap in enumerate(wraps)]


@contextmanager
def cluster(
    folder: Path, workers: Sequence[Machine], environment: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    master = Machine("master", HOST)
    with SparkCluster(master, workers, folder / "spark", memory="700m", environment=environment) as running:
        yield running


def broken_release(folder: Path, *, is_loaded: bool) -> dict[str, str]:
    """A release of this package that executors have installed, of which nothing works; it may be loaded at once."""
    (folder / "installed/dagster_ckpt").mkdir(parents=True)
    (folder / "installed/dagster_ckpt/__init__.py").touch()
    if is_loaded:
        (folder / "installed/sitecustomize.py").write_text("import dagster_ckpt\n")
    return {"PYTHONPATH": str(folder / "installed")}


@pytest.fixture
def executors_python() -> str:
    """A Python with what the page on clusters says, and nothing else."""
    python = EXECUTORS / "bin" / "python"
    assert python.exists(), "scripts/executors.sh makes it; make test-deploy calls it"
    for module in ("dagster", "dagster_ckpt", "pandas"):
        absent = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, cwd="/", env={})
        assert absent.returncode, f"the executors' Python has {module}"
    return str(python)


def materialize(tmp_path: Path, master: str, store: StoreAddress, python: str, kind: str = "json") -> Server:
    """Run the stream over files of this kind, of JSON or Parquet; returns the process when it has ended."""
    inbox, home = tmp_path / "inbox", tmp_path / "home"
    # As in a container of YARN's: longer than the address of a Unix domain socket may be.
    temporary = tmp_path / "usercache" / "streams" / "application_1700000000000_0001" / ("container_" * 8)
    for folder in (inbox, home, temporary):
        folder.mkdir(parents=True)
    for number in range(FILES):
        rows = pa.table({"key": [number, 1, 2], "value": [1, 10, 100]})
        if kind == "json":
            (inbox / f"{number}.json").write_text("\n".join(map(json.dumps, rows.to_pylist())))
        else:
            more = pa.table({"key": [3] * ROWS_OF_TASKS, "value": [1] * ROWS_OF_TASKS})
            pq.write_table(pa.concat_tables([rows, more]), inbox / f"{number}.parquet")
    location = tmp_path / "location.py"
    location.write_text(LOCATION.replace("{STORAGE_OPTIONS}", repr(dict(store.options))))
    environment = {
        "DAGSTER_HOME": str(home),
        "EXECUTORS_PYTHON": python,
        "FORMAT": kind,
        "INBOX": str(inbox),
        "LONG_TMPDIR": str(temporary),
        "MASTER": master,
        "STORE": store.url,
    }
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "-f", str(location), "--select", "totals"]
    run = Server(command, tmp_path / "run.log", environment, tmp_path)
    try:
        run.process.wait(300)
    except subprocess.TimeoutExpired:
        run.kill()
    return run


def table_of(store: StoreAddress) -> list[Mapping[str, object]]:
    rows: list[Mapping[str, object]] = (
        CheckpointStore(store.url, store.options).stream("totals").read().sort_by("key").to_pylist()
    )
    return rows


def shared(tmp_path: Path) -> StoreAddress:
    (tmp_path / "shared").mkdir()
    return StoreAddress((tmp_path / "shared").as_uri(), {"shared": True})


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "place", "reader"), [("json", "s3", "spark"), ("json", "shared", "spark"), ("parquet", "shared", "tasks")]
)
def test_a_stream_runs_in_executors_without_dagster_and_equals_a_batch(
    tmp_path: Path, s3_server: S3Server, executors_python: str, kind: str, place: str, reader: str
) -> None:
    store = s3_server.empty() if place == "s3" else shared(tmp_path)
    installed = {} if place == "s3" else broken_release(tmp_path, is_loaded=False)
    with cluster(tmp_path, machines((), ()), installed) as spark:
        run = materialize(tmp_path, spark.address, store, executors_python, kind)
    assert run.process.returncode == 0, run.last_lines()
    rows = FILES * ROWS_OF_TASKS
    assert table_of(store) == TABLE + [{"key": 3, "rows": rows, "total": rows}] * (kind == "parquet")
    stream = CheckpointStore(store.url, store.options).stream("totals")
    assert {epoch.read_by for epoch in stream.epochs() if epoch.rows_in} == {reader}
    # Both executors had tasks of the epochs: each has the log of its Python workers below its worker's folder.
    workers = [worker / "work" for worker in tmp_path.glob("spark/worker-*")]
    executors = [folder for work in workers for folder in work.glob("app-*/*") if (folder / "stderr").exists()]
    assert len({folder.parent.parent.parent for folder in executors}) == 2
    assert all("Running task" in (folder / "stderr").read_text() for folder in executors)


@pytest.mark.timeout(600)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
@pytest.mark.parametrize(
    ("script", "error"),
    [
        (SEES_NOTHING, "this host does not see the store's folder as the driver does"),
        (SEES_A_COPY, "the driver does not see what an executor has written"),
    ],
)
def test_a_worker_that_does_not_share_the_folder_ends_the_epoch_with_its_host_and_the_folder(
    tmp_path: Path, executors_python: str, script: str, error: str
) -> None:
    store = shared(tmp_path)
    elsewhere = ("unshare", "--mount", "--uts", "sh", "-c", script, "worker-2", str(tmp_path / "shared"))
    with cluster(tmp_path, machines((), elsewhere)) as spark:
        run = materialize(tmp_path, spark.address, store, executors_python)
    assert run.process.returncode == 1, run.last_lines()
    log = run.log.read_text()
    assert error in log
    assert "mount the same file system at this path on every host" in log
    assert f"host=worker-2, store={store.url}/totals" in log
    # An epoch that the other worker alone has made is committed; none names what that one has not.
    assert not CheckpointStore(store.url).stream("totals").verify().findings


@pytest.mark.timeout(600)
def test_an_executor_that_has_loaded_another_release_ends_the_epoch_with_what_it_has_loaded(
    tmp_path: Path, executors_python: str
) -> None:
    store = shared(tmp_path)
    with cluster(tmp_path, machines((), ()), broken_release(tmp_path, is_loaded=True)) as spark:
        run = materialize(tmp_path, spark.address, store, executors_python)
    assert run.process.returncode == 1, run.last_lines()
    assert "the Python of an executor has loaded another dagster-ckpt" in run.log.read_text()


def test_a_folder_that_nobody_says_is_shared_is_refused_before_anything_starts(tmp_path: Path) -> None:
    from dagster_pyspark import LazyPySparkResource

    from dagster_ckpt import CheckpointCoordinatorResource, build_streaming_definitions

    with pytest.raises(InvalidPipelineError, match=r'storage_options=\{"shared": True\}'):
        build_streaming_definitions(
            checkpoints=CheckpointCoordinatorResource(url=tmp_path.as_uri()),
            spark=LazyPySparkResource(spark_config={"spark.master": "spark://master:7077"}),
        )
