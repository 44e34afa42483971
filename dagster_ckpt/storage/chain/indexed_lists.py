"""Lists that grow for ever (an append-only stream's files, the files a source has seen), kept small in the manifest.

The newest entries are in the manifest itself, the tail. A long tail is spilled into an index object, a very long one
into several; whenever `MERGED` objects of one level have come together they are merged into one of the next. So a
manifest names few objects, each entry is rewritten only a few times in its life, and no object grows beyond bounds. An
index object is read back before it is written, and durable before a manifest names it; a crash leaves objects that no
manifest names.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.json_codec import Codec, Record
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexedList, IndexRef
from dagster_ckpt.protocol.manifest.packing import ENTRIES_MAX, decode_columns, decode_entries, encode_pieces
from dagster_ckpt.protocol.object_names import INDEX, parse_file_name
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetryingStore, RetrySpan

Entry = TypeVar("Entry")

TAIL_MAX = 500
MERGED = 8


def open_end(own: int) -> int:
    """How many entries of an append-only stream's files are kept in the tail, after an epoch that added `own`.

    They must not be spilled before `append_merges` had its turn to merge them: afterwards it never does.
    """
    return own + TAIL_MAX // 4


@dataclass(frozen=True)
class IndexedLists(Generic[Entry]):
    """Reads and shortens lists of one kind in a stream's folder. `codec` is `CHANGES` or `FILES_SEEN`."""

    store: ObjectStore
    codec: Codec[tuple[Entry, ...]]
    clock: Clock
    patience: Patience = field(default_factory=Patience)

    def entries(self, listed: IndexedList[Entry]) -> tuple[Entry, ...]:
        """All entries, oldest first. Raises `CorruptStateError` where an index object is missing or damaged."""
        return (*self._read(listed.index), *listed.tail)

    def columns(self, listed: IndexedList[Entry], record: Record[Entry]) -> Iterator[dict[str, list[Any]]]:
        """All entries, oldest first, as a list for each field of `record`: an index object at a time, then the tail.

        Takes no more memory than the largest object. For entries that name no file. Raises as `entries` does.
        """
        for ref in listed.index:
            yield decode_columns(record, self._bytes(ref), ref.name)
        yield {name: [getattr(entry, name) for entry in listed.tail] for name in record.fields}

    def shorten(self, listed: IndexedList[Entry], fresh_name: Callable[[], str], kept: int = 0) -> IndexedList[Entry]:
        """The same entries with a tail of at most `TAIL_MAX` and `kept`; the index objects it names are durable.

        `fresh_name` returns an unused name. The newest `kept` entries stay in the tail. Raises `CorruptStateError` if
        an object is missing: for a fenced writer, because others have collected it.
        """
        if len(listed.tail) <= TAIL_MAX + kept:
            return listed
        spilled = len(listed.tail) - kept
        index = [*listed.index]
        for entries, data in encode_pieces(self.codec, listed.tail[:spilled]):
            index.append(self._write(entries, data, 0, fresh_name()))
        while parts := _mergeable(index):
            pieces = list(encode_pieces(self.codec, self._read(parts)))
            if len(pieces) > 1:
                break  # too long for one object: merging would not reduce their number
            index[-len(parts) :] = [self._write(*pieces[0], parts[0].level + 1, fresh_name())]
        return IndexedList(tuple(index), listed.tail[spilled:])

    def _write(self, entries: tuple[Entry, ...], data: bytes, level: int, name: str) -> IndexRef:
        # An object that cannot be read back would cost the whole stream.
        assert decode_entries(self.codec, data, name) == entries, name
        store = self._span()
        if not store.put_if_absent(name, data):
            # Ours, from a try whose reply was lost, or else a bug.
            assert _read_index(name, store) == data, f"an index object's name is used. {name=}"
            store.settle(INDEX)
        return IndexRef(name, len(entries), len(data), _checksum(data), level)

    def _read(self, index: Sequence[IndexRef]) -> tuple[Entry, ...]:
        return tuple(entry for ref in index for entry in self._read_one(ref))

    def _read_one(self, ref: IndexRef) -> tuple[Entry, ...]:
        entries = decode_entries(self.codec, self._bytes(ref), ref.name)
        return entries if ref.ancestor is None else tuple(_in_ancestor(ref.ancestor, entry) for entry in entries)

    def _bytes(self, ref: IndexRef) -> bytes:
        try:
            data = self._span().get(ref.name)
        except ObjectMissingError:
            data = None
        if data is None or _checksum(data) != ref.checksum:
            raise CorruptStateError(
                f"an index object is {'missing' if data is None else 'damaged'}: restore it from a backup, or go back "
                f"to an epoch {_without(ref)}. object={ref.name}, store={self.store.url}"
            )
        return data

    def _span(self) -> RetryingStore:
        span = RetrySpan(self.clock, self.patience)
        return RetryingStore(self.store, lambda: span)


def _read_index(name: str, store: ObjectStore) -> bytes:
    try:
        return store.get(name)
    except ObjectMissingError as error:
        raise CorruptStateError(
            f"an index object was removed right after it was written: find out what else writes to this folder. "
            f"object={name}, store={store.url}"
        ) from error


def _mergeable(index: Sequence[IndexRef]) -> Sequence[IndexRef]:
    """The newest objects, if enough of one level can be merged into one of the next; else none.

    An ancestor's objects are not merged: this stream could not delete them.
    """
    parts = index[-MERGED:]
    alike = len(parts) == MERGED and {(ref.level, ref.ancestor) for ref in parts} == {(parts[0].level, None)}
    return parts if alike and sum(ref.entries for ref in parts) <= ENTRIES_MAX else ()


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _without(ref: IndexRef) -> str:
    file = parse_file_name(ref.path)
    # An ancestor's epoch numbers mean nothing in this stream.
    return "that does without it" if file is None or ref.ancestor is not None else f"before epoch {file.epoch}"


def _in_ancestor(ancestor: StreamUuid, entry: Entry) -> Entry:
    """An entry of an ancestor's list, as this stream names it: the ancestor's files get its UUID."""
    if isinstance(entry, ChangeRef) and entry.ancestor is None:
        return replace(entry, ancestor=ancestor)
    return entry
