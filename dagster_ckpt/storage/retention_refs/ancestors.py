"""The files of other streams that a fork reads.

A fork names files of the streams that its manifests call its ancestors. Their folders are in the same store
and are read, never written: so one store holds all that a fork reads, and each file in it has one name.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.epochs.retention import lists_of_files
from dagster_ckpt.protocol.manifest.codec import CHANGES
from dagster_ckpt.protocol.manifest.manifest import Ancestor, IndexedList, Manifest
from dagster_ckpt.protocol.manifest.references import ancestors_named
from dagster_ckpt.protocol.object_names import parse_ancestors_name, pin_name
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience

_log = logging.getLogger(__name__)


def with_ancestors(folder: ObjectStore, root: ObjectStore, ancestors: Sequence[Ancestor]) -> ObjectStore:
    """A stream's folder with the files of its ancestors, under the names that its manifests use.

    `root` is the store that holds all the folders. Only the stream's folder can be written.
    """
    if not ancestors:
        return folder
    return _WithAncestors(folder, {each.uuid: ancestors_folder(root, each) for each in ancestors})


def ancestors_folder(root: ObjectStore, ancestor: Ancestor) -> ObjectStore:
    """The folder of an ancestor."""
    return stream_folder(root, ancestor.stream)


def all_ancestors_named(chain: ManifestChain, manifest: Manifest) -> set[StreamUuid]:
    """The streams whose files a manifest names, also through its index objects.

    Raises `CorruptStateError` if an index object is damaged or missing.
    """
    lists = IndexedLists(chain.store, CHANGES, chain.clock, chain.patience)
    entries = lists.entries(IndexedList(lists_of_files(manifest)))
    return ancestors_named(manifest) | {each.ancestor for each in entries if each.ancestor is not None}


def check_ancestors(root: ObjectStore, clock: Clock, manifest: Manifest, patience: Patience | None = None) -> None:
    """Raise `CorruptStateError` if a stream whose files the manifest names was removed, or replaced by another.

    A file's checksum shows that it is the wrong file; this check explains why.
    """
    named = ancestors_named(manifest)
    for ancestor in manifest.ancestors:
        if ancestor.uuid in named:
            _check(root, clock, manifest, ancestor, patience or Patience())


def _check(root: ObjectStore, clock: Clock, manifest: Manifest, ancestor: Ancestor, patience: Patience) -> None:
    folder = ancestors_folder(root, ancestor)
    chain = ManifestChain(folder, clock, patience)
    # Reading the pin takes one request and proves as much as finding the newest manifest, which takes several.
    if chain.span().exists(pin_name(ancestor.pin_of(manifest.uuid))):
        return
    end = chain.end()
    there = None if end is None else newest_known(end).uuid
    if there != ancestor.uuid:
        raise CorruptStateError(
            f"the stream that holds this fork's files was removed"
            f"{'' if there is None else ' and created again'}: restore its folder from a backup, or go back "
            f"to the empty stream. stream={manifest.stream}, forked_from={ancestor.stream}, uuid={ancestor.uuid}, "
            f"found={there}"
        )
    _log.warning(
        "the pin that keeps a fork's files was removed, so they may be collected: fork again from an epoch that can "
        "still be read, or go back to the empty stream. stream=%s, forked_from=%s, pin=%s",
        manifest.stream,
        ancestor.stream,
        ancestor.pin_of(manifest.uuid),
    )


class _WithAncestors:
    def __init__(self, own: ObjectStore, ancestors: dict[StreamUuid, ObjectStore]) -> None:
        self._own = own
        self._ancestors = ancestors

    @property
    def url(self) -> str:
        return self._own.url

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        return self._own.put_if_absent(_own(name), data)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._own.put(_own(name), data)

    def get(self, name: str) -> bytes:
        store, path = self._place(name)
        return store.get(path)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        store, path = self._place(name)
        return store.get_range(path, offset, length)

    def exists(self, name: str) -> bool:
        store, path = self._place(name)
        return store.exists(path)

    def size(self, name: str) -> int:
        store, path = self._place(name)
        return store.size(path)

    def modified_ms(self, name: str) -> int:
        store, path = self._place(name)
        return store.modified_ms(path)

    def delete(self, name: str) -> None:
        self._own.delete(_own(name))

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        return self._own.list(prefix, after)

    def folders(self, prefix: str) -> Iterator[str]:
        return self._own.folders(prefix)

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        return self._own.discard_leftovers(prefix, before_ms)

    def settle(self, folder: str) -> None:
        self._own.settle(folder)

    def local_path(self, name: str) -> Path | None:
        store, path = self._place(name)
        return store.local_path(path)

    def _place(self, name: str) -> tuple[ObjectStore, str]:
        elsewhere = parse_ancestors_name(name)
        if elsewhere is None:
            return self._own, name
        ancestor, path = elsewhere
        if ancestor not in self._ancestors:
            raise CorruptStateError(
                f"a manifest names a file of a stream that is not among its ancestors: restore it from a backup, or "
                f"go back to an epoch before it. file={name}, store={self.url}"
            )
        return self._ancestors[ancestor], path


def _own(name: str) -> str:
    assert parse_ancestors_name(name) is None, f"files of another stream are read-only. {name=}"
    return name
