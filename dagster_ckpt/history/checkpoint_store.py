"""A store full of streams."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.history.info.epoch_info import EpochInfo
from dagster_ckpt.history.info.pin_info import PinInfo
from dagster_ckpt.history.savepoint import check_names, epochs_pinned, pin_together, roll_back
from dagster_ckpt.history.snapshot import Snapshot
from dagster_ckpt.history.snapshot_search import Choosing, Consistency, take_snapshot
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.protocol.object_names import (
    MANIFESTS,
    name_of,
    parse_manifest_name,
    parts_of,
    parts_of_name,
)
from dagster_ckpt.quantities import Duration, milliseconds
from dagster_ckpt.storage.stores.address import open_store


class CheckpointStore:
    """The streams at a URL such as `file:///data/checkpoints`. Needs neither Spark nor Dagster.

        store = CheckpointStore("file:///data/checkpoints")
        store.stream("delay_by_carrier").read(as_of="2013-01-05T12:00")
        store.snapshot(["delay_by_carrier", "late_carriers"], "aligned").read("late_carriers")

    What changes a stream is a method of its history, `store.stream(name)`: pin, rollback, fork, reshard, drain, ...
    `savepoint` and `rollback` are for several streams together.

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
        if parts_of_name(name):
            history = StreamHistory(self._store, name, SystemClock())
            if history.exists():
                return history
        there = self.streams()
        raise InvalidPipelineError(
            f"no such stream in this store.{did_you_mean(name, there)} "
            f"stream={name!r}, streams={there}, store={self.url}"
        )

    def snapshot(
        self,
        streams: Sequence[str],
        consistency: Consistency = "latest",
        as_of: datetime | str | None = None,
        *,
        include_creating: bool = False,
    ) -> Snapshot:
        """An epoch of each of several streams, to be read together.

        `latest`: the current epoch of each. `aligned`: the newest epochs that belong together, so that each stream that
        reads another of them has consumed exactly the epoch that is shown of that one. Only what is named counts: name
        the upstream of two streams, too, if they are to agree on it. Or the epochs themselves, `{"delays": 41, ...}`.
        With `as_of` only what had been committed by then is chosen from.

        A stream whose table is still being created from its upstream's is left out, unless `include_creating`.

        Raises `InvalidPipelineError` for an unknown stream or epoch, and where no epochs that are retained or pinned
        belong together: the error names them, the reason and what helps.
        """
        if isinstance(streams, str) or not streams:
            raise InvalidPipelineError(f"streams is a list of names, one at least. streams={streams!r}")
        named = {name: self._history(name) for name in streams}
        try:
            return take_snapshot(named, Choosing(consistency, as_of, include_creating))
        except InvalidPipelineError:
            for name in named:
                self.stream(name)  # for an unknown name, lists the streams there are
            raise

    def savepoint(self, name: str, streams: Sequence[str], wait: Duration = "1 minute") -> dict[str, PinInfo]:
        """Pin an epoch of each stream under one name: epochs that belong together, with all that was in work.

            store.savepoint("before-migration", ["delay_by_carrier", "late_carriers"])
            store.rollback(["delay_by_carrier", "late_carriers"], pin="before-migration")

        Waits until each writer at work has committed the epoch that it is at. No writer is disturbed. Name all streams
        of a chain, so that their epochs belong together, as those of an aligned `snapshot`.

        Raises `InvalidPipelineError` for a name that is taken and where no epochs belong together, and
        `StoreUnavailableError` where an epoch takes longer than `wait`: then nothing is pinned.
        """
        histories, wait_ms = self._histories(streams), milliseconds(wait, "wait")

        def find_aligned() -> Snapshot:
            return self.snapshot(list(streams), "aligned", include_creating=True)

        return pin_together(histories, name, wait_ms, SystemClock(), find_aligned)

    def rollback(
        self,
        streams: Sequence[str],
        as_of: datetime | str | None = None,
        *,
        pin: str | None = None,
        fence: bool = False,
    ) -> dict[str, EpochInfo]:
        """Take several streams back together: to the epochs that a `savepoint` has pinned, or to those of a time.

        `as_of`: the newest epochs that belong together and had been committed by then. What reads another of the
        streams goes back before it. `fence`, and what each rollback does, are as in `StreamHistory.rollback`.

        All streams are checked before the first is changed. A crash leaves some as they were: do the same again.
        """
        histories = self._histories(streams)
        if (as_of is None) == (pin is None):
            raise InvalidPipelineError(f"roll back to which epochs? Give as_of or pin. as_of={as_of!r}, pin={pin!r}")
        if pin is not None:
            return roll_back(histories, epochs_pinned(histories, pin), fence=fence)
        return roll_back(histories, self.snapshot(list(streams), "aligned", as_of).epochs, fence=fence)

    def _histories(self, streams: Sequence[str]) -> dict[str, StreamHistory]:
        check_names(streams)
        return {name: self.stream(name) for name in streams}

    def _history(self, name: str) -> StreamHistory:
        """A stream's history, without checking that the stream exists."""
        return StreamHistory(self._store, name, SystemClock()) if parts_of_name(name) else self.stream(name)

    def _parts(self, folder: str) -> tuple[str, ...] | None:
        """The asset key parts of a stream's folder; None for a folder of anything else."""
        try:
            parts = parts_of(folder)
        except ValueError:
            return None
        objects = self._store.list(f"{folder}/{MANIFESTS}")
        manifests = (parse_manifest_name(name.removeprefix(f"{folder}/")) for name in objects)
        return parts if any(version is not None for version in manifests) else None
