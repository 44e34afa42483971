"""`StreamHistory.fork`: a new stream that begins with an epoch of another, and copies nothing."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.manifest.manifest import InputSpec, ManifestKind
from dagster_ckpt.protocol.manifest.references import ancestors_named
from dagster_ckpt.protocol.object_names import MANIFESTS, manifest_name
from dagster_ckpt.storage.chain import indexed_lists
from dagster_ckpt.storage.operations.collector import Collector
from tests.unit.history.made_streams import DEPARTURES, SOURCE, MadeStream, append, departures
from tests.unit.state.epochs import EAGER, NEVER

ORIGIN = "flights/delays"
FORK = "dev/delays"


@pytest.fixture
def stream(tmp_path: Path) -> MadeStream:
    """Epochs 2, 3 and 4: one, two and three flights of each carrier."""
    made = MadeStream(tmp_path.as_uri(), ORIGIN, limits=EAGER)
    for delay in range(3):
        made.commit(departures({"UA": [delay], "AA": [delay]}))
    return made


@pytest.fixture
def store(stream: MadeStream) -> CheckpointStore:
    return CheckpointStore(stream.url)


def flights(history: StreamHistory, epoch: int | None = None) -> dict[str, int]:
    table = history.read(epoch)
    return dict(zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True))


def folder(stream: MadeStream, name: str) -> Path:
    return Path(stream.url.removeprefix("file://")) / name.replace("/", ".")


def files(stream: MadeStream, name: str) -> set[str]:
    there = folder(stream, name)
    return {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}


def gone_on(stream: MadeStream, name: str, *epochs: dict[str | None, list[float]]) -> MadeStream:
    """The stream of that name, opened as its asset would open it, and some epochs later."""
    made = replace(stream, name=name)
    for rows in epochs:
        made.commit(departures(rows))
    return made


def collected(history: StreamHistory) -> None:
    Collector(history._chain, history._root, grace_ms=-1_000).collect()


def test_a_fork_shows_the_epoch_and_copies_nothing(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    assert (fork.name, fork.latest().epoch, flights(fork)) == (FORK, 1, {"UA": 2, "AA": 2})
    assert files(stream, FORK) == {manifest_name(fork.manifest().version), f"lease/{1:020}.json"}
    assert FORK in store.streams()
    first, origin = fork.manifest(), store.stream(ORIGIN).manifest(3)
    assert (first.kind, first.version, first.uuid == origin.uuid) == (ManifestKind.FORK, 1, False)
    assert [(each.uuid, each.stream, each.epoch) for each in first.ancestors] == [(origin.uuid, ORIGIN, 3)]
    assert (first.watermark_us, first.batch_id) == (origin.watermark_us, origin.batch_id)
    assert [each.current for each in first.sources] == [each.current for each in origin.sources]


def test_both_live_their_own_lives(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    made = gone_on(stream, FORK, {"UA": [1.0], "DL": [1.0]}, {"AA": [5.0]})
    stream.commit(departures({"WN": [2.0]}))
    assert flights(fork) == {"UA": 3, "AA": 3, "DL": 1}
    assert flights(store.stream(ORIGIN)) == {"UA": 3, "AA": 3, "WN": 1}
    assert made.writer.manifest.owner.asset_key == FORK, "it belongs to its first writer"
    assert flights(fork, 1) == {"UA": 2, "AA": 2}
    assert fork.get({"carrier": ["AA"]}, 1)["flights"].to_pylist() == [2]
    assert {row["carrier"] for row in fork.changes(1).to_pylist()} == {"UA", "DL", "AA"}
    with pytest.raises(InvalidPipelineError, match="in no change log"):
        fork.changes(0)
    made.close()
    assert fork.rollback(1).epoch == 1
    assert flights(fork) == {"UA": 2, "AA": 2}


def test_it_has_no_owner_and_its_first_writer_need_not_wait(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK)
    assert fork.manifest().owner.instance == ""
    opening = replace(stream, name=FORK, instance="another instance").writer._opening
    assert opening.owner.instance == "another instance"
    assert fork.manifest().owner.instance == "another instance"


def test_an_append_only_stream_is_forked_with_all_the_files_of_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 4)
    made = MadeStream(tmp_path.as_uri(), ORIGIN, append())
    for number in range(12):
        made.commit(departures({"UA": [number], "AA": [number]}))
    origin = CheckpointStore(made.url).stream(ORIGIN)
    assert origin.manifest().files.index, "so that a fork reads an ancestor's index objects"
    fork = origin.fork(FORK, epoch=11)
    first = sorted(fork.read()["dep_delay"].to_pylist())
    assert first == sorted(origin.read(11)["dep_delay"].to_pylist())
    own: list[dict[str | None, list[float]]] = [{"DL": [100.0 + number]} for number in range(12)]
    ours = gone_on(made, FORK, *own)
    again = CheckpointStore(made.url).stream(FORK).fork("dev/again")
    made.commit(departures({"WN": [7.0]}))
    whole = sorted([*first, *(100.0 + number for number in range(12))])
    assert sorted(fork.read()["dep_delay"].to_pylist()) == whole
    assert sorted(again.read()["dep_delay"].to_pylist()) == whole
    assert fork.verify().whole
    assert again.verify().whole
    lists = {ref.ancestor for ref in ours.writer.manifest.files.index}
    assert None in lists, "its own are merged"
    assert origin.manifest().uuid in lists, "its ancestor's are left as they are"


def test_a_fork_of_a_fork_reads_the_files_of_both(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    made = gone_on(replace(stream, limits=NEVER), FORK, {"DL": [1.0]})
    second = fork.fork("dev/again")
    assert flights(second) == {"UA": 2, "AA": 2, "DL": 1}
    assert len(ancestors_named(second.manifest())) == 2
    gone_on(stream, "dev/again", {"UA": [9.0]})
    made.close()
    shutil.rmtree(folder(stream, FORK) / MANIFESTS)  # all but the files
    assert flights(second) == {"UA": 3, "AA": 2, "DL": 1}
    names = [pin.name for pin in store.stream(ORIGIN).pins()]
    assert len(names) == 2, "the fork's and its fork's"


def test_what_a_fork_needs_is_never_collected(stream: MadeStream, store: CheckpointStore) -> None:
    origin = store.stream(ORIGIN)
    fork = origin.fork(FORK, epoch=2)
    stream.retained = 1
    stream.open()
    for delay in range(20):
        stream.commit(departures({"UA": [delay]}))
        collected(origin)
    with pytest.raises(InvalidPipelineError, match="no longer kept"):
        origin.fork("dev/late", epoch=4)
    assert flights(fork) == {"UA": 1, "AA": 1}
    assert fork.verify().whole
    assert flights(origin, 2) == {"UA": 1, "AA": 1}, "pinned for the fork, and so readable"
    assert flights(origin.fork("dev/pinned", epoch=2)) == {"UA": 1, "AA": 1}


def test_a_fork_lets_go_of_its_origin_once_it_needs_none_of_its_files(
    stream: MadeStream, store: CheckpointStore
) -> None:
    origin = store.stream(ORIGIN)
    fork = origin.fork(FORK, epoch=3)
    made = replace(stream, name=FORK, retained=1)
    collected(fork)
    assert [pin.fork for pin in origin.pins()] == [FORK], "its epoch 1 is needed"
    for number in range(20):
        made.commit(departures({carrier: [number] for carrier in ("UA", "AA", "DL")}))
        collected(fork)
    assert ancestors_named(made.writer.manifest) == set(), "compaction has rewritten all that was the origin's"
    assert origin.pins() == []
    stream.close()
    assert flights(fork) == {"UA": 22, "AA": 22, "DL": 20}
    shutil.rmtree(folder(stream, ORIGIN))
    assert flights(fork) == {"UA": 22, "AA": 22, "DL": 20}
    made.commit(departures({"DL": [1.0]}))


def test_a_forks_pin_holds_the_origins_pins_for_it_too(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    made = replace(stream, name=FORK, retained=1)
    made.commit(departures({"DL": [1.0]}))
    second = fork.fork("dev/again")
    for number in range(20):
        made.commit(departures({carrier: [number] for carrier in ("UA", "AA", "DL")}))
        collected(fork)
    assert flights(second) == {"UA": 2, "AA": 2, "DL": 1}


def test_epoch_0_is_an_empty_stream_for_any_pipeline(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=0)
    assert (fork.latest().epoch, fork.read().num_rows, fork.manifest().kind) == (0, 0, ManifestKind.FORK)
    assert store.stream(ORIGIN).pins() == [], "nothing is needed"
    other = RunningAggregate.build(
        ("dep_delay",),
        {"n": agg.count()},
        InputSpec((SOURCE,), DEPARTURES.remove(1).append(pa.field("dep_delay", pa.int64()))),
    )
    made = replace(stream, name=FORK, operator=other)
    assert made.writer.manifest.pipeline.keys == ("dep_delay",)
    assert made.writer.manifest.shards == stream.writer.manifest.shards


@pytest.mark.parametrize("name", [ORIGIN, "flights/other"])
def test_a_name_that_is_taken_is_refused_and_nothing_changed(
    stream: MadeStream, store: CheckpointStore, name: str
) -> None:
    other = MadeStream(stream.url, "flights/other")
    before = files(stream, ORIGIN), files(stream, "flights/other")
    with pytest.raises(InvalidPipelineError, match="a stream of this name already"):
        store.stream(ORIGIN).fork(name)
    assert (files(stream, ORIGIN), files(stream, "flights/other")) == before
    other.close()


@pytest.mark.parametrize(
    ("name", "epoch", "message"),
    [("", 3, "not a stream's name"), ("a//b", 3, "not a stream's name"), (FORK, 9, "no such epoch")],
)
def test_what_cannot_be_forked_is_refused_and_nothing_changed(
    stream: MadeStream, store: CheckpointStore, name: str, epoch: int, message: str
) -> None:
    before = files(stream, ORIGIN)
    with pytest.raises(InvalidPipelineError, match=message):
        store.stream(ORIGIN).fork(name, epoch)
    assert files(stream, ORIGIN) == before
    assert store.streams() == [ORIGIN]


def test_an_epoch_is_chosen_by_time_too(stream: MadeStream, store: CheckpointStore) -> None:
    origin = store.stream(ORIGIN)
    then = origin.info(4).committed_at
    assert flights(origin.fork(FORK, as_of=then)) == {"UA": 3, "AA": 3}


def test_a_fork_begins_below_what_is_damaged(stream: MadeStream, store: CheckpointStore) -> None:
    path = folder(stream, ORIGIN) / manifest_name(stream.writer.manifest.version)
    path.write_bytes(path.read_bytes()[:-5])
    origin = store.stream(ORIGIN)
    with pytest.raises(CorruptStateError):
        origin.fork(FORK)
    fork = origin.fork(FORK, epoch=3)
    assert flights(fork) == {"UA": 2, "AA": 2}
    gone_on(stream, FORK, {"UA": [1.0]})
    assert flights(fork) == {"UA": 3, "AA": 2}


def test_a_forks_pin_is_not_for_people_to_take_away(stream: MadeStream, store: CheckpointStore) -> None:
    origin = store.stream(ORIGIN)
    origin.fork(FORK, epoch=3)
    [pin] = origin.pins()
    assert (pin.epoch, pin.fork) == (3, FORK)
    with pytest.raises(InvalidPipelineError, match="keeps files of a fork"):
        origin.unpin(pin.name)
    shutil.rmtree(folder(stream, FORK))
    origin.unpin(pin.name)
    assert origin.pins() == []
    with pytest.raises(InvalidPipelineError, match="reserved for forks"):
        origin.pin(3, "fork-mine")


def test_an_origin_that_was_removed_and_created_again_is_reported(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    stream.close()
    shutil.rmtree(folder(stream, ORIGIN))
    with pytest.raises(CorruptStateError, match=r"good_epoch=none, because=.*was removed: restore"):
        fork.read()
    stream.open()
    stream.commit(departures({"UA": [1.0]}))
    with pytest.raises(CorruptStateError, match=r"because=.*was removed and created again: restore"):
        fork.read()
    assert not fork.verify().whole


def test_verifying_reads_what_the_ancestors_have(stream: MadeStream, store: CheckpointStore) -> None:
    fork = store.stream(ORIGIN).fork(FORK, epoch=3)
    assert fork.verify().whole
    assert fork.verify().runs > 0
    manifest = fork.manifest()
    run = next(run for shards in manifest.runs.values() for shard in shards for run in shard)
    path = folder(stream, ORIGIN) / run.path
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    [found] = fork.verify().findings
    assert (found.object, found.epochs) == (run.name, (1,))
    with pytest.raises(CorruptStateError, match=run.name):
        fork.read()
    [pin] = store.stream(ORIGIN).pins()
    (folder(stream, ORIGIN) / "pins" / f"{pin.name}.json").unlink()
    assert any("the files that it keeps may be collected" in each.wrong for each in fork.verify().findings)
