"""What is done with streams' pasts, and streams that read streams, on a disk and on S3: they need the store alone."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.operators import AppendOnly
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.operators.windows.windowed_state import ENDS
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, UPDATE_PREIMAGE
from dagster_ckpt.protocol.epochs.upstream import decode
from dagster_ckpt.protocol.manifest.manifest import InputSpec, RunRef
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.upstreams.downstream import Downstream, Planned, Read, table_key
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import stream_folder
from tests.unit.history.made_streams import DEPARTURES, MadeStream, by_hour, departures
from tests.unit.history.reading_streams import ReadingStream, source_of
from tests.unit.history.test_stream_history_reshard import CARRIERS, flights_at
from tests.unit.state.epochs import EAGER
from tests.worlds.s3_server import S3Server

pytest.importorskip("pyspark.sql.streaming.datasource", reason="a stream that reads a stream needs Spark 4.2")
from pyspark.sql.streaming.datasource import ReadMaxFiles

from dagster_ckpt.runtime.upstreams.upstream_source import UpstreamReader

EPOCHS = 17
"""One more than the newest manifests that no collector removes."""


@dataclass(frozen=True)
class World:
    """A store and what is in it."""

    address: StoreAddress

    def made(self, name: str, **fields: Any) -> MadeStream:
        return MadeStream(self.address.url, name, options=self.address.options, **fields)

    @property
    def store(self) -> CheckpointStore:
        return CheckpointStore(self.address.url, self.address.options)

    def flights(self, name: str) -> dict[str, int]:
        table = self.store.stream(name).read(columns=["carrier", "flights"])
        return dict(zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True))

    def collected(self, *names: str) -> list[str]:
        """The objects that went in so many passes that nothing more does."""
        chains = [ManifestChain(stream_folder(self.address.open(), name), SystemClock()) for name in names]
        root, before = self.address.open(), self._objects()
        for _ in range(2):
            for chain in chains:
                Collector(chain, root, grace_ms=-1_000).collect()
        return sorted(before - self._objects())

    def _objects(self) -> set[str]:
        return set(self.address.open().list(""))


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.long)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "local":
        return World(StoreAddress(tmp_path.as_uri()))
    server: S3Server = request.getfixturevalue("s3_server")
    return World(server.empty())


def test_a_downstream_reads_the_table_in_parts_and_then_the_log(world: World) -> None:
    up = world.made("up")
    up.commit(departures({carrier: [1.0] for carrier in "ABCDE"}))
    operator = AppendOnly.build(InputSpec((source_of("up"),), DEPARTURES))
    down = ReadingStream(world.address.url, "down", operator, retained=3, options=world.address.options)
    own = ManifestChain(down.writer.store, SystemClock())
    source = StreamSource(source_of("up"), number=0, lines=(0,), reads_files=False)
    upstreams = Upstreams("down", [source], world.address.open(), own)
    upstreams.prepare(down.writer.manifest)
    assert [pin.epoch for pin in world.store.stream("up").pins()] == [2]
    up.commit(departures({"A": [1.0], "F": [1.0]}))
    newest = up.commit(departures({"A": [1.0], "G": [1.0]}))

    reads = Downstream(world.address, folder_of(("down",)), epochs_max=1, tasks=2, rows_a_part=2)
    schema = up.operator.pipeline.output.append(pa.field(CHANGE_TYPE, pa.string()))
    reader = UpstreamReader(reads, "up", Read.TABLE, Planned(schema, table_key(up.operator.pipeline)))
    table: dict[str, int] = {}
    at, consumed, pinned = reader.initialOffset(), list[int](), list[list[int]]()
    while (until := reader.latestOffset(at, ReadMaxFiles(1))) != at:
        for partition in reader.partitions(at, until):
            _apply(table, [row for batch in reader.read(partition) for row in batch.to_pylist()])
        down.at["up"] = decode(json.dumps(until))
        consumed.append(down.at["up"].epoch)
        down.commit(departures({"UA": [1.0]}))
        upstreams.on_commit(down.writer.manifest)
        pinned.append([pin.epoch for pin in world.store.stream("up").pins()])
        at = until
    assert consumed == [2, 2, 2, 3, 4], "three parts, and each epoch by itself"
    assert table == world.flights("up") == {**dict.fromkeys("BCDEFG", 1), "A": 3}
    assert pinned == [[2]] * 4 + [[]], "as long as one of three epochs is in its midst"
    upstreams.prepare(down.writer.manifest)

    read_by = down.writer.manifest.epoch
    up.commit(departures({"A": [1.0]}))
    assert dict(world.store.snapshot(["up", "down"], "aligned").epochs) == {"up": newest, "down": read_by}
    [subscriber] = world.store.stream("up").subscribers()
    assert (subscriber.stream, subscriber.lag) == ("down", 1)


def _apply(table: dict[str, int], changes: list[dict[str, object]]) -> None:
    """Of each key at most one change is among them."""
    for change in changes:
        if change[CHANGE_TYPE] in {DELETE, UPDATE_PREIMAGE}:
            assert table.pop(str(change["carrier"])) == change["flights"]
    for change in changes:
        if change[CHANGE_TYPE] not in {DELETE, UPDATE_PREIMAGE}:
            assert str(change["carrier"]) not in table
            table[str(change["carrier"])] = int(str(change["flights"]))


def test_a_fork_of_a_fork_keeps_what_it_needs_of_both(world: World) -> None:
    origin = world.made("origin", retained=1, limits=EAGER)
    origin.commit(departures({"UA": [1.0], "AA": [1.0]}))
    history = world.store.stream("origin")
    history.fork("dev/fork")
    fork = replace(origin, name="dev/fork")
    fork.commit(departures({"DL": [1.0]}))
    second = world.store.stream("dev/fork").fork("dev/second")
    for _ in range(EPOCHS):
        origin.commit(departures({"UA": [1.0]}))
    origin.open()  # what a live writer has written none but itself collects
    gone = world.collected("origin", "dev/fork", "dev/second")
    assert any(name.startswith("origin/state/") for name in gone)
    assert not any(name.startswith("dev.") and "/state/" in name for name in gone)
    assert world.flights("origin") == {"UA": 1 + EPOCHS, "AA": 1}
    assert world.flights("dev/fork") == world.flights("dev/second") == {"UA": 1, "AA": 1, "DL": 1}
    assert len(history.pins()) == 2
    assert second.verify().whole
    again = replace(origin, name="dev/second")
    again.commit(departures({"DL": [1.0]}))
    assert world.flights("dev/second") == {"UA": 1, "AA": 1, "DL": 2}


def test_keys_and_changes_are_read_at_any_epoch_and_shards_change_hands(world: World) -> None:
    stream = world.made("delays")
    stream.commit(departures({carrier: [1.0] for carrier in CARRIERS}))
    stream.commit(departures({"A0": [1.0], "new": [1.0]}))
    stream.close()
    history = world.store.stream("delays")
    before = set(stream.writer.store.list("state"))
    assert history.reshard(8).shards == 8
    assert set(stream.writer.store.list("state")) == before
    stream.open()
    stream.commit(departures({"A0": [1.0]}))
    stream.close()
    assert world.flights("delays") == {**dict.fromkeys(CARRIERS, 1), "A0": 3, "new": 1}
    assert history.get({"carrier": ["A0", "nobody", "A1"]})["flights"].to_pylist() == [3, 1]
    assert history.get({"carrier": ["A0", "new"]}, epoch=2)["flights"].to_pylist() == [1]
    told = history.changes(after=2, columns=["carrier", "flights"]).to_pylist()
    three, six = 3, history.latest().epoch
    assert sorted((row["_epoch"], row["carrier"], row["_change_type"], row["flights"]) for row in told) == [
        (three, "A0", "update_postimage", 2),
        (three, "A0", "update_preimage", 1),
        (three, "new", "insert", 1),
        (six, "A0", "update_postimage", 3),
        (six, "A0", "update_preimage", 2),
    ]


def test_a_fork_whose_timelines_are_its_origins_is_resharded_and_its_fork_too(world: World) -> None:
    """The hour before 10 is open, and one row of each carrier came too late."""
    origin = world.made("origin", operator=by_hour())
    origin.commit(flights_at(9), hours=10)
    origin.commit(pa.concat_tables([flights_at(9), flights_at(1)]), hours=10)
    names = ["origin", "dev/fork", "dev/second"]
    for number, shards in enumerate([8, 1]):
        fork = world.store.stream(names[number]).fork(names[number + 1])
        theirs = _timelines(fork)
        assert {run.ancestor is None for run in theirs} == {False}
        assert fork.reshard(shards).shards == shards
        own = _timelines(fork)
        assert {run.ancestor for run in own} == {None}, "written anew, and its own"
        assert sum(run.rows for run in own) == sum(run.rows for run in theirs) == 2 * len(CARRIERS)
    world.collected(*names)
    for name, shards in zip(names, [2, 8, 1], strict=True):
        stream = origin if name == "origin" else replace(origin, name=name)
        assert stream.writer.manifest.shards == shards
        stream.commit(flights_at(12), hours=13)
        stream.commit(flights_at(12), hours=13)
        stream.close()
        assert world.flights(name) == dict.fromkeys(CARRIERS, 2), "the hour comes out once it has passed"
        assert sorted(world.store.stream(name).late_rows()["carrier"].to_pylist()) == CARRIERS
        assert world.store.stream(name).verify().whole


def _timelines(history: StreamHistory) -> list[RunRef]:
    runs = history.manifest().runs
    return [run for table in (ENDS, late_table(0)) for shard in runs[table] for run in shard]
