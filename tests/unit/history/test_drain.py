"""`StreamHistory.drain`: a person asks; the writer ends at its next epoch; no other writer does."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.errors import CheckpointError, CorruptStateError, FencedError
from dagster_ckpt.history import CheckpointStore, StreamHistory, WriterInfo, drain
from dagster_ckpt.protocol.lease import Life, ProcessId, encode_lease
from dagster_ckpt.protocol.object_names import lease_name
from dagster_ckpt.storage.writer.drain_requests import DrainWatch, read_drain
from tests.unit.history.made_streams import MadeStream, departures


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeStream:
    monkeypatch.setattr(drain, "_LOOK_MS", 5)
    made = MadeStream(tmp_path.as_uri(), "delays")
    made.commit(departures({"UA": [1.0]}))
    return made


@pytest.fixture
def history(stream: MadeStream) -> StreamHistory:
    return CheckpointStore(stream.url).stream("delays")


def is_asked(stream: MadeStream) -> bool:
    """Whether the stream's present writer finds that it is to end. Each opening is one of a run of its own here."""
    writer = stream.writer
    holder = replace(writer.heartbeat.lease.holder, dagster_run_id="another")
    watch = DrainWatch(writer.store, writer._chain.clock, holder, writer.term, 1_000)
    return watch.reason(writer.manifest.epoch) is not None


def holder_elsewhere(stream: MadeStream, timeout_ms: int) -> None:
    """The writer's lease as if it were a silent process on another host."""
    stream.writer.heartbeat.stop()
    now = stream.writer.heartbeat.lease
    process = ProcessId("elsewhere", "boot", "pid:[1]", 4242, 99)
    there = replace(now, holder=replace(now.holder, process=process), timeout_ms=timeout_ms)
    stream.writer.store.put(lease_name(now.term), encode_lease(there))


def test_the_writer_at_work_is_asked_and_its_end_is_waited_for(stream: MadeStream, history: StreamHistory) -> None:
    asked = history.drain()
    assert asked is not None
    assert asked.writer.dagster_run_id == "dagster-run-1"
    assert is_asked(stream)
    seen: list[WriterInfo] = []

    def ends(writer: WriterInfo) -> None:
        seen.append(writer)
        if len(seen) == 2:
            stream.commit(departures({"UA": [2.0]}))
            stream.writer.close("drained, as was asked for on here")

    ended = asked.wait(ends)
    assert [each.life for each in seen] == [Life.BEATING, Life.BEATING]
    assert (ended.life, ended.epoch, ended.closed) == (Life.CLOSED, 3, "drained, as was asked for on here")


def test_who_opens_the_stream_later_is_not_meant(stream: MadeStream, history: StreamHistory) -> None:
    history.drain()
    stream.close()
    stream.open()
    assert not is_asked(stream)
    history.drain()
    assert is_asked(stream)
    stream.close()


def test_a_stream_without_a_writer_needs_no_draining(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    assert history.drain() is None
    assert read_drain(stream.writer.store) is None
    assert history.writer().closed == "the test is over"


def test_a_writer_that_is_gone_needs_no_draining(stream: MadeStream, history: StreamHistory) -> None:
    stream.writer.heartbeat.stop()
    lease = stream.writer.heartbeat.lease
    gone = replace(lease, holder=replace(lease.holder, process=replace(lease.holder.process, started_ticks=1)))
    stream.writer.store.put(lease_name(lease.term), encode_lease(gone))
    assert history.drain() is None
    assert history.writer().life is Life.DEAD


def test_a_restart_of_the_query_is_the_same_writer(stream: MadeStream, history: StreamHistory) -> None:
    asked = history.drain()
    assert asked is not None
    seen: list[int] = []

    def reopens(writer: WriterInfo) -> None:
        seen.append(writer.term)
        if len(seen) == 1:
            stream.writer = stream.writer.reopen()
        else:
            stream.close()

    assert asked.wait(reopens).term == stream.writer.term
    assert len(set(seen)) == 2


def test_a_successor_means_that_the_writer_has_ended(stream: MadeStream, history: StreamHistory) -> None:
    asked = history.drain()
    assert asked is not None

    def ends(_: WriterInfo) -> None:
        stream.close()
        stream.open()
        stream.writer.heartbeat.stop()
        lease = stream.writer.heartbeat.lease
        other = replace(lease, holder=replace(lease.holder, dagster_run_id="dagster-run-2"))
        stream.writer.store.put(lease_name(lease.term), encode_lease(other))

    ended = asked.wait(ends)
    assert (ended.dagster_run_id, ended.life, ended.epoch) == ("dagster-run-1", Life.CLOSED, 2)


def test_a_writer_that_was_fenced_has_not_ended_by_itself(stream: MadeStream, history: StreamHistory) -> None:
    asked = history.drain()
    assert asked is not None
    stream.writer.heartbeat.stop()
    history.rollback(0, fence=True)
    with pytest.raises(FencedError, match=r"took over.*theirs=3"):
        asked.wait()


def test_a_writer_that_stops_beating_is_reported(stream: MadeStream, history: StreamHistory) -> None:
    holder_elsewhere(stream, timeout_ms=30)
    asked = history.drain()
    assert asked is not None
    began = time.monotonic()
    with pytest.raises(CheckpointError, match=r"died.*life=lapsed, epoch=2, dagster_run=dagster-run-1, host=elsewhere"):
        asked.wait()
    assert time.monotonic() - began < 20


def test_a_damaged_manifest_is_reported_with_the_way_back(stream: MadeStream, history: StreamHistory) -> None:
    stream.close()
    path = Path(stream.url.removeprefix("file://")) / "delays/manifest/00000000000000000002.json"
    path.write_bytes(b"damaged")
    with pytest.raises(CorruptStateError, match="good_epoch=none"):
        history.drain()
