"""The archive is made by the command's code, and a JVM that is started with it takes most of its classes from there."""

import os
import subprocess
import sys
from pathlib import Path

from dagster_ckpt.runtime.class_archive import FILE, make_archive

_LOADED_MIN = 10_000


def test_most_classes_of_a_new_jvm_come_from_the_archive(tmp_path: Path) -> None:
    archive, log = tmp_path / FILE, tmp_path / "classes.log"
    make_archive(os.environ, archive)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    options = f"-XX:SharedArchiveFile={archive} -Xlog:class+load:file={log}:none"
    command = [
        sys.executable,
        "-c",
        "from pyspark.sql import SparkSession as S; S.builder.getOrCreate().range(9).count()",
    ]
    environ = {**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(command, env=environ, check=True, capture_output=True, timeout=90)
    sources = [line.rsplit("source: ", maxsplit=1)[-1] for line in log.read_text().splitlines() if "source: " in line]
    of_archive = [source for source in sources if source == "shared objects file (top)"]
    assert len(sources) > _LOADED_MIN
    assert len(of_archive) / len(sources) > 0.5
