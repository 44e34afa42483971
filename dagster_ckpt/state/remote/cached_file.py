"""One run's file in a cache: sparse, mapped, filled as the run is read."""

import ctypes
import mmap
import os
import weakref
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from dagster_ckpt.state.remote.remote_bytes import PAGE, Range

_MAP_FIXED = 0x10
"""To replace what is mapped at an address: the one flag that Python's mmap does not know. The same on every processor
that Arrow is built for."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.mmap.restype = ctypes.c_void_p


class Room(Protocol):
    """Limits what is written to a cache's disk."""

    def room_for(self, wanted: int) -> bool:
        """Count bytes that are about to be written. False: do not write them."""
        ...

    def on_refusal(self, error: OSError) -> None:
        """The disk refused a write."""
        ...


class CachedFile:
    """Implements `remote_bytes.Place`.

    The mapping shows what is written to the file. What the disk refuses is put into memory at the same addresses, page
    by page: no page is half file, half memory.
    """

    def __init__(self, folder: int, name: str, size: int, room: Room) -> None:
        """Open or make the file in the folder of that descriptor. Raises `OSError`."""
        self._descriptor = _open(folder, name, size)
        weakref.finalize(self, os.close, self._descriptor)
        self.data = pa.py_buffer(mmap.mmap(self._descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))
        self._room = room
        self._in_memory: list[Range] = []

    def absent(self, wanted: Range) -> Iterator[Range]:
        """The holes. A file system that knows of none shows zeros there, which no checksum allows."""
        at, until = wanted
        while (hole := _next(self._descriptor, at, os.SEEK_HOLE, until)) < until:
            at = _next(self._descriptor, hole, os.SEEK_DATA, until)
            yield hole, at

    def put(self, start: int, data: bytes) -> None:
        written, until = self.write(start, memoryview(data)), start + len(data)
        # A page that is memory already does not show what is written to the file.
        if not written or any(start < other[1] and other[0] < until for other in self._in_memory):
            _put_into_memory(self.data.address + start, data)
            self._in_memory.append((start, until))

    @property
    def lasting(self) -> bool:
        return not self._removed and not self._in_memory

    def use(self) -> None:
        try:
            os.utime(self._descriptor)  # what was written or used longest ago goes first
        except OSError as error:
            self._room.on_refusal(error)

    def write(self, start: int, data: memoryview) -> bool:
        """Write bytes to the file, if the cache has room for them. A crash in the middle leaves fewer."""
        # An evicted file belongs to its reader alone, and goes with it: it is not counted.
        if not self._removed and not self._room.room_for(-(-len(data) // PAGE) * PAGE):
            return False
        try:
            while data:
                written = os.pwrite(self._descriptor, data, start)
                start, data = start + written, data[written:]
        except OSError as error:
            self._room.on_refusal(error)
            return False
        return True

    @property
    def _removed(self) -> bool:
        return os.fstat(self._descriptor).st_nlink == 0


def _open(folder: int, name: str, size: int) -> int:
    """A descriptor of the file, which has its full size."""
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)  # it only grows: no mapping ever loses its bytes
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _put_into_memory(address: int, data: bytes) -> None:
    """Replace the pages at an address, which are mapped from a file, by memory with these bytes.

    Writing to a private mapping would not do: where the file has a hole, the page would have to be read first, and a
    full tmpfs answers that with SIGBUS.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    if _LIBC.mmap(address, len(data), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    ctypes.memmove(address, data, len(data))


def _next(descriptor: int, at: int, kind: int, otherwise: int) -> int:
    """Where the next hole (or data) begins; `otherwise` where there is none before that."""
    try:
        return min(os.lseek(descriptor, at, kind), otherwise)
    except OSError:
        return otherwise  # no data up to the end
