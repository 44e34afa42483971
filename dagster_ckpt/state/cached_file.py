"""One run's file in a cache: sparse, mapped, filled as the run is read."""

import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from dagster_ckpt.state.far_bytes import PAGE, Range


class Room(Protocol):
    """Says what may be written to a cache's disk."""

    def room_for(self, wanted: int) -> bool:
        """Count bytes that are about to be written. False: do not write them."""
        ...

    def refused(self, error: OSError) -> None:
        """Hear that the disk did not take them."""
        ...


class CachedFile:
    """Implements `far_bytes.Place`.

    The mapping is private and writable: it shows what is written to the file, and what the disk does not take is
    written to the mapping itself, which is memory. Both are put page by page, so no page is ever half of each.
    """

    def __init__(self, folder: int, name: str, size: int, room: Room) -> None:
        """Open or make the file in the folder of that descriptor. Raises `OSError`."""
        self._descriptor = _opened(folder, name, size)
        weakref.finalize(self, os.close, self._descriptor)
        # The mapping holds a descriptor of its own, and with it the lock, for as long as anybody uses `data`.
        self._mapped = mmap.mmap(self._descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.data = pa.py_buffer(self._mapped)
        self._room = room
        self._in_memory = False

    def absent(self, wanted: Range) -> Iterator[Range]:
        """The holes. A file system that knows of none shows zeros there, which no checksum allows."""
        at, until = wanted
        while (hole := _next(self._descriptor, at, os.SEEK_HOLE, until)) < until:
            at = _next(self._descriptor, hole, os.SEEK_DATA, until)
            yield hole, at

    def put(self, start: int, data: bytes) -> None:
        written = self.write(start, memoryview(data))
        # A page once written in memory no longer shows what the file holds.
        if not written or self._in_memory:
            self._in_memory = True
            self._mapped[start : start + len(data)] = data

    @property
    def lasting(self) -> bool:
        return not self._removed and not self._in_memory

    def use(self) -> None:
        os.utime(self._descriptor)  # what was written or used longest ago goes first

    def write(self, start: int, data: memoryview) -> bool:
        """Write bytes to the file, if the cache has room for them. A crash in the middle leaves fewer."""
        # What is written to a file that was removed is the reader's own, and goes with it.
        if not self._removed and not self._room.room_for(-(-len(data) // PAGE) * PAGE):
            return False
        try:
            while data:
                written = os.pwrite(self._descriptor, data, start)
                start, data = start + written, data[written:]
        except OSError as error:
            self._room.refused(error)
            return False
        return True

    @property
    def _removed(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0


def _opened(folder: int, name: str, size: int) -> int:
    """A descriptor of the file, which has its full size and is locked as being in use."""
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            status = os.fstat(descriptor)
            if status.st_nlink:
                if status.st_size < size:
                    os.ftruncate(descriptor, size)  # it only grows: no mapping ever loses its bytes
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # removed since it was opened


def _next(descriptor: int, at: int, kind: int, otherwise: int) -> int:
    """Where the next hole (or data) begins; `otherwise` where there is none before that."""
    try:
        return min(os.lseek(descriptor, at, kind), otherwise)
    except OSError:
        return otherwise  # no data up to the end
