import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark import process_folder as folders
from dagster_ckpt.runtime.spark.process_folder import (
    note_elsewhere,
    process_folder,
    remove_abandoned,
    use_process_folder,
)

UUID = "01234567-89ab-cdef-0123-456789abcdef"
Ended = Callable[[], Path]


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, as sockets need; no JVM of this process counts."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setattr(folders, "_has_jvm", lambda _environ: False)
        yield Path(name)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Makes the folder of a process that has ended: the kernel has released its locks."""

    numbers = count(-1, -1)

    def folder() -> Path:
        with monkeypatch.context() as patch:
            opened, open_lock = list[int](), folders._open_lock

            def noted(root: Path) -> int:
                opened.append(open_lock(root))
                return opened[-1]

            patch.setattr(folders, "_open_lock", noted)
            patch.setattr(os, "getpid", partial(next, numbers))
            root = process_folder()
        os.close(opened[-1])
        return root

    return folder


def test_no_other_user_can_enter_it_whatever_the_umask(temporary: Path) -> None:
    before = os.umask(0)
    try:
        folder = process_folder()
    finally:
        os.umask(before)
    assert folder == process_folder()
    assert folder.parent == temporary / f"dagster-ckpt-{os.geteuid()}"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)} == {0o700}


def test_a_folder_that_others_can_enter_is_refused_and_spark_keeps_its_ways(temporary: Path) -> None:
    (temporary / f"dagster-ckpt-{os.geteuid()}").mkdir()
    (temporary / f"dagster-ckpt-{os.geteuid()}").chmod(0o775)
    environ: dict[str, str] = {}
    use_process_folder(environ)
    assert environ == {}
    for use in (process_folder, remove_abandoned):
        with pytest.raises(InvalidPipelineError, match=r"mode 0775; chmod 700 it.*Choose another one with TMPDIR"):
            use()


def test_a_jvm_is_given_it_and_again_the_same(temporary: Path) -> None:
    environ = {"SPARK_SUBMIT_OPTS": "-Dmine=1"}
    use_process_folder(environ)
    once = {"SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={process_folder()}" -Dmine=1', "PYSPARK_UDS_MODE": "true"}
    assert environ == once
    use_process_folder(environ)
    assert environ == once


def test_a_childs_jvm_is_given_the_childs_own(temporary: Path, ended: Ended) -> None:
    """A parent's is removed when the parent has ended."""
    option = f'-XX:+UseSerialGC "-Djava.io.tmpdir={ended()}" -Dmine=1'
    environ = {"SPARK_SUBMIT_OPTS": option}
    use_process_folder(environ)
    assert environ["SPARK_SUBMIT_OPTS"] == f'"-Djava.io.tmpdir={process_folder()}" -XX:+UseSerialGC -Dmine=1'


def test_the_users_own_temporary_folder_stays_without_sockets(temporary: Path) -> None:
    environ = {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/data/tmp"}
    use_process_folder(environ)
    assert environ == {"SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/data/tmp"}


def test_a_long_path_gets_no_sockets(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ("container_" * 6)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("container_" * 6)))
    environ: dict[str, str] = {}
    use_process_folder(environ)
    assert set(environ) == {"SPARK_SUBMIT_OPTS"}


def test_a_child_with_a_longer_path_has_no_sockets_of_its_parents(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ: dict[str, str] = {}
    use_process_folder(environ)
    assert environ["PYSPARK_UDS_MODE"] == "true"
    (tmp_path / ("container_" * 6)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("container_" * 6)))
    use_process_folder(environ)
    assert set(environ) == {"SPARK_SUBMIT_OPTS"}


def test_a_jvm_that_runs_is_told_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    environ = {"PYSPARK_GATEWAY_PORT": "1"}
    use_process_folder(environ)
    assert environ == {"PYSPARK_GATEWAY_PORT": "1"}


def test_what_ended_processes_left_goes_and_what_lives_stays(temporary: Path, ended: Ended) -> None:
    own, other = process_folder(), ended()
    (other / f"blockmgr-{UUID}" / "00").mkdir(parents=True)
    half_made = own.parent / "half-made"  # its process ended before it had a lock
    half_made.mkdir()
    with (ended() / "lock").open("rb+") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        remove_abandoned()
        assert not other.exists()
        assert not half_made.exists()
        assert own.exists()
        assert Path(alive.name).exists()


def test_the_folder_of_a_jvm_that_still_runs_stays(temporary: Path, ended: Ended) -> None:
    root, own = ended(), process_folder()
    command = [sys.executable, "-c", "print(flush=True); input()", f"-Djava.io.tmpdir={root}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as jvm:
        assert jvm.stdout is not None
        jvm.stdout.readline()  # it runs
        remove_abandoned()
        assert root.exists()
        jvm.communicate(b"\n")
    remove_abandoned()
    assert list(own.parent.iterdir()) == [own]


def test_of_what_is_elsewhere_sparks_folders_go(
    temporary: Path, tmp_path: Path, ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparks, cut = [tmp_path / f"{name}-{UUID}" for name in ("blockmgr", "spark")], tmp_path / "spark-0123"
    for folder in (*sparks, cut):
        folder.mkdir()
    root = ended()
    monkeypatch.setattr(folders, "process_folder", lambda: root)
    note_elsewhere([*sparks, cut])
    monkeypatch.setattr(folders, "process_folder", process_folder)
    remove_abandoned()
    assert list(tmp_path.iterdir()) == [cut]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, removed = fcntl.flock, list[Path]()

    def late(lock: int, operation: int) -> None:
        if not removed and operation == fcntl.LOCK_EX:
            removed.extend((temporary / f"dagster-ckpt-{os.geteuid()}").iterdir())
            folders._remove(removed[0])
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    folder = process_folder()
    assert removed not in ([], [folder])
    assert list(folder.parent.iterdir()) == [folder]


def test_a_process_without_a_jvm_leaves_nothing(temporary: Path) -> None:
    program = "from dagster_ckpt.runtime.spark.process_folder import process_folder; print(process_folder())"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert Path(done.stdout.strip()).parent == temporary / f"dagster-ckpt-{os.geteuid()}"
    assert list(Path(done.stdout.strip()).parent.iterdir()) == []
