import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.protocol.manifest.manifest import FileSeen, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.declared.sources import Source
from dagster_ckpt.runtime.driver import seen_files, spark_checkpoint


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock = fcntl.flock
    removed: list[Path] = []

    def late(lock: IO[bytes], operation: int) -> None:
        if not removed and operation == fcntl.LOCK_EX:
            removed.extend(tmp_path.iterdir())
            spark_checkpoint.remove_abandoned()
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    checkpoint = spark_checkpoint.build_checkpoint((), (), {}, None, {}, "0123456789abcdef" * 2)
    spark_checkpoint.remove_abandoned()
    [root] = tmp_path.iterdir()
    assert removed not in ([], [root])
    assert checkpoint.offsets(checkpoint.last_batch) == ()
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_making_fails_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as for a damaged object with files seen: they are read while the folder is written."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def damaged() -> Iterator[pa.Table]:
        yield seen_files.table_of([FileSeen("file:///in/a", 1)])
        raise CorruptStateError("damaged")

    source = Source(SourceIdentity("csv", "file:/in"), 0, (0,), reads_files=True)
    position = SourcePosition(source.identity, current='{"logOffset":3}')
    with pytest.raises(CorruptStateError):
        spark_checkpoint.build_checkpoint((source,), (position,), {0: damaged()}, 3, {}, "0123456789abcdef" * 2)
    assert list(tmp_path.iterdir()) == []
