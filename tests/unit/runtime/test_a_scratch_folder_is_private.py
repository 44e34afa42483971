import fcntl
import tempfile
from pathlib import Path
from typing import IO

import pytest

from dagster_ckpt.runtime import scratch


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    flock = fcntl.flock
    removed: list[Path] = []

    def late(lock: IO[bytes], operation: int) -> None:
        if not removed and operation == fcntl.LOCK_EX:
            removed.extend(tmp_path.iterdir())
            scratch.remove_abandoned()
        flock(lock, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    forged = scratch.forge((), (), {}, None, {}, "0123456789abcdef" * 2)
    scratch.remove_abandoned()
    [root] = tmp_path.iterdir()
    assert removed not in ([], [root])
    assert forged.offsets(forged.last_batch) == ()
    forged.remove()
    assert list(tmp_path.iterdir()) == []
