"""Runs that this process has opened: a run never changes, so it is opened once."""

from collections import OrderedDict
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.lsm.run import Run
from dagster_ckpt.lsm.run_file import decode
from dagster_ckpt.lsm.view import View, shown_of
from dagster_ckpt.protocol.manifest import RunRef
from dagster_ckpt.state.far_bytes import FarBytes, FarTraffic, MemoryPlace, Place, Spread, in_turn
from dagster_ckpt.state.objects import contents
from dagster_ckpt.state.run_cache import RunCache, RunId
from dagster_ckpt.storage.object_store import ObjectStore

_MAPPED_MAX = 256

_WHOLE_BYTES_MAX = 256 * 1024
"""A run this small comes whole with its first request."""


@dataclass(frozen=True)
class _Opened:
    """`place` is None for a run on a local disk."""

    run: Run
    place: Place | None

    @property
    def lasting(self) -> bool:
        return self.place is None or self.place.lasting


class OpenRuns:
    """Opens the runs of manifests. Those mapped from a local disk stay open, the least recently used go first.

    Of runs of a remote store only what is used is read, by `spread`: into the cache, or into memory for as long as
    somebody holds the run. What was checked against its checksums stays checked. Not for use by several threads at
    once, but for `keep`.
    """

    def __init__(self, mapped_max: int = _MAPPED_MAX, cache: RunCache | None = None, spread: Spread = in_turn) -> None:
        self._mapped_max = mapped_max
        self._cache = cache
        self._spread = spread
        self._mapped: OrderedDict[RunId, _Opened] = OrderedDict()
        self.traffic = FarTraffic()

    def view(self, store: ObjectStore, ref: RunRef, schema: pa.Schema) -> View:
        """The run as its manifest shows it; `schema` is the state table's. Raises `CorruptStateError`."""
        return View(self.run(store, ref, schema), shown_of(ref.clip, ref.moved_lo, ref.moved_hi))

    def run(self, store: ObjectStore, ref: RunRef, schema: pa.Schema) -> Run:
        """The run of a file, all of it; `schema` is the state table's. Raises `CorruptStateError`."""
        if ref.ancestor is not None:
            raise IncompatibleStateError(
                f"this release does not read forked streams: install a later one. "
                f"file={ref.path}, ancestor={ref.ancestor}"
            )
        name = RunId(store.url, ref.path, ref.checksum)
        opened = self._mapped.pop(name, None)
        if opened is None or not opened.lasting:
            self._let_go()
            opened = self._opened(store, ref, schema, name)
        elif opened.place is not None:
            opened.place.use()
        if opened.lasting:
            self._mapped[name] = opened
            while len(self._mapped) > self._mapped_max:
                self._mapped.popitem(last=False)
        return opened.run

    def keep(self, store: ObjectStore, path: str, checksum: str, data: pa.Buffer) -> None:
        """Keep a run that this process has just made durable where reading it again would ask a remote store."""
        if self._cache is not None and store.local_path(path) is None:
            self._cache.keep(RunId(store.url, path, checksum), memoryview(data))

    def _opened(self, store: ObjectStore, ref: RunRef, schema: pa.Schema, name: RunId) -> _Opened:
        if store.local_path(ref.path) is not None:
            return _Opened(decode(ref.path, contents(store, ref.path, ref.bytes), ref.checksum, schema), None)
        place = MemoryPlace(ref.bytes) if self._cache is None else self._cache.open(name, ref.bytes)
        far = FarBytes(store, ref.path, place, self.traffic, self._spread)
        if ref.bytes <= _WHOLE_BYTES_MAX:
            far.fetch([(0, ref.bytes)])
        return _Opened(decode(ref.path, place.data, ref.checksum, schema, far), place)

    def _let_go(self) -> None:
        """Close what the cache has removed since: its bytes leave the disk with the last one who has it mapped."""
        for name in [name for name, opened in self._mapped.items() if not opened.lasting]:
            del self._mapped[name]
