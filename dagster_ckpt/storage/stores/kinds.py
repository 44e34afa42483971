"""The kinds of stores by the scheme of their URLs: those that come with this package, and those of other packages.

Another package adds one by an entry point: in the group `dagster_ckpt.stores`, named like the scheme, a function that
takes what follows the scheme's colon in the URL, and the storage options, and returns an `ObjectStore`. It is loaded
when such a store is opened, on each host that opens it. `dagster_ckpt.testing.store_suite` has the tests it must pass.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.over_fsspec.opening import open_azure, open_gs, open_s3, open_webhdfs
from dagster_ckpt.storage.stores.over_fsspec.places import (
    azure_options,
    azure_place,
    gs_options,
    gs_place,
    s3_options,
    s3_place,
    webhdfs_options,
    webhdfs_place,
)

GROUP = "dagster_ckpt.stores"
SHARED = "shared"
"""The option of a `file:` store whose folder every host of the cluster mounts, at the same path."""

Options = Mapping[str, object]
Factory = Callable[[str, Options], ObjectStore]

_INSTEAD = {
    "az": "abfs://container/folder",
    "abfss": "abfs://container/folder, with account_name in storage_options",
    "gcs": "gs://bucket/folder",
    "s3a": "s3://bucket/folder",
    "s3n": "s3://bucket/folder",
    "swebhdfs": "webhdfs://host:port/folder, with use_https in storage_options",
    "wasb": "abfs://container/folder, with account_name in storage_options",
    "wasbs": "abfs://container/folder, with account_name in storage_options",
}
"""Other schemes for the same stores. One of them is enough: a store's address is in its streams' manifests."""


@dataclass(frozen=True)
class StoreKind:
    """How to check and open the stores of one scheme. Each function takes what follows the scheme's colon, or options.

    Each raises `InvalidPipelineError`. The checks open nothing and load no library.
    """

    check_place: Callable[[str], object]
    check_options: Callable[[Options], object]
    open: Factory


def find_kind(scheme: str) -> StoreKind:
    """The kind of a scheme in lower case. Raises `InvalidPipelineError` if there is none."""
    if kind := _KINDS.get(scheme):
        return kind
    if kind := _of_another_package(scheme):
        return kind
    if instead := _INSTEAD.get(scheme):
        raise InvalidPipelineError(
            f"{scheme} is another name for a store that dagster-ckpt knows: write {instead}. scheme={scheme}"
        )
    if scheme == "hdfs":
        raise InvalidPipelineError(
            "HDFS is reached through WebHDFS, because the client library of hdfs: has no rename that refuses to "
            "overwrite: write webhdfs://host:port/folder, with the NameNode's HTTP port (9870). scheme=hdfs"
        )
    # Only the scheme: the rest of a URL may hold a password.
    raise InvalidPipelineError(
        "checkpoints are kept on a file system (file:///some/folder), S3 (s3://bucket/folder), Google Cloud Storage "
        "(gs://bucket/folder), Azure (abfs://container/folder) or HDFS (webhdfs://host:port/folder): a store needs an "
        "atomic create that was proved against a real server, and an imitated one loses data. Another package may add "
        f"a store by an entry point. group={GROUP}, scheme={scheme}"
    )


def folder_on_disk(rest: str) -> Path:
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


def _of_another_package(scheme: str) -> StoreKind | None:
    found = entry_points(group=GROUP, name=scheme)
    if not found:
        return None
    if len(found) > 1:
        raise InvalidPipelineError(
            "several packages have a store of this scheme: uninstall all but one. "
            f"scheme={scheme}, stores={sorted(each.value for each in found)}"
        )
    [entry] = found

    def open_store(rest: str, options: Options) -> ObjectStore:
        try:
            factory: Factory = entry.load()
        except (ImportError, AttributeError) as error:
            raise InvalidPipelineError(
                "the store of another package cannot be loaded: install what it needs, on every host that opens it. "
                f"scheme={scheme}, store={entry.value}, reason={type(error).__name__}: {error}"
            ) from error
        return factory(rest, options)

    def check_rest(rest: str) -> None:
        user, at, _ = rest.rpartition("@")
        if not set("?#").isdisjoint(rest) or (at and ":" in user):
            # Not shown: it may be a password.
            raise InvalidPipelineError(
                "a store's address is shown and written down: passwords and parameters go into storage_options. "
                f"scheme={scheme}"
            )

    return StoreKind(check_rest, _anything, open_store)


def _anything(_: object) -> None:
    """The other package checks it when it opens the store."""


def _none(options: Options) -> None:
    if options:
        raise InvalidPipelineError(f"a memory store takes no storage options: remove them. options={sorted(options)}")


def _check_shared(options: Options) -> None:
    unknown = sorted(set(options) - {SHARED})
    if unknown:
        raise InvalidPipelineError(f"a file store takes no storage options but shared: remove them. options={unknown}")
    if not isinstance(options.get(SHARED, False), bool):
        raise InvalidPipelineError(
            "shared is True where every host of the cluster mounts the folder at the same path, else False. "
            f"type={type(options[SHARED]).__name__}"
        )


_KINDS: Mapping[str, StoreKind] = {
    "abfs": StoreKind(azure_place, azure_options, open_azure),
    "file": StoreKind(
        folder_on_disk,
        _check_shared,
        lambda rest, _: LocalObjectStore(folder_on_disk(rest), SystemClock().unique),
    ),
    "gs": StoreKind(gs_place, gs_options, open_gs),
    "memory": StoreKind(
        _anything,
        _none,
        lambda rest, _: MemoryObjectStore(rest.strip("/")),
    ),
    "s3": StoreKind(s3_place, s3_options, open_s3),
    "webhdfs": StoreKind(webhdfs_place, webhdfs_options, open_webhdfs),
}
