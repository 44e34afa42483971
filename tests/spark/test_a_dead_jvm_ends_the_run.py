"""SIGKILL of the JVM in the middle of a run, in a subprocess: the run soon ends with a clear error."""

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest
from tests.spark.test_nothing_is_lost_and_nothing_counted_twice import expected, fill, totals

CHECKOUT = Path(__file__).parents[2]

PROGRAM = """
import os, signal, sys
from pathlib import Path
from pyspark.sql import SparkSession
from dagster_ckpt.runtime.spark.session import announce_settings
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from tests.spark.streams import StreamUnderTest
from tests.spark.test_nothing_is_lost_and_nothing_counted_twice import totals

announce_settings(os.environ)
root = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.local.dir", str(root / "local")).getOrCreate()
jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
stream = StreamUnderTest(spark, root)
stream.run(totals(root / "inbox"), hooks=JobHooks(lambda epoch: os.kill(jvm, signal.SIGKILL)))
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of all users, whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o1777)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield Path(name)


def test_a_dead_jvm_is_named_and_what_it_leaves_is_private_and_goes(
    stream: StreamUnderTest, inbox: Path, temporary: Path
) -> None:
    fill(inbox, 0, 3)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(inbox.parent)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TMPDIR": str(temporary)},
        umask=0o002,
    )
    assert done.returncode == 1
    assert "CheckpointError: Spark's JVM is gone" in done.stderr
    [user] = temporary.iterdir()
    assert stat.S_IMODE(user.stat().st_mode) == 0o700
    sockets, local = list(user.glob("*/.*.sock")), inbox.parent / "local"
    assert sockets
    assert {path.name.partition("-")[0] for path in local.iterdir()} == {"blockmgr", "spark"}
    assert stream.rows() == expected(0)
    drop(inbox, 3, pa.table({"k": ["a"], "v": [4]}))
    stream.run(totals(inbox))
    assert stream.rows()[0] == {"k": "a", "rows": 4, "total": 0 + 1 + 2 + 4}
    assert not any(path.exists() for path in sockets)
    assert list(local.iterdir()) == []
    assert len(list(user.iterdir())) == 1, "this process's own"
