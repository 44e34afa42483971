"""Runs of remote stores on the local disk: a sparse file for each, filled block by block as it is read.

Every process checks a block against the run's checksums before it uses it. So a block that a crash left half written,
that the disk damaged or that was never fetched is simply fetched.

Any number of processes of one user share a folder:

    lock                   held (flock) while bytes are counted and files removed; holds the bytes counted, 8 of them
    <40 hex digits>.run    a run's file; its time of modification is when it was used last

Removing a file is safe: a process that has it mapped keeps it, and the disk gets the bytes back after the last unmap.
"""

import fcntl
import hashlib
import logging
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.state.remote.cached_file import CachedFile
from dagster_ckpt.state.remote.private_folder import private_folder
from dagster_ckpt.state.remote.remote_bytes import MemoryPlace, Place

_LOG = logging.getLogger(__name__)

SETTING = "cache_dir"
"""The user's setting that names the folder."""

_LOCK = "lock"
_SUFFIX = ".run"
_COUNT = struct.Struct("<q")
_DISK_BLOCK_BYTES = 512
"""The unit of `st_blocks` on every file system."""

_SPARE = 8
"""Eviction frees this fraction of the limit, so that not every write has to evict."""


def default_folder() -> Path:
    """A folder of this user below the system's temporary one."""
    return Path(tempfile.gettempdir()).absolute() / f"dagster-ckpt-cache-{os.geteuid()}"


@dataclass(frozen=True, slots=True)
class RunId:
    """The identity of a run. A stream that was removed and created again may reuse a path."""

    store: str
    path: str
    checksum: str

    @property
    def file(self) -> str:
        """The name of its file in a cache."""
        text = f"{self.store}\0{self.path}\0{self.checksum}"
        return hashlib.blake2b(text.encode(), digest_size=20).hexdigest() + _SUFFIX


class RunCache:
    """A folder of cached runs which takes at most `limit_bytes` of the disk; the least recently used run goes first.

    One that is evicted while processes have it mapped keeps its room until they unmap it (`Place.lasting`), which they
    do as soon as they open another. Runs stay readable whatever the disk refuses: those bytes are held in memory while
    they are used, and one warning is logged.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        """`folder` is absolute. It is created when the first run is opened: a local store needs none."""
        assert folder.is_absolute(), f"a relative folder would move with the working directory. folder={folder}"
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._warned = False
        self._looked = False

    def open(self, run: RunId, size: int) -> Place:
        """Where a run's bytes are put, with all that is cached of them.

        Raises `InvalidPipelineError` for a folder that does not belong to this user alone.
        """
        if not self._looked:
            self.room_for(0)
        try:
            with private_folder(self._folder, SETTING) as folder:
                place = CachedFile(folder, run.file, size, self)
            place.use()
            return place
        except OSError as error:
            self.on_refusal(error)
            return MemoryPlace(size)

    def keep(self, run: RunId, data: memoryview) -> None:
        """Cache the whole file of a run that this process has just made durable. Never fails."""
        if len(data) > self._limit_bytes:
            return
        try:
            place = self.open(run, len(data))
            if isinstance(place, CachedFile):
                place.write(0, data)
        except (OSError, InvalidPipelineError) as error:
            self.on_refusal(error)

    def room_for(self, wanted: int) -> bool:
        """Count bytes that are about to be written, and evict runs where the limit requires it. False: do not write.

        The count is corrected whenever the folder is scanned: first, and at the limit. Until then it may be
        too high by what a killed process counted and never wrote, or too low by what others were about to write then.
        """
        if wanted > self._limit_bytes:
            return False
        try:
            with self._lock_folder() as (folder, lock):
                counted = os.pread(lock, _COUNT.size, 0)
                total = _COUNT.unpack(counted)[0] if self._looked and len(counted) == _COUNT.size else None
                if total is None or total + wanted > self._limit_bytes:
                    total = self._made_room(folder, self._limit_bytes - wanted)
                os.pwrite(lock, _COUNT.pack(total + wanted), 0)
                self._looked = True
        except OSError as error:
            self.on_refusal(error)
            return False
        return True

    def on_refusal(self, error: OSError | InvalidPipelineError) -> None:
        """Warn once that the disk refuses what should be cached."""
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "the cache's disk refuses, so what it does not take is fetched again whenever it is needed: make room "
                "there, or choose another folder with cache_dir. reason=%s, cache_dir=%s",
                (isinstance(error, OSError) and error.strerror) or error,
                self._folder,
            )

    @contextmanager
    def _lock_folder(self) -> Iterator[tuple[int, int]]:
        """Descriptors of the folder and its lock, opened each time: a forked child would share an open one."""
        with private_folder(self._folder, SETTING) as folder:
            lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield folder, lock
            finally:
                os.close(lock)

    def _made_room(self, folder: int, bytes_max: int) -> int:
        """Evict runs until all take at most `bytes_max`; returns what they take then."""
        files = _files(folder)
        total = sum(file.bytes for file in files)
        if total <= bytes_max:
            return total
        for file in files:
            if total <= bytes_max - self._limit_bytes // _SPARE:
                break
            with suppress(FileNotFoundError):
                os.unlink(file.name, dir_fd=folder)
            total -= file.bytes
        return total


@dataclass(frozen=True, slots=True)
class _File:
    used_ns: int
    name: str
    bytes: int


def _files(folder: int) -> list[_File]:
    """The runs' files, the least recently used first, with the bytes that they take on the disk."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    files.append(_File(status.st_mtime_ns, entry.name, status.st_blocks * _DISK_BLOCK_BYTES))
    return sorted(files, key=lambda file: (file.used_ns, file.name))
