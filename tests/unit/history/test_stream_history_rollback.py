"""`StreamHistory.rollback`: a person's word, outside of any Dagster run."""

from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError, FencedError, InvalidPipelineError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Epoch, StreamUuid, Version
from dagster_ckpt.operators import AppendOnly, Operator
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.epochs.upstream import UpstreamPosition
from dagster_ckpt.protocol.lease import LeaseHolder, ProcessId
from dagster_ckpt.protocol.manifest.manifest import EpochRange, ManifestKind
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.operations import manual_opening
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.unit.history.made_streams import MadeStream, aggregate, append, departures

NAME = "delays"
MANIFESTS_KEPT = 17
"""One more than the newest manifests that no collector removes."""


@pytest.fixture
def stream(tmp_path: Path) -> MadeStream:
    """Epochs 2, 3 and 4: one, two and three flights."""
    made = MadeStream(tmp_path.as_uri(), NAME)
    for delay in range(3):
        made.commit(departures({"UA": [delay]}))
    return made


@pytest.fixture
def history(stream: MadeStream) -> StreamHistory:
    return CheckpointStore(stream.url).stream(NAME)


def flights(history: StreamHistory) -> list[int]:
    counted: list[int] = history.read()["flights"].to_pylist()
    return counted


def damage(stream: MadeStream, name: str) -> None:
    path = Path(stream.url.removeprefix("file://")) / NAME / name
    path.write_bytes(path.read_bytes()[:-5])


