"""Files that no manifest names any more, removed while a large state is put in: they would fill the disk."""

from pathlib import Path

from dagster_ckpt.protocol.manifest.manifest import Manifest


class RetiredFiles:
    """For a store with one stream, of which nothing but the newest epoch is read."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._named: set[str] = set()
        self._leaving: set[str] = set()

    def seen(self, manifest: Manifest) -> None:
        """Remove what the manifest before the last one was the last to name: tasks may still have had it open."""
        named = {run.path for table in manifest.runs.values() for shard in table for run in shard}
        if not manifest.pipeline.appends:  # else they are the table
            named |= {change.path for change in manifest.changes}
        [stream] = self._store.iterdir()
        for path in self._leaving - named:
            (stream / path).unlink()
        self._leaving = self._named - named
        self._named = named
