"""One folder of a store, as a store: code that works on one stream can reach no other."""

from collections.abc import Iterator
from pathlib import Path

from dagster_ckpt.protocol.object_names import folder_of, is_object_name, parts_of_name
from dagster_ckpt.storage.stores.object_store import ObjectStore


def folder_store(store: ObjectStore, folder: str) -> ObjectStore:
    """The objects of `store` below `folder`, named from there. No name leads out of it."""
    return _FolderStore(store, folder)


def stream_folder(root: ObjectStore, stream: str) -> ObjectStore:
    """The folder of a stream in the store `root`. Raises `InvalidPipelineError` for an invalid name."""
    return folder_store(root, folder_of(parts_of_name(stream)))


class _FolderStore:
    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._inside(folder)

    @property
    def url(self) -> str:
        return f"{self._store.url}/{self._folder}"

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._store.put_if_absent(self._inside(name), data)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._store.put(self._inside(name), data)

    def get(self, name: str) -> bytes:
        return self._store.get(self._inside(name))

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        return self._store.get_range(self._inside(name), offset, length)

    def exists(self, name: str) -> bool:
        return self._store.exists(self._inside(name))

    def size(self, name: str) -> int:
        return self._store.size(self._inside(name))

    def modified_ms(self, name: str) -> int:
        return self._store.modified_ms(self._inside(name))

    def delete(self, name: str) -> None:
        self._store.delete(self._inside(name))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        below = self._inside(prefix) if prefix else self._folder
        yield from map(self._outside, self._store.list(below, self._inside(after) if after else ""))

    def folders(self, prefix: str) -> Iterator[str]:
        yield from map(self._outside, self._store.folders(self._inside(prefix) if prefix else self._folder))

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self._store.discard_leftovers(self._inside(prefix) if prefix else self._folder, before_ms)

    def settle(self, folder: str) -> None:
        self._store.settle(self._inside(folder))

    def local_path(self, name: str) -> Path | None:
        return self._store.local_path(self._inside(name))

    def _inside(self, name: str) -> str:
        if not is_object_name(name):
            raise ValueError(f"not a name inside the folder. name={name!r}, folder={self._folder!r}")
        return f"{self._folder}/{name}"

    def _outside(self, name: str) -> str:
        return name[len(self._folder) + 1 :]
