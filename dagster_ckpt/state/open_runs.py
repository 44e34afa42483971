"""Runs that this process has opened: a run never changes, so it is opened once."""

from collections import OrderedDict

import pyarrow as pa

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.lsm.run import Run
from dagster_ckpt.lsm.run_file import decode
from dagster_ckpt.lsm.view import View, shown_of
from dagster_ckpt.protocol.manifest import RunRef
from dagster_ckpt.state.objects import contents
from dagster_ckpt.storage.object_store import ObjectStore

_MAPPED_MAX = 256


class OpenRuns:
    """Opens the runs of manifests. Those mapped from a local disk stay open, the least recently used go first.

    What was checked against its checksums stays checked. Not for use by several threads at once.
    """

    def __init__(self, mapped_max: int = _MAPPED_MAX) -> None:
        self._mapped_max = mapped_max
        self._mapped: OrderedDict[tuple[str, str, str], Run] = OrderedDict()

    def view(self, store: ObjectStore, ref: RunRef, schema: pa.Schema) -> View:
        """The run as its manifest shows it; `schema` is the state table's. Raises `CorruptStateError`."""
        return View(self._run(store, ref, schema), shown_of(ref.clip, ref.moved_lo, ref.moved_hi))

    def _run(self, store: ObjectStore, ref: RunRef, schema: pa.Schema) -> Run:
        if ref.ancestor is not None:
            raise IncompatibleStateError(
                f"this release does not read forked streams: install a later one. "
                f"file={ref.path}, ancestor={ref.ancestor}"
            )
        # The checksum, because a stream that was removed and begun again may use a file's name again.
        name = (store.url, ref.path, ref.checksum)
        run = self._mapped.pop(name, None)
        if run is None:
            run = decode(ref.path, contents(store, ref.path, ref.bytes), ref.checksum, schema)
        if store.local_path(ref.path) is not None:
            self._mapped[name] = run
            while len(self._mapped) > self._mapped_max:
                self._mapped.popitem(last=False)
        return run
