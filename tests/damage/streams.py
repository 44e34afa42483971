"""Streams to be damaged: between them they have every kind of object there is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.address import open_store
from tests.unit.history.made_streams import HOUR_US, TIMED, MadeStream, aggregate, append, by_hour, departures

Rows = list[str]

AT_ONCE_MS = -1_000
"""A grace period that is over at once, with the second that a collector waits longer."""
CARRIERS = ("UA", "AA", "DL", "B6", "a name that is a good deal longer than the others")


@dataclass
class Specimen:
    """A whole stream, and what can be read of it: the rows of each epoch, and the pins."""

    stream: MadeStream
    objects: dict[str, bytes] = field(default_factory=dict)
    rows: dict[int, Rows] = field(default_factory=dict)
    current: int = 0
    pins: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = {str(path.relative_to(self.folder)): path.read_bytes() for path in self.files()}
        history = self.history()
        self.current = history.latest().epoch
        self.pins = list(history.pins())
        epochs = {info.epoch for info in history.epochs()} | {pin.epoch for pin in history.pins()}
        self.rows = {epoch: rows_of(history.read(epoch)) for epoch in epochs}
        self.rows[0] = []

    @property
    def folder(self) -> Path:
        return Path(self.stream.url.removeprefix("file://")) / self.stream.name

    def history(self) -> StreamHistory:
        return CheckpointStore(self.stream.url).stream(self.stream.name)

    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def restore(self) -> None:
        """Make it whole again."""
        for path in self.files():
            if str(path.relative_to(self.folder)) not in self.objects:
                path.unlink(missing_ok=True)
        for name, data in self.objects.items():
            path = self.folder / name
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)


def rows_of(table: pa.Table) -> Rows:
    """The rows in an order of their own."""
    return sorted(repr(row) for row in table.to_pylist())


@contextmanager
def specimens(folder: Path) -> Iterator[list[Specimen]]:
    """A keyed stream with a rollback, one whose old epochs were collected but for a pin, appended rows, and windows."""
    with patch("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 2):
        made = (_keyed, _collected, _appended, _windowed)
        yield [Specimen(make(folder)) for make in made]


def _keyed(folder: Path) -> MadeStream:
    made = MadeStream(folder.as_uri(), "keyed")
    _commit(made, 3)
    made.close()
    made.open(from_epoch=3)
    _commit(made, 2)
    made.close()
    return made


def _collected(folder: Path) -> MadeStream:
    made = MadeStream(folder.as_uri(), "collected", aggregate(), retained=2)
    _commit(made, 3)
    CheckpointStore(made.url).stream("collected").pin(3, "before-migration")
    _commit(made, 16)
    chain = ManifestChain(made.writer.store, SystemClock())
    Collector(chain, open_store(made.url), grace_ms=AT_ONCE_MS).collect(made.writer.term)
    made.close()
    return made


def _appended(folder: Path) -> MadeStream:
    made = MadeStream(folder.as_uri(), "appended", append())
    _commit(made, 4)
    CheckpointStore(made.url).stream("appended").pin(4, "before-migration")
    made.close()
    made.open()
    _commit(made, 2)
    made.close()
    return made


def _windowed(folder: Path) -> MadeStream:
    """It has what waits for the watermark: open windows, their ends in a timeline, and late rows."""
    made = MadeStream(folder.as_uri(), "windowed", by_hour())
    for hour in range(6):
        hours = [hour, max(0, hour - 3)]  # the second one is late from some hour on
        made.commit(timed(*hours), hours=hour)
    made.close()
    return made


def timed(*hours: int) -> pa.Table:
    """A departure of each carrier in each of these hours."""
    rows = [{"carrier": carrier, "dep_delay": 1.0, "at": hour * HOUR_US} for carrier in CARRIERS for hour in hours]
    return pa.Table.from_pylist(rows, schema=TIMED)


def _commit(made: MadeStream, epochs: int) -> None:
    for number in range(epochs):
        made.commit(departures({carrier: [number + at / 2] for at, carrier in enumerate(CARRIERS)}), hours=number)
