"""Two processes open one stream at the same moment, each told to take over, and commit until they are fenced.

`make races RACES=1000` plays as many as you like, on this host's disk with its real fsync.
"""

import multiprocessing
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import FencedError
from dagster_ckpt.ids import Version
from dagster_ckpt.protocol.manifest.manifest import ManifestKind
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.worlds.streams import an_edit, an_opening

RACES = int(os.environ.get("RACES", "20"))
EPOCHS = 8
A_STREAM = 50
"""Races on one stream: its chain stays short enough to be read from the first version on."""


@dataclass(frozen=True)
class Told:
    """What a writer was told: the nonces of its manifests by version, and whether it was fenced."""

    created: dict[int, str]
    fenced: bool


def _race(folder: str, name: str, barrier: object, to_judge: Connection) -> None:
    """A process's part of a stream's races."""
    store, clock = StoreAddress(Path(folder).as_uri()).open(), SystemClock()
    for number in range(A_STREAM):
        barrier.wait()  # type: ignore[attr-defined]
        created, fenced = dict[int, str](), False
        opening = an_opening(f"{name}-{number}", take_over=Takeover.ALWAYS)
        writer = open_stream(store, opening, clock)
        created[writer.manifest.version] = writer.manifest.nonce
        try:
            for _ in range(EPOCHS):
                manifest = writer.commit(an_edit(writer.manifest))
                created[manifest.version] = manifest.nonce
        except FencedError:
            fenced = True
        writer.close("the race is over")
        to_judge.send(Told(created, fenced))


def _races_of_a_stream(folder: Path) -> tuple[int, int]:
    """Play them; how many writers were fenced, and how many epochs there are. Every promise is asserted."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    ends = [context.Pipe(duplex=False) for _ in range(2)]
    racers = [
        context.Process(target=_race, args=(str(folder), f"writer-{number}", barrier, end[1]), daemon=True)
        for number, end in enumerate(ends)
    ]
    for racer in racers:
        racer.start()
    told = [[end[0].recv() for end in ends] for _ in range(A_STREAM)]
    for racer in racers:
        racer.join()
    chain = ManifestChain(StoreAddress(folder.as_uri()).open(), SystemClock())
    newest = chain.newest()
    assert newest is not None
    there = {version: chain.read(Version(version)) for version in range(1, newest.version + 1)}
    created = [pair for race in told for each in race for pair in each.created.items()]
    # Each manifest is one writer's, and is the one that it was told it had created; none is missing, none is doubled.
    assert sorted(created) == sorted((version, manifest.nonce) for version, manifest in there.items())
    epochs = [manifest for manifest in there.values() if manifest.kind is ManifestKind.EPOCH]
    # Each batch was committed once, whoever did it.
    assert [manifest.batch_id for manifest in epochs] == list(range(1, len(epochs) + 1))
    for race in told:
        assert not all(each.fenced for each in race), "the last to open goes on unharmed"
        assert all(each.fenced or len(each.created) == 1 + EPOCHS for each in race)
    return sum(each.fenced for race in told for each in race), len(epochs)


def test_of_two_writers_one_is_fenced_and_every_batch_is_committed_once(tmp_path: Path) -> None:
    streams = -(-RACES // A_STREAM)
    found = []
    for number in range(streams):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(_races_of_a_stream(folder))
    fenced, epochs = (sum(each) for each in zip(*found, strict=True))
    told = f"{streams * A_STREAM} races of two writers: {fenced} were fenced, {epochs} epochs, each batch once"
    print(told)  # noqa: T201  (the figure that `make races` is for)
    assert fenced > 0, "in no race did the two meet"