def test_readers_see_the_older_epoch_and_the_writer_goes_on_from_it(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    shown = history.rollback(3)
    assert (shown.epoch, shown.version, shown.current, flights(history)) == (3, 3, True, [2])
    manifest = history.manifest()
    assert (manifest.kind, manifest.abandoned) == (ManifestKind.ROLLBACK, (EpochRange(Epoch(4), Epoch(4)),))
    assert manifest.owner == stream.writer.manifest.owner
    assert manifest.pipeline == stream.writer.manifest.pipeline
    stream.open()
    assert stream.commit(departures({"UA": [9.0]})) == 7
    assert flights(history) == [3]
    stream.close()


def test_the_next_writer_need_not_wait(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    history.rollback(2)
    store = folder_store(open_store(stream.url), NAME)
    term = history.manifest().term
    lease = read_lease(store, term)
    assert lease is not None
    assert lease.closed == "rolled back to epoch 2"
    assert lease.holder.instance == "instance-1", "the sensor of that instance goes on looking after the stream"


def test_epoch_0_is_the_empty_stream(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    assert history.rollback(0).epoch == 0
    assert flights(history) == []


def test_a_live_writer_is_not_disturbed(
    stream: MadeStream, history: StreamHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manual_opening, "LEASE_TIMEOUT_MS", 1_000)
    live = _beating(stream)
    with pytest.raises(FencedError, match=r"--fence.*dagster_run=dagster-run-7"):
        history.rollback(3)
    assert flights(history) == [3]
    assert history.rollback(3, fence=True).epoch == 3
    with pytest.raises(FencedError, match="took over"):
        live.check_term()
    live.close("the test is over")


def _beating(stream: MadeStream) -> StreamWriter:
    """A writer whose lease beats every third of a second."""
    stream.close()
    opening = stream.writer._opening
    holder = LeaseHolder("dagster-run-7", "instance-1", ProcessId("elsewhere", "boot", "pid:[1]", 1, 1))
    opening = replace(opening, holder=holder, lease_timeout_ms=1_000, take_over=Takeover.ALWAYS)
    return open_stream(stream.writer.store, opening, SystemClock())


@pytest.mark.parametrize("epoch", [1, 5, 9])
def test_an_epoch_that_is_not_there_is_refused(stream: MadeStream, history: StreamHistory, epoch: int) -> None:
    stream.close()
    before = sorted(stream.writer.store.list(""))
    with pytest.raises(InvalidPipelineError, match="retained=2-4"):
        history.rollback(epoch)
    assert sorted(stream.writer.store.list("")) == before
    with pytest.raises(InvalidPipelineError, match="0 or a retained epoch"):
        history.rollback(-1)


def test_going_back_twice_is_two_words(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    history.rollback(3)
    assert history.rollback(2).epoch == 2
    with pytest.raises(InvalidPipelineError, match="an earlier rollback left behind"):
        history.rollback(3)


def test_a_damaged_newest_manifest_is_gone_back_over(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    damage(stream, manifest_name(Version(4)))
    with pytest.raises(CorruptStateError, match="good_epoch=3, go_back="):
        history.latest()
    assert history.exists()
    assert history.rollback(3).epoch == 3
    assert flights(history) == [2]
    stream.open()
    assert stream.commit(departures({"UA": [9.0]})) == 7
    stream.close()


def test_a_damaged_run_is_gone_back_over(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    run = next(run.path for shards in stream.writer.manifest.runs[GROUPS] for run in shards if run.epoch == 4)
    damage(stream, run)
    with pytest.raises(CorruptStateError, match="good_epoch=3, go_back="):
        history.read()
    history.rollback(3)
    assert flights(history) == [2]


@pytest.mark.parametrize("made", ["changes", "index"])
def test_a_damaged_part_of_an_append_only_table_is_gone_back_over(
    tmp_path: Path, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagster_ckpt.storage.chain.indexed_lists.TAIL_MAX", 1)
    stream = MadeStream(tmp_path.as_uri(), NAME, append())
    for delay in range(3):
        stream.commit(departures({"UA": [delay], "AA": [delay]}))
    stream.close()
    history = CheckpointStore(stream.url).stream(NAME)
    newest = max((tmp_path / NAME / made).glob("1-4-*"))
    damage(stream, f"{made}/{newest.name}")
    objects = {finding.object: finding.epochs for finding in history.verify().findings}
    assert objects == {f"{made}/{newest.name}": (4,)}
    history.rollback(3)
    assert history.read().num_rows == 4
    stream.open()
    stream.commit(departures({"UA": [9.0]}))
    stream.close()
    assert history.read().num_rows == 5


def test_a_damaged_target_is_refused_and_says_which_epoch_is_good(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    damage(stream, manifest_name(Version(4)))
    damage(stream, manifest_name(Version(3)))
    with pytest.raises(CorruptStateError, match=r"good_epoch=2, go_back=.*--epoch 2"):
        history.latest()
    history.rollback(2)
    assert flights(history) == [1]


@pytest.mark.parametrize("operator", [aggregate(), append()], ids=["keyed", "append-only"])
def test_a_pinned_epoch_is_restored_long_after_it_was_retired(operator: Operator | AppendOnly, tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), NAME, operator, retained=2)
    first = made.commit(departures({"UA": [1.0], "AA": [2.0]}))
    history = CheckpointStore(made.url).stream(NAME)
    then, pinned = history.read(), history.pin(first, "before-migration")
    for delay in range(8):
        made.commit(departures({"UA": [delay]}))
    made.close()
    collect(made)
    assert first not in [each.epoch for each in history.manifest().retained]
    shown = history.rollback(first)
    assert (shown.epoch, shown.version, shown.current, shown.committed_at) == (
        first,
        history.manifest().version,
        True,
        pinned.committed_at,
    )
    history.unpin("before-migration")
    collect(made)
    assert history.read().equals(then)
    assert history.verify().whole
    made.open()
    last = made.commit(departures({"B6": [3.0]}))
    assert history.read(first).equals(then)
    changes = history.changes(after=first)
    assert changes["carrier"].to_pylist() == ["B6"]
    assert changes["_epoch"].to_pylist() == [last]
    made.close()
    history.rollback(first)
    assert history.read().equals(then)


def test_a_run_goes_back_to_a_pinned_epoch_too(tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), NAME, retained=1)
    first = made.commit(departures({"UA": [1.0]}))
    history = CheckpointStore(made.url).stream(NAME)
    history.pin(first, "kept")
    made.commit(departures({"UA": [1.0]}))
    assert made.open(from_epoch=first).epoch == first
    assert flights(history) == [1]


def test_a_pin_of_what_a_rollback_left_behind_is_no_target(stream: MadeStream, history: StreamHistory) -> None:
    history.pin(4, "left-behind")
    stream.close()
    history.rollback(3)
    stream.retained = 1
    stream.open()
    for _ in range(3):
        stream.commit(departures({"UA": [0.0]}))
    stream.close()
    with pytest.raises(InvalidPipelineError, match=r"neither retained nor pinned, or .*pinned=none"):
        history.rollback(4)


def collect(stream: MadeStream) -> None:
    """Remove all garbage, without a grace period."""
    root = open_store(stream.url)
    Collector(ManifestChain(folder_store(root, NAME), SystemClock()), root, grace_ms=-1_000).collect()


def test_who_has_consumed_a_restored_epoch_follows_it(tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), NAME, retained=2)
    first = made.commit(departures({"UA": [1.0]}))
    history = CheckpointStore(made.url).stream(NAME)
    history.pin(first, "before")
    at = UpstreamPosition(made.writer.manifest.uuid, Epoch(first))
    for delay in range(MANIFESTS_KEPT):
        made.commit(departures({"UA": [delay]}))
    made.close()
    collect(made)
    chain = ManifestChain(folder_store(open_store(made.url), NAME), SystemClock())
    with pytest.raises(NothingFollowsError):
        UpstreamLog(chain, NAME).check(at)
    for _ in range(2):  # openings lie between the newest epoch and the rollback
        made.open()
        made.close()
    history.rollback(first)
    assert UpstreamLog(chain, NAME).following(at, 10) == []
    subscribe(chain, Subscriber("reader", StreamUuid("e" * 32), Epoch(first)))
    made.open()
    later = [made.commit(departures({"UA": [delay]})) for delay in range(MANIFESTS_KEPT)]
    collect(made)
    assert first not in [each.epoch for each in history.manifest().retained]
    log = UpstreamLog(chain, NAME)
    assert log.check(at).epoch == later[-1]
    assert [each.epoch for each in log.following(at, 100)] == later
