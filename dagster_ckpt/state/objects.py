"""Immutable objects as the state engine writes and reads them: created once, read whole."""

import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.state.remote.remote_bytes import REQUEST_BYTES_MAX, FarBytes, FarTraffic, MemoryPlace
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore

_TRIES = 2
"""How often a create is tried whose object exists, as the store says, and is not there."""


def create(store: ObjectStore, name: str, data: memoryview) -> None:
    """Create an object, durable when this returns. The name must be unique (`FileId`).

    A crash leaves an object that no manifest names: garbage, and nothing else. Raises `CorruptStateError` where it is
    gone already: the files of a fenced writer are collected while it still writes.
    """
    for _ in range(_TRIES):
        # A client that retries after a lost reply finds the bytes of its first try there. If they are gone, or never
        # were, the same bytes are put again: that is right for a writer that may go on, and garbage of one that is
        # fenced. A store that refuses again is not asked for long, because the task's next try has another name.
        if store.put_if_absent(name, data):
            return
        try:
            same = _has(store, name, data.cast("B"))
        except ObjectMissingError:
            continue
        if same:
            return
        raise CorruptStateError(
            f"a new file's name is taken by other bytes: report this, and do not run two checkouts of dagster-ckpt on "
            f"one store. file={name}, store={store.url}"
        )
    raise CorruptStateError(
        f"a file was removed right after it was written: look who else writes to this folder. "
        f"file={name}, store={store.url}"
    )


def _has(store: ObjectStore, name: str, data: memoryview) -> bool:
    """Whether an object has these bytes. A large one is read in parts: all of it in one reply may take too long."""
    if len(data) <= REQUEST_BYTES_MAX:
        return store.get(name) == data
    if store.size(name) != len(data):
        return False
    starts = range(0, len(data), REQUEST_BYTES_MAX)
    parts = ((start, data[start : start + REQUEST_BYTES_MAX]) for start in starts)
    return all(store.get_range(name, start, len(part)) == part for start, part in parts)


def contents(store: ObjectStore, name: str, size: int) -> pa.Buffer:
    """All bytes of an object of `size` bytes: mapped where the object is on this host's disk, else read into memory.

    Raises `CorruptStateError` where it is missing or has another size, `StoreUnavailableError` where the disk refuses.
    A writer checks first whether a newer term has begun.
    """
    path = store.local_path(name)
    if path is None and size > REQUEST_BYTES_MAX:
        # One large response would be held twice in memory, and restarted whole where it breaks off.
        far = FarBytes(store, name, MemoryPlace(size), FarTraffic())
        far.fetch([(0, size)])
        return far.data
    try:
        if path is None:
            data = pa.py_buffer(store.get(name))
        else:
            with pa.memory_map(str(path)) as mapped:
                data = mapped.read_buffer()
    except (ObjectMissingError, FileNotFoundError) as error:
        raise CorruptStateError(
            f"a file of the stream is missing: restore it from a backup, or roll back to an epoch that does not need "
            f"it. file={name}, store={store.url}"
        ) from error
    except OSError as error:
        raise StoreUnavailableError(
            f"a file of the stream cannot be read: see what is wrong with it, then try again. reason={error.strerror}, "
            f"file={name}, store={store.url}"
        ) from error
    if data.size != size:
        raise CorruptStateError(
            f"a file of the stream has lost or gained bytes: read or roll back to an epoch that does not need it. "
            f"file={name}, bytes={data.size}, expected={size}"
        )
    return data
