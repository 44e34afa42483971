"""From a URL to an object store."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.s3_options import s3_options, s3_place

SHARED = "shared"
"""The option of a `file:` store whose folder every host of the cluster mounts, at the same path."""
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

    @property
    def is_shared_folder(self) -> bool:
        """Whether it is a folder that all hosts mount, by the word of its user."""
        return _split(self.url)[0] == "file" and self.options.get(SHARED) is True


def open_store(url: str, storage_options: Mapping[str, object] | None = None) -> ObjectStore:
    """The store at `file:///folder`, `s3://bucket/folder` or `memory://name`.

    Nothing is read or written yet; see `prove_atomic_create`. `storage_options` of `s3:` are those of s3fs; `file:` has
    `shared` alone. Raises `InvalidPipelineError` for a kind of store whose atomic create has not been proved.
    """
    check_url(url)
    options = storage_options or {}
    check_options(url, options)
    scheme, rest = _split(url)
    if scheme == "s3":
        return _s3(rest, options)
    if scheme == "memory":
        return MemoryObjectStore(rest.strip("/"))
    return LocalObjectStore(_folder(rest), SystemClock().unique)


def check_url(url: str) -> None:
    """Raise `InvalidPipelineError` for a URL that names no store. Nothing is opened, and no library loaded."""
    scheme, rest = _split(url)
    match scheme:
        case "file":
            _folder(rest)
        case "s3":
            s3_place(rest)
        case "memory":
            pass
        case "s3a" | "s3n":
            raise InvalidPipelineError(
                f"{scheme} is Hadoop's scheme for S3, which dagster-ckpt does not use: write s3://bucket/folder. "
                f"scheme={scheme}"
            )
        case _:
            # Only the scheme: the rest of a URL may hold a password.
            raise InvalidPipelineError(
                "checkpoints are kept on a file system (file:///some/folder) or on S3 (s3://bucket/folder): a store "
                "needs an atomic create that was proved against a real server, and an imitated one loses data. "
                f"scheme={scheme}"
            )


def check_options(url: str, options: Mapping[str, object]) -> None:
    """Raise `InvalidPipelineError` for options that this store does not take. Nothing is opened, no library loaded."""
    scheme, _ = _split(url)
    if scheme == "s3":
        s3_options(options)
        return
    unknown = sorted(set(options) - {SHARED} if scheme == "file" else options)
    if unknown:
        known = " but shared" if scheme == "file" else ""
        raise InvalidPipelineError(f"a {scheme} store takes no storage options{known}: remove them. options={unknown}")
    if not isinstance(options.get(SHARED, False), bool):
        raise InvalidPipelineError(
            "shared is True where every host of the cluster mounts the folder at the same path, else False. "
            f"type={type(options[SHARED]).__name__}"
        )


def check_reach(url: str, options: Mapping[str, object], master: str) -> None:
    """Raise `InvalidPipelineError` for a `file:` store that only this host may have, where `master` is not local."""
    if _split(url)[0] != "file" or options.get(SHARED) is True or is_local_master(master):
        return
    raise InvalidPipelineError(
        "Spark's executors may be on other hosts, and a file: store may be on this one alone: if every host mounts the "
        'folder at the same path, say so with storage_options={"shared": True}; else use S3, or a local master. '
        f"store={url}, master={master}"
    )


def is_local_master(master: str) -> bool:
    """Whether all of Spark runs on one host, in one JVM: `local`, `local[2]`, `local[2, 4]`."""
    return master == "local" or master.startswith("local[")


def _s3(rest: str, options: Mapping[str, object]) -> ObjectStore:
    place, checked = s3_place(rest), s3_options(options)
    try:
        # Imported here: checkpoints on a disk do not need it, and it takes a second to load.
        from dagster_ckpt.storage.stores.s3 import S3ObjectStore
    except ModuleNotFoundError as error:
        raise InvalidPipelineError(
            "an S3 store needs s3fs, on every host that opens it: pip install 'dagster-ckpt[s3]'. "
            f"missing={error.name}, store={place.url}"
        ) from None
    return S3ObjectStore(place, checked)


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
    folder = Path(os.path.normpath("/" + rest.lstrip("/")))
    if folder == Path("/"):
        raise InvalidPipelineError(f"this is the root of the disk: name a folder below it. url={f'file:{rest}'!r}")
    return folder
