"""`make setup` makes the archive; a JVM that starts for a stream loads most of its classes from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_ckpt.runtime.spark.class_archive import archive_path, use_archive

_LOADED_MIN = 10_000


@pytest.mark.long
def test_most_classes_of_a_new_jvm_come_from_the_archive(tmp_path: Path) -> None:
    archive, log = archive_path(os.environ), tmp_path / "classes.log"
    assert archive is not None
    assert archive.is_file(), "make setup makes it, as does `dagster-ckpt class-archive`"
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": f"-Xlog:class+load:file={log}:none", "SPARK_LOCAL_IP": "127.0.0.1"}
    use_archive(environ)
    command = [
        sys.executable,
        "-c",
        "from pyspark.sql import SparkSession as S; S.builder.getOrCreate().range(9).count()",
    ]
    subprocess.run(command, env=environ, check=True, capture_output=True, timeout=250)
    sources = [line.rsplit("source: ", maxsplit=1)[-1] for line in log.read_text().splitlines() if "source: " in line]
    of_archive = [source for source in sources if source == "shared objects file (top)"]
    assert len(sources) > _LOADED_MIN
    assert len(of_archive) / len(sources) > 0.5
