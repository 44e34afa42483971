"""The object store as the protocol sees it: the fewest verbs it needs, each honest.

`tests/contract/` holds the one suite that every implementation passes. Names are relative, `/` between parts; an
implementation never lets one leave its root.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class ObjectMissingError(LookupError):
    """No object of this name. Not a user's error: the caller decides what it means."""


class ObjectStore(Protocol):
    """Objects by name. Reads of single objects are strongly consistent; lists may be late.

    Every verb raises `StoreUnavailableError` when the store did not answer: then a put or delete may or may not have
    happened.
    """

    @property
    def url(self) -> str:
        """The store's address without any secret, for people and for manifests."""
        ...

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        """Create the object, durable when this returns True. False: the name exists; its bytes are untouched.

        Exactly one of any number of callers at once, in any processes on any hosts, gets True.
        """
        ...

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Create or overwrite, atomically. Only for advice (leases, requests), never for truth."""
        ...

    def get(self, name: str) -> bytes:
        """The whole object. Raises `ObjectMissingError`."""
        ...

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, fewer at the object's end. Raises `ObjectMissingError`."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the object is there now."""
        ...

    def size(self, name: str) -> int:
        """The object's bytes. Raises `ObjectMissingError`."""
        ...

    def modified_ms(self, name: str) -> int:
        """When the object was last written: milliseconds since the Unix epoch, by the store's clock.

        Compare it only with that of an object just written. An object may look younger than it is, never
        older: it could not be read before that time. Raises `ObjectMissingError`.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove the object; a missing one is no error."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """The names below a folder that sort after `after`, in any order, perhaps late. An empty prefix: all."""
        ...

    def folders(self, prefix: str) -> Iterator[str]:
        """The folders right below a folder, in any order, perhaps late; named from the store's root, as in `list`."""
        ...

    def discard_leftovers(self, prefix: str, before_ms: int) -> int:
        """Remove what interrupted writes have left below a folder. Returns how many leftovers were removed.

        Only those older than `before_ms` by the store's clock: younger ones may be in use. An empty prefix: all.
        A leftover (a temporary file, the parts of an upload) is no object: no other verb ever shows it.
        """
        ...

    def settle(self, folder: str) -> None:
        """Make what is now visible in the folder durable. On a local disk: fsync the folder. Elsewhere a no-op."""
        ...

    def local_path(self, name: str) -> Path | None:
        """The object's path on this host's disk, to be memory-mapped; None for a remote store."""
        ...
