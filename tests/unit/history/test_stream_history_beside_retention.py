"""Retention and collection may take away an epoch while it is read: that is no damage."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.unit.history.made_streams import MadeStream, append, departures

NAME = "departures"


class InterruptedStore:
    """Does something the first time a file of the change log is asked for; else it is the store within."""

    def __init__(self, within: ObjectStore, interruption: Callable[[], None]) -> None:
        self._within = within
        self._interruption: Callable[[], None] | None = interruption

    def __getattr__(self, name: str) -> object:
        return getattr(self._within, name)

    def local_path(self, name: str) -> Path | None:
        if "/changes/" in name and self._interruption is not None:
            interruption, self._interruption = self._interruption, None
            interruption()
        return self._within.local_path(name)


def read_while_its_epoch_is_retired(tmp_path: Path, *, by_number: bool) -> int:
    stream = MadeStream(tmp_path.as_uri(), NAME, append(), retained=1)
    epoch = stream.commit(departures({"UA": [1.0]}))

    def retire_and_collect() -> None:
        stream.open(from_epoch=0)
        stream.commit(departures({"UA": [1.0], "AA": [2.0]}))
        for path in (tmp_path / NAME / "changes").glob("1-*"):
            path.unlink()

    store = open_store(tmp_path.as_uri())
    interrupted: ObjectStore = InterruptedStore(store, retire_and_collect)  # type: ignore[assignment]
    try:
        return len(StreamHistory(interrupted, NAME, SystemClock()).read(epoch if by_number else None))
    finally:
        stream.close()


def test_a_reader_of_the_current_epoch_gets_the_newer_one(tmp_path: Path) -> None:
    assert read_while_its_epoch_is_retired(tmp_path, by_number=False) == 2


def test_a_reader_of_a_retired_epochs_number_gets_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipelineError, match="retained=4"):
        read_while_its_epoch_is_retired(tmp_path, by_number=True)


def test_a_read_beside_a_live_writer_shows_one_epoch_whole(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "delays", retained=2)
    first = stream.commit(departures({"UA": [0.0], "AA": [0.0]}))

    def commit_more() -> None:
        for _ in range(20):
            stream.commit(departures({"UA": [0.0], "AA": [0.0]}))

    writer = threading.Thread(target=commit_more)
    writer.start()
    history = CheckpointStore(tmp_path.as_uri()).stream("delays")
    seen: set[int] = set()
    while writer.is_alive() or not seen:
        counts = history.read(columns=["flights"])["flights"].to_pylist()
        assert len(counts) == 2
        seen.add(counts[0])
        assert counts[0] == counts[1]
    writer.join()
    stream.close()
    assert history.latest().epoch == first + 20
    assert history.read()["flights"].to_pylist() == [21, 21]
