"""From a URL to an object store."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.local import LocalObjectStore
from dagster_ckpt.storage.memory import MemoryObjectStore
from dagster_ckpt.storage.object_store import ObjectStore

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


@dataclass(frozen=True)
class StoreAddress:
    """All that another process needs to open the same store; it can be pickled.

    Options may hold secrets: they are never shown.
    """

    url: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False, hash=False)

    def open(self) -> ObjectStore:
        return open_store(self.url, self.options)


def open_store(url: str, storage_options: Mapping[str, object] | None = None) -> ObjectStore:
    """The store at `file:///folder` or `memory://name`. Nothing is read or written yet; see `prove_atomic_create`.

    Raises `InvalidPipelineError` for a store whose atomic create has not been proved.
    """
    scheme, rest = _split(url)
    match scheme:
        case "file":
            store: ObjectStore = LocalObjectStore(_folder(rest), SystemClock().unique)
        case "memory":
            store = MemoryObjectStore(rest.strip("/"))
        case _:
            # Only the scheme: the rest of a URL may hold a password.
            raise InvalidPipelineError(
                "this release keeps checkpoints on local disk only: a store needs an atomic create that was proved, "
                "and an imitated one loses data. Use file:///some/folder; S3 comes later, with its own proof. "
                f"scheme={scheme}"
            )
    if storage_options:
        raise InvalidPipelineError(
            f"a {scheme} store takes no storage options: remove them. options={sorted(storage_options)}"
        )
    return store


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(url)
    if not match:
        raise InvalidPipelineError(
            f"a store is named by a URL: write file:///some/folder with three slashes. url={url!r}"
        )
    return match[1].lower(), match[2]


def _folder(rest: str) -> Path:
    """The folder of a `file:` URL. Only absolute ones: a relative one would depend on which process opens it."""
    if not rest.startswith("/") or re.match(r"//[^/]", rest) or not rest.strip("/"):
        raise InvalidPipelineError(
            f"a local store needs an absolute folder: write file:///some/folder with three slashes. "
            f"url={f'file:{rest}'!r}"
        )
    return Path(os.path.normpath("/" + rest.lstrip("/")))
