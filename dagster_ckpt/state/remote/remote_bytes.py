"""The bytes of an object in a remote store: fetched when they are needed, with as few requests as possible."""

import mmap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

PAGE = mmap.PAGESIZE
"""What is fetched begins and ends at multiples of this (or at the object's end)."""

REQUEST_BYTES_MAX = 8 * 1024 * 1024
"""Far more than the time of a request is worth, and small enough that several make a stream faster. No request crosses
a multiple of it, so no block of a file is in two of them."""

_GAP_BYTES_MAX = 64 * 1024
"""A gap this small is fetched too: one more request to an object store costs milliseconds."""

Range = tuple[int, int]
"""Bytes `[start, until)`."""

Damaged = Callable[[int, memoryview], Sequence[Range]]
"""Which ranges are damaged of bytes that begin at this place of the object."""

Spread = Callable[[Sequence[Callable[[], None]]], None]
"""Runs jobs, several at once if it can; returns when all are done, and raises the first failed job's error."""


def in_turn(jobs: Sequence[Callable[[], None]]) -> None:
    """One job after the other."""
    for job in jobs:
        job()


class Place(Protocol):
    """Where the bytes of one object are put: all that was put there can be read from `data`."""

    @property
    def data(self) -> pa.Buffer:
        """As many bytes as the object has; those that were never put are zero."""
        ...

    def absent(self, wanted: Range) -> Iterator[Range]:
        """What of this range, which begins and ends at pages, was never put; ascending, also beginning at pages."""
        ...

    def put(self, start: int, data: bytes) -> None:
        """Put bytes, also over others; begins and ends as `absent` does."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether the bytes may be kept: they take neither memory nor uncounted room on the disk."""
        ...

    def use(self) -> None:
        """Mark the bytes as recently used, so that others are evicted first."""
        ...


class MemoryPlace:
    """Bytes in memory, not kept beyond their use. Bytes that were never put take no memory."""

    def __init__(self, size: int) -> None:
        self._mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.data = pa.py_buffer(self._mapped)

    def absent(self, wanted: Range) -> Iterator[Range]:
        yield wanted

    def put(self, start: int, data: bytes) -> None:
        self._mapped[start : start + len(data)] = data

    @property
    def lasting(self) -> bool:
        return False

    def use(self) -> None:
        pass


@dataclass
class FarTraffic:
    """What was fetched, for metrics. `damaged` are the ranges of the cache that had to be fetched again."""

    requests: int = 0
    bytes: int = 0
    damaged: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, requests: int = 0, bytes_: int = 0, damaged: int = 0) -> None:
        """Count more; for any thread."""
        with self._lock:
            self.requests += requests
            self.bytes += bytes_
            self.damaged += damaged


