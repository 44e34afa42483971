"""A store full of streams, to be read."""

from collections.abc import Mapping
from difflib import get_close_matches

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.protocol.names import (
    MANIFESTS,
    folder_of,
    name_of,
    parse_manifest_name,
    parts_of,
    parts_of_name,
)
from dagster_ckpt.storage.address import open_store
from dagster_ckpt.storage.folder import folder_store


class CheckpointStore:
    """The streams at a URL such as `file:///data/checkpoints`. Only reads; needs neither Spark nor Dagster.

    `storage_options` may hold secrets: they are never shown. Raises `InvalidPipelineError` for a URL that cannot be a
    store.
    """

    def __init__(self, url: str, storage_options: Mapping[str, object] | None = None) -> None:
        self._store = open_store(url, storage_options)

    def __repr__(self) -> str:
        return f"CheckpointStore({self.url!r})"

    @property
    def url(self) -> str:
        """The store's address, without any secret."""
        return self._store.url

    def streams(self) -> list[str]:
        """The names of the streams, sorted: asset keys as Dagster writes them, `flights/delay_by_carrier`."""
        return sorted(
            name_of(parts) for folder in self._store.folders("") if (parts := self._parts(folder)) is not None
        )

    def stream(self, name: str) -> StreamHistory:
        """The history of one stream. For an unknown one raises `InvalidPipelineError`, which lists those there are."""
        parts = parts_of_name(name)
        folder = folder_of(parts) if parts else None
        if folder is not None:
            history = StreamHistory(folder_store(self._store, folder), name, SystemClock())
            if history.exists():
                return history
        there = self.streams()
        close = get_close_matches(name, there, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        raise InvalidPipelineError(
            f"no such stream in this store.{meant} stream={name!r}, streams={there}, store={self.url}"
        )

    def _parts(self, folder: str) -> tuple[str, ...] | None:
        """The asset key parts of a stream's folder; None for a folder of anything else."""
        try:
            parts = parts_of(folder)
        except ValueError:
            return None
        objects = self._store.list(f"{folder}/{MANIFESTS}")
        manifests = (parse_manifest_name(name.removeprefix(f"{folder}/")) for name in objects)
        return parts if any(version is not None for version in manifests) else None
