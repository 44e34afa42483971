"""SIGKILL of the JVM in the middle of a run, in a subprocess: the run soon ends with a clear error."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa

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
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
stream = StreamUnderTest(spark, root)
stream.run(totals(root / "inbox"), hooks=JobHooks(lambda epoch: os.kill(jvm, signal.SIGKILL)))
"""


def test_a_dead_jvm_is_named_and_its_epochs_are_there(stream: StreamUnderTest, inbox: Path) -> None:
    fill(inbox, 0, 3)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(inbox.parent)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )
    assert done.returncode == 1
    assert "CheckpointError: Spark's JVM is gone" in done.stderr
    assert stream.rows() == expected(0)
    drop(inbox, 3, pa.table({"k": ["a"], "v": [4]}))
    stream.run(totals(inbox))
    assert stream.rows()[0] == {"k": "a", "rows": 4, "total": 0 + 1 + 2 + 4}
