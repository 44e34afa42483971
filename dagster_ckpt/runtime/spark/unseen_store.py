"""What to raise on a host that does not see the store that the driver sees."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.protocol.object_names import MANIFESTS
from dagster_ckpt.storage.stores.object_store import ObjectStore


def unseen(store: ObjectStore, found: object) -> str:
    """The text of the error. `store` is the stream's folder, `found` what there is in place of it."""
    if store.local_path(MANIFESTS) is None:
        return (
            "this host reaches another store than the driver: give all hosts the same server and credentials. "
            f"host={socket.gethostname()}, store={store.url}, found: {found}"
        )
    return (
        "this host does not see the store's folder as the driver does: mount the same file system at this path on "
        "every host that runs executors, or use a store on S3. "
        f"host={socket.gethostname()}, store={store.url}, found: {found}"
    )


@contextmanager
def host_named(store: ObjectStore) -> Iterator[None]:
    """Within it a missing object raises `InvalidPipelineError` where this host sees nothing of the stream's folder."""
    try:
        yield
    except CorruptStateError as error:
        if any(store.list(MANIFESTS)):
            raise
        raise InvalidPipelineError(unseen(store, error)) from error
