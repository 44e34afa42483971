"""Folders on a disk: `make test` keeps all that tests write in memory, but for the tests of what is a disk's."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORK = Path(__file__).parents[2] / ".work"


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    """A new folder on the checkout's file system, gone afterwards."""
    WORK.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="disk-", dir=WORK) as folder:
        yield Path(folder)
