"""`StreamHistory.reshard`: another number of shards by a person's word, outside of any Dagster run."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, FencedError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.history import CheckpointStore, StreamHistory
from dagster_ckpt.ids import Version
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.operators.windows.windowed_state import ENDS
from dagster_ckpt.protocol.manifest.manifest import ManifestKind
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.state.runs import run_writer
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.operations import manual_opening
from tests.unit.history.made_streams import HOUR_US, TIMED, MadeStream, append, by_hour, departures
from tests.unit.history.test_stream_history_rollback import _beating

NAME = "delays"
CARRIERS = [f"{letter}{number}" for letter in "ABCDEFGH" for number in range(4)]

Make = Callable[..., MadeStream]


@pytest.fixture
def stream(tmp_path: Path) -> MadeStream:
    """Epochs 2 and 3: two flights of each carrier."""
    made = MadeStream(tmp_path.as_uri(), NAME)
    for _ in range(2):
        made.commit(departures({carrier: [1.0] for carrier in CARRIERS}))
    made.close()
    return made


@pytest.fixture
def timed(tmp_path: Path) -> MadeStream:
    """Epochs 2 and 3: the hour before 10 is open, and one row of each carrier came too late."""
    made = MadeStream(tmp_path.as_uri(), NAME, by_hour())
    made.commit(flights_at(9), hours=10)
    made.commit(pa.concat_tables([flights_at(9), flights_at(1)]), hours=10)
    made.close()
    return made


def flights_at(hour: int) -> pa.Table:
    """One flight of each carrier in that hour."""
    count = len(CARRIERS)
    return pa.table({"carrier": CARRIERS, "dep_delay": [1.0] * count, "at": [hour * HOUR_US] * count}, schema=TIMED)


def of(stream: MadeStream) -> StreamHistory:
    return CheckpointStore(stream.url).stream(NAME)


def flights(history: StreamHistory, epoch: int | None = None) -> dict[str, int]:
    table = history.read(epoch)
    assert table.num_rows == len(set(table["carrier"].to_pylist()))
    return dict(zip(table["carrier"].to_pylist(), table["flights"].to_pylist(), strict=True))


def files(stream: MadeStream) -> list[str]:
    return sorted(name for name in stream.writer.store.list("state"))


@pytest.mark.parametrize("shards", [1, 8])
def test_a_table_sorted_by_hash_changes_hands_by_the_manifest_alone(stream: MadeStream, shards: int) -> None:
    history, before = of(stream), files(stream)
    info = history.reshard(shards)
    assert (info.epoch, info.shards, info.current) == (3, shards, True)
    assert files(stream) == before
    shown = history.manifest()
    assert (shown.kind, shown.version, shown.term) == (ManifestKind.RESHARD, 5, 4), "opened, then resharded in its term"
    assert shown.changes == stream.writer.manifest.changes, "who reads the log of that epoch reads what it was"
    assert flights(history) == dict.fromkeys(CARRIERS, 2)


def test_the_stream_goes_on_at_the_next_epoch_and_the_past_stays(stream: MadeStream) -> None:
    history = of(stream)
    history.pin(2, "before")
    for shards in (8, 1, 4):
        history.reshard(shards)
        stream.open()
        assert stream.writer.manifest.shards == shards
        stream.commit(departures({carrier: [1.0] for carrier in CARRIERS}))
        stream.close()
    assert flights(history) == dict.fromkeys(CARRIERS, 5)
    assert [info.shards for info in history.epochs()] == [4, 1, 8, 2, 2]
    assert flights(history, 2) == dict.fromkeys(CARRIERS, 1)
    assert history.verify().whole


def test_going_back_brings_the_number_back_that_the_epoch_had(stream: MadeStream) -> None:
    history = of(stream)
    history.reshard(8)
    stream.open()
    stream.commit(departures({"A0": [1.0]}))
    stream.close()
    assert (history.rollback(2).shards, flights(history)) == (2, dict.fromkeys(CARRIERS, 1))
    history.reshard(16)
    assert (history.rollback(0).shards, flights(history)) == (16, {}), "nothing is there that had another"
    stream.open()
    stream.commit(departures({"A0": [1.0]}))
    assert flights(history) == {"A0": 1}
    stream.close()


@pytest.mark.parametrize("shards", [1, 8])
def test_timelines_are_rewritten_and_continue(timed: MadeStream, shards: int) -> None:
    history = of(timed)
    reported: list[tuple[int, int]] = []
    before = history.manifest()
    history.reshard(shards, progress=lambda done, all_: reported.append((done, all_)))
    after = history.manifest()
    assert reported[-1][0] == reported[-1][1] > 0
    for table in (ENDS, late_table(0)):
        old, new = ({run.path for refs in each.runs[table] for run in refs} for each in (before, after))
        assert old.isdisjoint(new), "a timeline's file has the rows of one shard alone"
        rows = [sum(run.rows for refs in each.runs[table] for run in refs) for each in (before, after)]
        assert rows[1] == len(CARRIERS), rows
    timed.open()
    timed.commit(flights_at(12), hours=13)
    timed.commit(flights_at(12), hours=14)
    assert flights(history) == dict.fromkeys(CARRIERS, 2), "each hour comes out once it has passed"
    assert sorted(history.late_rows()["carrier"].to_pylist()) == CARRIERS
    assert flights(history, 3) == {}
    timed.close()


def test_a_crash_while_timelines_are_written_leaves_the_stream_as_it_was(
    timed: MadeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = of(timed)

    def broken(*_: object) -> None:
        raise StoreUnavailableError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(run_writer, "create", broken)
        with pytest.raises(StoreUnavailableError):
            history.reshard(8)
    assert history.latest().shards == 2
    with monkeypatch.context() as patch:
        patch.setattr("dagster_ckpt.storage.writer.stream_writer.StreamWriter.reshard", broken)
        with pytest.raises(StoreUnavailableError):
            history.reshard(8)
    garbage = {file for file in files(timed) if file.split("/")[-1].startswith("5-")}
    assert garbage
    assert history.reshard(8).shards == 8, "its lease shows that it was interrupted: no wait"
    history.collect_garbage()
    assert garbage.isdisjoint(files(timed))
    timed.open()
    timed.commit(flights_at(12), hours=13)
    timed.commit(hours=14, rows=TIMED.empty_table())
    assert flights(history) == dict.fromkeys(CARRIERS, 2)
    timed.close()


def test_a_table_that_only_grows_keeps_its_files(tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), NAME, append())
    made.commit(departures({carrier: [1.0] for carrier in CARRIERS}))
    made.close()
    history = of(made)
    history.reshard(1)
    assert max(change.shard for change in history.manifest().changes) == 1, "the shard that it had"
    made.open()
    made.commit(departures({"A0": [1.0]}))
    assert history.read().num_rows == len(CARRIERS) + 1
    made.close()


def test_the_next_writer_need_not_wait_and_gets_the_number(
    stream: MadeStream, caplog: pytest.LogCaptureFixture
) -> None:
    of(stream).reshard(8)
    lease = read_lease(stream.writer.store, of(stream).manifest().term)
    assert lease is not None
    assert lease.closed == "resharded to 8"
    with caplog.at_level(logging.WARNING):
        stream.open()
    assert "dagster-ckpt reshard" in caplog.text
    assert "shards=8, asked=2" in caplog.text
    stream.close()


def test_a_live_writer_is_not_disturbed(stream: MadeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manual_opening, "LEASE_TIMEOUT_MS", 1_000)
    history = of(stream)
    live = _beating(stream)
    with pytest.raises(FencedError, match=r"--fence.*dagster_run=dagster-run-7"):
        history.reshard(8)
    assert history.latest().shards == 2
    assert history.reshard(8, fence=True).shards == 8
    with pytest.raises(FencedError, match="took over"):
        live.check_term()
    live.close("the test is over")


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        (2, r"the stream already has this number of shards; nothing changed\. stream=delays, shards=2"),
        (0, "power of two"),
        (6, "power of two"),
        (8192, "from 1 to 4096"),
    ],
)
def test_a_number_that_cannot_be_is_refused(stream: MadeStream, shards: int, message: str) -> None:
    before = sorted(stream.writer.store.list(""))
    with pytest.raises(InvalidPipelineError, match=message):
        of(stream).reshard(shards)
    assert sorted(stream.writer.store.list("")) == before


def test_a_stream_with_a_damaged_end_is_gone_back_first(stream: MadeStream) -> None:
    path = Path(stream.url.removeprefix("file://")) / NAME / manifest_name(Version(3))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptStateError, match="good_epoch=2, go_back="):
        of(stream).reshard(8)
