"""From a URL to an object store."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.kinds import SHARED, find_kind
from dagster_ckpt.storage.stores.object_store import ObjectStore

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
    """The store at a URL such as `file:///folder`, `s3://bucket/folder` or `memory://name`.

    Nothing is read or written yet; see `prove_atomic_create`. `storage_options` are those of the scheme's filesystem in
    fsspec; `file:` has `shared` alone. Raises `InvalidPipelineError` for a kind of store whose atomic create has not
    been proved.
    """
    options = storage_options or {}
    check_url(url)
    check_options(url, options)
    scheme, rest = _split(url)
    return find_kind(scheme).open(rest, options)


def check_url(url: str) -> None:
    """Raise `InvalidPipelineError` for a URL that names no store. Nothing is opened, and no library loaded."""
    scheme, rest = _split(url)
    find_kind(scheme).check_place(rest)


def check_options(url: str, options: Mapping[str, object]) -> None:
    """Raise `InvalidPipelineError` for options that this store does not take. Nothing is opened, no library loaded."""
    scheme, _ = _split(url)
    find_kind(scheme).check_options(options)


def check_reach(url: str, options: Mapping[str, object], master: str) -> None:
    """Raise `InvalidPipelineError` for a `file:` store that only this host may have, where `master` is not local."""
    if _split(url)[0] != "file" or options.get(SHARED) is True or is_local_master(master):
        return
    raise InvalidPipelineError(
        "Spark's executors may be on other hosts, and a file: store may be on this one alone: if every host mounts the "
        'folder at the same path, say so with storage_options={"shared": True}; else use a store on a server, such as '
        "S3, or a local master. "
        f"store={url}, master={master}"
    )


def is_local_master(master: str) -> bool:
    """Whether all of Spark runs on one host, in one JVM: `local`, `local[2]`, `local[2, 4]`."""
    return master == "local" or master.startswith("local[")


def options_for(url: str, options: Mapping[str, object]) -> Mapping[str, object]:
    """The options that the store of this URL takes, from those for stores of any kind."""
    scheme, _ = _split(url)
    if scheme == "file":
        return {name: value for name, value in options.items() if name == SHARED}
    return {} if scheme == "memory" else options


def _split(url: str) -> tuple[str, str]:
    match = _SCHEME.fullmatch(url)
    if not match:
        # Not shown: it may be a password, if the wrong variable is named.
        raise InvalidPipelineError(
            "a store is named by a URL: write file:///some/folder with three slashes. option=url"
        )
    return match[1].lower(), match[2]