class FarBytes:
    """One object of a remote store. Implements `lsm.file.blocks.Far`. Not for use by several threads at once."""

    def __init__(
        self, store: ObjectStore, name: str, place: Place, traffic: FarTraffic, spread: Spread = in_turn
    ) -> None:
        self._store = store
        self._name = name
        self._place = place
        self._traffic = traffic
        self._spread = spread
        self._size: int = place.data.size
        self._fetched = np.zeros(-(-self._size // PAGE), dtype=np.bool_)

    @property
    def origin(self) -> str:
        """The store, for errors."""
        return self._store.url

    @property
    def data(self) -> pa.Buffer:
        """All bytes; only those that were fetched are those of the object."""
        return self._place.data

    def fetch(self, ranges: Iterable[Range], damaged: Damaged | None = None) -> None:
        """Fetch the bytes of these ascending ranges that are not there yet; damaged ones are not put.

        Bytes outside the ranges stay as they are: they may be trusted already. Other processes may share the place and
        fetch the same bytes at the same time: so `damaged` reports damage before it replaces bytes that they trust.
        Raises `StoreUnavailableError`, and `CorruptStateError` where the object is missing or shorter. The call may be
        repeated then.
        """
        self._fetch(
            (missing for pages in _pages(ranges) for run in self._new(pages) for missing in self._place.absent(run)),
            damaged,
        )

    def renew(self, ranges: Sequence[Range], damaged: Damaged | None = None) -> None:
        """Fetch these bytes again: those that are there are damaged. Otherwise as `fetch`."""
        pages = list(_pages(ranges))
        self._traffic.add(damaged=sum(not self._fetched[start:until].all() for start, until in pages))
        self._fetch((self._bytes(each) for each in pages), damaged)

    def _fetch(self, ranges: Iterable[Range], damaged: Damaged | None) -> None:
        requests = list(_requests(ranges))
        self._spread([partial(self._fetch_parts, parts, damaged) for parts in requests])
        for start, until in chain.from_iterable(requests):
            self._fetched[start // PAGE : -(-until // PAGE)] = True
        self._traffic.add(len(requests), sum(parts[-1][1] - parts[0][0] for parts in requests))

    def _fetch_parts(self, parts: Sequence[Range], damaged: Damaged | None) -> None:
        """Fetch parts of the object with one request."""
        first = parts[0][0]
        data = self._answer(first, parts[-1][1])
        bad = [] if damaged is None else [self._bytes(each) for each in _pages(damaged(first, memoryview(data)))]
        for start, until in _without(parts, bad):
            self._place.put(start, data[start - first : until - first])

    def _answer(self, start: int, until: int) -> bytes:
        data = self._request(start, until)
        if len(data) != until - start:
            # A broken connection may look like the end of the object, so try once more; a shorter object stays shorter.
            data = self._request(start, until)
        if len(data) != until - start:
            raise CorruptStateError(
                "a file of the stream has lost bytes: read or roll back to an epoch that does not need it. "
                f"file={self._name}, bytes={start}..{until}, found={len(data)}, store={self.origin}"
            )
        return data

    def _request(self, start: int, until: int) -> bytes:
        try:
            return self._store.get_range(self._name, start, until - start)
        except ObjectMissingError as error:
            raise CorruptStateError(
                "a file of the stream is missing: restore it from a backup, or roll back to an epoch that does not "
                f"need it. file={self._name}, store={self.origin}"
            ) from error

    def _new(self, pages: Range) -> Iterator[Range]:
        """The bytes of those pages that this object did not fetch yet."""
        missing = ~self._fetched[pages[0] : pages[1]]
        edges = np.flatnonzero(np.diff(missing, prepend=False, append=False)) + pages[0]
        for start, until in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            yield self._bytes((start, until))

    def _bytes(self, pages: Range) -> Range:
        return pages[0] * PAGE, min(pages[1] * PAGE, self._size)


def _pages(ranges: Iterable[Range]) -> Iterator[Range]:
    """The pages of ascending ranges of bytes, each page once."""
    seen = 0
    for start, until in ranges:
        first, end = max(start // PAGE, seen), -(-until // PAGE)
        if first < end:
            yield first, end
            seen = end


def _requests(ranges: Iterable[Range]) -> Iterator[list[Range]]:
    """Ascending ranges, those with little between them together."""
    parts: list[Range] = []
    for start, until in _pieces(ranges):
        if parts and (
            start - parts[-1][1] > _GAP_BYTES_MAX or start // REQUEST_BYTES_MAX > parts[0][0] // REQUEST_BYTES_MAX
        ):
            yield parts
            parts = []
        if parts and parts[-1][1] == start:
            parts[-1] = parts[-1][0], until
        else:
            parts.append((start, until))
    if parts:
        yield parts


def _pieces(ranges: Iterable[Range]) -> Iterator[Range]:
    """The ranges, cut where a request must end."""
    for start, until in ranges:
        for place in range(start - start % REQUEST_BYTES_MAX, until, REQUEST_BYTES_MAX):
            yield max(place, start), min(place + REQUEST_BYTES_MAX, until)


def _without(ranges: Iterable[Range], others: Sequence[Range]) -> Iterator[Range]:
    """What is left of ascending ranges without ascending others."""
    for start, until in ranges:
        left = start
        for other in others:
            if other[0] < until and other[1] > left:
                if left < other[0]:
                    yield left, other[0]
                left = other[1]
        if left < until:
            yield left, until


def spread_over(pool: IoPool) -> Spread:
    """Runs jobs on this pool, which must be one for reads alone.

    In a pool shared with writes, a look-up would queue after files that are not urgent, and a job of the pool that
    reads would wait for a thread while it holds one.
    """

    def spread(jobs: Sequence[Callable[[], None]]) -> None:
        if len(jobs) == 1:
            jobs[0]()
            return
        begun = [pool.submit("reading from the store", job) for job in jobs]
        errors = []
        for job in begun:
            try:
                job.result()
            except Exception as error:  # noqa: BLE001  (raised below, once no job puts bytes anywhere any more)
                errors.append(error)
        if errors:
            raise errors[0]

    return spread


OPENERS = spread_over(IoPool(threads=8))
"""For runs that are opened side by side: each reads with `READERS`, and a pool must not wait for itself."""

READERS = spread_over(IoPool(threads=8))
"""For readers of whole tables: 8 requests are about what a host's network takes. Its threads start when needed."""
