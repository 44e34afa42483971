"""What all tasks of a worker process share: open runs, threads, and the memory they may use."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakValueDictionary

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.lsm.file.run_file import decode
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.objects import contents
from dagster_ckpt.state.remote.remote_bytes import OPENERS, READERS, FarBytes, FarTraffic, MemoryPlace, Place, Spread
from dagster_ckpt.state.remote.run_cache import RunCache, RunId
from dagster_ckpt.storage.stores.object_store import ObjectStore

_MAPPED_MAX = 1024

_FAR_MAX = 256
"""Fewer of a remote store: in the cache each takes two file descriptors, and the limit is often 1024."""

_WHOLE_BYTES_MAX = 256 * 1024
"""A run this small is fetched whole with the first request."""


@dataclass(frozen=True)
class _Opened:
    """`place` is None for a run on a local disk. `schema` is the state table's, by which the run is read."""

    run: Run
    place: Place | None
    schema: pa.Schema

    @property
    def lasting(self) -> bool:
        return self.place is None or self.place.lasting

    def is_read_by(self, schema: pa.Schema) -> bool:
        """Whether a run opened with this schema would be the same: that of a table that has changed is another one."""
        return self.schema is schema or bool(self.schema.equals(schema))


class OpenRuns:
    """Opens the runs of manifests. Those mapped from a local disk stay open, the least recently used go first.

    From runs of a remote store only what is used is read, by `spread`: into the cache, where they stay open too, or
    into memory, shared by all callers for as long as one of them holds the run. What was checked against its checksums
    stays checked. Not thread-safe, except `keep`.
    """

    def __init__(self, mapped_max: int = _MAPPED_MAX, cache: RunCache | None = None, spread: Spread = READERS) -> None:
        self._mapped_max = mapped_max
        self._cache = cache
        self._spread = spread
        self._local: OrderedDict[RunId, _Opened] = OrderedDict()
        self._far: OrderedDict[RunId, _Opened] = OrderedDict()
        self._held_by_others: WeakValueDictionary[RunId, Run] = WeakValueDictionary()
        self.traffic = FarTraffic()

    def view(self, store: ObjectStore, ref: RunRef, schema: pa.Schema) -> View:
        """The run as its manifest shows it; `schema` is the state table's. Raises `CorruptStateError`."""
        return View(self.run(store, ref, schema), ref.visible)

    def run(self, store: ObjectStore, ref: RunRef | ChangeRef, schema: pa.Schema) -> Run:
        """The run of a file, all of it; `schema` is the state table's. Raises `CorruptStateError`."""
        name = RunId(store.url, ref.name, ref.checksum)
        if store.local_path(ref.name) is None:
            return self._newest(self._far, name, schema, lambda: self._opened_far(store, ref, schema, name), _FAR_MAX)
        return self._newest(self._local, name, schema, lambda: _opened_local(store, ref, schema), self._mapped_max)

    def side_by_side(self, store: ObjectStore, refs: Iterable[RunRef], schema: pa.Schema) -> Sequence[Run]:
        """Open those runs of a remote store that are not open yet, several at a time. Raises `CorruptStateError`.

        A process that has just begun has none open, and each takes two requests that wait for each other. Hold what is
        returned until the runs are in use: without a cache nothing else does.
        """
        closed = {RunId(store.url, ref.name, ref.checksum): ref for ref in refs if store.local_path(ref.name) is None}
        closed = {name: closed[name] for name in list(closed)[:_FAR_MAX] if self._is_closed(name, schema)}
        places = {name: self._place(name, ref) for name, ref in closed.items()}
        opened: dict[RunId, _Opened] = {}

        def open_one(name: RunId) -> None:
            opened[name] = self._read_far(store, closed[name], schema, places[name])

        if len(closed) < 2:
            return []
        OPENERS([partial(open_one, name) for name in closed])
        return [self._newest(self._far, name, schema, partial(opened.__getitem__, name), _FAR_MAX) for name in closed]

    def forget(self, store: ObjectStore, ref: RunRef) -> None:
        """Close a run that is about to be deleted."""
        name = RunId(store.url, ref.name, ref.checksum)
        self._local.pop(name, None)
        self._far.pop(name, None)

    def keep(self, store: ObjectStore, path: str, checksum: str, data: pa.Buffer) -> None:
        """Cache a run of a remote store that this process has just made durable."""
        if self._cache is not None and store.local_path(path) is None:
            self._cache.keep(RunId(store.url, path, checksum), memoryview(data))

    def _newest(
        self,
        opened: "OrderedDict[RunId, _Opened]",
        name: RunId,
        schema: pa.Schema,
        begin: Callable[[], _Opened],
        opened_max: int,
    ) -> Run:
        """The run, opened if it is not open yet, and marked as the most recently used."""
        found = opened.pop(name, None)
        if found is None or not found.lasting or not found.is_read_by(schema):
            held = self._held_by_others.get(name)
            if held is not None and (held.table.schema if held.schema is None else held.schema).equals(schema):
                return held
            # The disk gets the bytes of a run that the cache has evicted back once it is unmapped everywhere.
            for gone in [other for other, each in opened.items() if not each.lasting]:
                del opened[gone]
            found = begin()
        elif found.place is not None:
            found.place.use()
        if found.lasting:
            opened[name] = found
            while len(opened) > opened_max:
                opened.popitem(last=False)
        else:
            self._held_by_others[name] = found.run
        return found.run

    def _is_closed(self, name: RunId, schema: pa.Schema) -> bool:
        found = self._far.get(name)
        return (found is None or not found.lasting or not found.is_read_by(schema)) and name not in self._held_by_others

    def _place(self, name: RunId, ref: RunRef | ChangeRef) -> Place:
        return MemoryPlace(ref.bytes) if self._cache is None else self._cache.open(name, ref.bytes)

    def _opened_far(self, store: ObjectStore, ref: RunRef | ChangeRef, schema: pa.Schema, name: RunId) -> _Opened:
        return self._read_far(store, ref, schema, self._place(name, ref))

    def _read_far(self, store: ObjectStore, ref: RunRef | ChangeRef, schema: pa.Schema, place: Place) -> _Opened:
        far = FarBytes(store, ref.name, place, self.traffic, self._spread)
        if ref.bytes <= _WHOLE_BYTES_MAX:
            far.fetch([(0, ref.bytes)])
        return _Opened(decode(ref.name, place.data, ref.checksum, schema, far), place, schema)


def _opened_local(store: ObjectStore, ref: RunRef | ChangeRef, schema: pa.Schema) -> _Opened:
    return _Opened(decode(ref.name, contents(store, ref.name, ref.bytes), ref.checksum, schema), None, schema)


@dataclass(frozen=True)
class Engine:
    """One per process; for `open_state`.

    `levels_max` is how many levels of runs one epoch may have: then they are merged, before look-ups get slow.
    """

    clock: Clock
    runs: OpenRuns = field(default_factory=OpenRuns)
    io: IoPool = field(default_factory=IoPool)
    budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(256 * 1024 * 1024))
    limits: CompactionLimits = field(default_factory=CompactionLimits)
    levels_max: int = 16
