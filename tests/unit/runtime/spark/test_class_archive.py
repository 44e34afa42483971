import os
from pathlib import Path

import pytest

from dagster_ckpt import CheckpointError
from dagster_ckpt.runtime.spark.class_archive import FILE, archive_path, make_archive, use_archive


def test_it_is_in_sparks_home_or_where_pyspark_is(tmp_path: Path) -> None:
    assert archive_path({"SPARK_HOME": str(tmp_path)}) == tmp_path / FILE
    without = archive_path({})
    assert without is not None
    assert (without.parent / "java_gateway.py").is_file()


def test_the_archive_option_comes_before_the_users_options(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    environ = {"SPARK_HOME": str(tmp_path), "SPARK_SUBMIT_OPTS": "-Dmine=1"}
    use_archive(environ)
    assert environ["SPARK_SUBMIT_OPTS"].startswith(f'"-XX:SharedArchiveFile={tmp_path / FILE}"')
    assert environ["SPARK_SUBMIT_OPTS"].endswith(" -Dmine=1")
    once = dict(environ)
    use_archive(environ)
    assert environ == once


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=mine.jsa", "-XX:ArchiveClassesAtExit=mine.jsa"])
def test_the_users_own_archive_stays(tmp_path: Path, own: str) -> None:
    (tmp_path / FILE).touch()
    environ = {"SPARK_HOME": str(tmp_path), "SPARK_SUBMIT_OPTS": own}
    use_archive(environ)
    assert environ["SPARK_SUBMIT_OPTS"] == own


def test_spark_is_looked_for_only_where_no_archive_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", searched.append)
    use_archive({"SPARK_SUBMIT_OPTS": "-XX:SharedArchiveFile=mine.jsa"})
    assert not searched
    use_archive({})
    assert searched == ["pyspark"]


def test_without_an_archive_nothing_changes(tmp_path: Path) -> None:
    environ = {"SPARK_HOME": str(tmp_path)}
    use_archive(environ)
    assert environ == {"SPARK_HOME": str(tmp_path)}


def test_a_folder_that_cannot_be_written_to_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"run this as the user who installed Spark.*folder="):
        make_archive(os.environ, tmp_path / "not there" / FILE)


def test_a_spark_that_does_not_start_leaves_the_archive_as_it_was(tmp_path: Path) -> None:
    archive = tmp_path / FILE
    archive.write_text("of before")
    with pytest.raises(CheckpointError, match="Spark could not run a small stream"):
        make_archive({**os.environ, "SPARK_HOME": str(tmp_path)}, archive)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert archive.read_text() == "of before"
