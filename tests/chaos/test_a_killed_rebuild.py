"""SIGKILL of a process that rebuilds a stream, at each place where it matters: nothing of the swap is done, or all."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.object_names import folder_of, manifest_name
from tests.chaos.rebuilder import NAME
from tests.spark.input_files import drop

FILES = 12
BESIDE = f"{NAME}/~rebuild-1"
OLD, NEW = {"total"}, {"largest"}


@contextmanager
def _process(root: Path, what: str) -> Iterator[subprocess.Popen[bytes]]:
    """That process in a group of its own, with Spark's JVM and workers; all of it is gone afterwards."""
    command = [sys.executable, "-m", "tests.chaos.rebuilder", str(root), what]
    with (
        (root / "log").open("ab") as log,
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as it,
    ):
        try:
            yield it
        finally:
            if it.poll() is None:
                os.killpg(it.pid, signal.SIGKILL)


def _ends_well(root: Path, what: str) -> None:
    with _process(root, what) as process:
        assert process.wait(180) == 0, (root / "log").read_text()[-3000:]


def _killed_when(root: Path, happened: Callable[[], object]) -> bool:
    """Let a process rebuild the stream, and kill it once that is so. False where it had ended before."""
    with _process(root, "rebuild") as process:
        end_s = time.monotonic() + 180
        while process.poll() is None:
            if happened():
                return True
            assert time.monotonic() < end_s, (root / "log").read_text()[-3000:]
            time.sleep(0.002)
    assert process.returncode == 0, (root / "log").read_text()[-3000:]
    return False


def _history(root: Path, name: str = NAME) -> StreamHistory:
    return CheckpointStore((root / "store").as_uri()).stream(name)


def _table(root: Path) -> dict[str, int]:
    """By key the column that tells which code made the table."""
    rows = _history(root).read().to_pylist()
    return {row["k"]: row.get("largest", row.get("total")) for row in rows}


def _columns(root: Path) -> set[str]:
    return set(_history(root).read().column_names) - {"k", "n"}


@pytest.mark.timeout(600)
def test_whenever_the_process_is_killed_the_stream_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    values: dict[str, list[int]] = {}
    for number in range(FILES):
        rows = {f"k{(number + each) % 7}": 10 * number + each for each in range(5)}
        for key, value in rows.items():
            values.setdefault(key, []).append(value)
        drop(tmp_path / "inbox", number, pa.table({"k": list(rows), "v": list(rows.values())}))
    _ends_well(tmp_path, "make")
    old = {key: sum(each) for key, each in values.items()}
    assert (_table(tmp_path), _columns(tmp_path)) == (old, OLD)
    store = tmp_path / "store"
    beside, stream = store / folder_of(BESIDE.split("/")), store / NAME

    def epochs_beside() -> int:
        return len(list((beside / "changes").glob("*"))) + len(list((beside / "manifest").glob("*")))

    before = set(stream.rglob("*"))
    swap_name = Path(manifest_name(Version(_history(tmp_path).manifest().version + 1))).name
    kills = 0
    for happened in (
        lambda: epochs_beside() >= FILES // 2,
        (beside / "pins").exists,
        lambda: set((stream / "changes").glob("*.parquet")) - before,
        (stream / "manifest" / swap_name).exists,
    ):
        if not _killed_when(tmp_path, happened):
            break
        kills += 1
        columns = _columns(tmp_path)
        assert columns in (OLD, NEW)
        assert _table(tmp_path) == (old if columns == OLD else {key: max(each) for key, each in values.items()})
        assert _history(tmp_path).verify().whole
        if columns == NEW:
            break
    assert kills >= 2
    _ends_well(tmp_path, "rebuild")
    assert (_table(tmp_path), _columns(tmp_path)) == ({key: max(each) for key, each in values.items()}, NEW)
    swaps = [info for info in _history(tmp_path).epochs() if info.rows_in == 0]
    assert len(swaps) == 1, "it was done once"
    assert _history(tmp_path).verify().whole
