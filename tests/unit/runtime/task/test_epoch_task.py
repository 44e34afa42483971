"""One task's work, called as Spark calls it, on a store in a folder."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt import agg
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Nonce, Version
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import ChangeKind, InputSpec, Manifest, Owner
from dagster_ckpt.protocol.object_names import parse_file_name
from dagster_ckpt.runtime.micro_batch.epoch_driver import final_error
from dagster_ckpt.runtime.task.ack_rows import Reply, ShardDecline
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, _Known, _known, _place, replies_of
from dagster_ckpt.runtime.task.shard_assignment import HASH, ShardAssignment
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

SHARDS = 4
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def setup(tmp_path: Path) -> TaskSetup:
    return TaskSetup(StoreAddress(tmp_path.as_uri()), "delays", ShardAssignment.keyed(SHARDS, 2), ("at",))


@pytest.fixture
def writer(setup: TaskSetup) -> StreamWriter:
    operator = RunningAggregate.build(("k",), {"n": agg.count()}, InputSpec((), SCHEMA), "at")
    opening = Opening(
        stream="delays",
        owner=Owner("tests", "delays"),
        pipeline=operator.pipeline,
        shards=SHARDS,
        holder=LeaseHolder("run", "tests", this_process()),
        root_run="run",
    )
    writer = open_stream(folder_store(setup.address.open(), setup.folder), opening, SystemClock())
    writer.close("tests")
    return writer


def order_of(writer: StreamWriter) -> EpochOrder:
    manifest = writer.manifest
    return EpochOrder(writer.next_epoch, manifest.term, manifest.version, manifest.nonce)


def batch(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    """Rows of (shard, key, event time)."""
    hashes = np.array([(shard << 62) + key for shard, key, _ in rows], np.uint64).view(np.int64)
    keys, times = [row[1] for row in rows], pa.array([row[2] for row in rows], pa.timestamp("us", "UTC"))
    return pa.record_batch({"k": keys, "at": times, HASH: hashes})


def acks_of(replies: list[ShardAck | ShardDecline]) -> list[ShardAck]:
    acks = [reply for reply in replies if isinstance(reply, ShardAck)]
    assert len(acks) == len(replies), replies
    return acks


def test_the_shards_of_a_task_share_a_file_and_each_has_its_part_of_it(setup: TaskSetup, writer: StreamWriter) -> None:
    batches = [batch((2, 7, 10), (3, 8, 99)), batch((2, 7, 50), (2, 9, 20))]
    two, three = acks_of(replies_of(setup, order_of(writer), 1, 77, iter(batches)))
    [[mine], [theirs]] = [[run for table in ack.tables for run in table.runs] for ack in (two, three)]
    assert mine.path == theirs.path
    assert (mine.clip.hi >> 62, theirs.clip.lo >> 62) == (2, 3)
    file = parse_file_name(mine.path)
    assert file is not None
    assert (file.term, file.epoch, file.shard, file.attempt) == (1, 2, 2, 77)


def test_the_first_shards_ack_has_the_counts_of_the_task(setup: TaskSetup, writer: StreamWriter) -> None:
    batches = [batch((2, 7, 10), (3, 8, 99)), batch((2, 7, 50), (2, 9, 20))]
    two, three = acks_of(replies_of(setup, order_of(writer), 1, 77, iter(batches)))
    assert (two.shard, two.rows_in, two.rows_out, two.state_rows, two.event_times_us) == (2, 3, 3, 3, (99,))
    assert two.counters == (("keys_touched", 3),)
    assert (two.table_rows, three.table_rows) == (3, 0)
    assert (three.shard, three.rows_in, three.rows_out, three.state_rows, three.event_times_us) == (3, 1, 0, 0, (None,))


def test_each_shard_acks_the_time_and_host_of_its_task(setup: TaskSetup, writer: StreamWriter) -> None:
    rows = [batch(*((2, key, 10) for key in range(2_000))), batch((3, 8, 99))]
    two, three = acks_of(replies_of(setup, order_of(writer), 1, 77, iter(rows)))
    assert two.milliseconds > 0
    assert (two.milliseconds, two.host) == (three.milliseconds, three.host)
    assert two.host == socket.gethostname()


def test_the_new_run_is_the_change_log(setup: TaskSetup, writer: StreamWriter) -> None:
    two, three = acks_of(replies_of(setup, order_of(writer), 1, 77, iter([batch((2, 7, 10), (3, 8, 99))])))
    [change] = two.changes
    assert (change.kind, change.path) == (ChangeKind.RUN, two.tables[0].runs[0].path)
    assert three.changes == ()


def test_a_process_reads_the_manifest_of_an_epoch_once(
    setup: TaskSetup, writer: StreamWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    own = ManifestChain.read

    def counted(chain: ManifestChain, version: Version) -> Manifest:
        read.append(version)
        return own(chain, version)

    monkeypatch.setattr(ManifestChain, "read", counted)
    order = order_of(writer)
    for partition in (0, 1):
        acks_of(replies_of(setup, order, partition, 77, iter([batch((2 * partition, 7, 10))])))
    assert read == [order.version]
    [decline, *_] = replies_of(setup, replace(order, nonce=Nonce("another")), 1, 78, iter([batch((2, 7, 10))]))
    assert isinstance(decline, ShardDecline)
    assert read == [order.version, order.version], "what is known is of another nonce"


def test_a_batch_larger_than_a_chunk_is_processed_in_pieces(setup: TaskSetup, writer: StreamWriter) -> None:
    small = replace(setup, engine=EngineOptions(memory_limit_bytes=4096))
    rows = [(shard, key, key) for shard in (2, 3) for key in range(500)]
    two, three = acks_of(replies_of(small, order_of(writer), 1, 77, iter([batch(*rows)])))
    assert (two.rows_in, three.rows_in, two.state_rows, two.event_times_us) == (500, 500, 1000, (499,))


def test_a_task_without_a_row_acks_all_its_shards(setup: TaskSetup, writer: StreamWriter) -> None:
    replies = replies_of(setup, order_of(writer), 0, 1, iter([]))
    assert [(reply.shard, type(reply)) for reply in replies] == [(0, ShardAck), (1, ShardAck)]
    assert [(reply.changes, reply.rows_in) for reply in replies if isinstance(reply, ShardAck)] == [((), 0)] * 2


def test_a_process_with_another_release_than_the_drivers_declines(setup: TaskSetup, writer: StreamWriter) -> None:
    other = replace(setup, package="dagster_ckpt-0123456789abcdef.zip")
    [decline, _] = replies_of(other, order_of(writer), 0, 1, iter([batch((0, 1, 1))]))
    assert isinstance(decline, ShardDecline)
    assert decline.error == "CheckpointDeclinedError", "another host may have the driver's"
    assert "has loaded another dagster-ckpt than the driver's" in decline.reason
    assert decline.reason.endswith(f"host={socket.gethostname()}")


def test_a_host_that_lacks_a_library_does_not_end_the_stream_for_good(
    setup: TaskSetup, writer: StreamWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "dagster_ckpt.storage.stores.over_fsspec.s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    on_s3 = replace(setup, address=StoreAddress("s3://bucket/folder"))
    replies = replies_of(on_s3, order_of(writer), 0, 1, iter([batch((0, 1, 1))]))
    assert final_error(replies) is None, "no sensor starts a run again whose pipeline is invalid"
    assert all(isinstance(each, ShardDecline) and f"host={socket.gethostname()}" in each.reason for each in replies)


def test_a_host_that_does_not_see_the_manifest_declines(setup: TaskSetup, writer: StreamWriter, tmp_path: Path) -> None:
    elsewhere = replace(setup, address=StoreAddress((tmp_path / "another host").as_uri()))
    replies = replies_of(elsewhere, order_of(writer), 0, 1, iter([batch((0, 1, 1))]))
    assert [reply.shard for reply in replies] == [0, 1]
    for reply in replies:
        assert isinstance(reply, ShardDecline)
        assert reply.error == "CheckpointDeclinedError"
        assert "does not see the store's folder as the driver does: mount the same file system" in reply.reason
        assert f"host={socket.gethostname()}, store={elsewhere.address.url}/delays, found: " in reply.reason


def test_a_host_that_sees_another_manifest_declines(setup: TaskSetup, writer: StreamWriter) -> None:
    replies = replies_of(setup, replace(order_of(writer), nonce=Nonce("another")), 0, 1, iter([]))
    assert all(isinstance(reply, ShardDecline) and "expected=another" in reply.reason for reply in replies)


def test_any_error_is_a_decline_with_the_reason(setup: TaskSetup, writer: StreamWriter) -> None:
    replies = replies_of(setup, order_of(writer), 0, 1, iter([pa.record_batch({"wrong": [1]})]))
    assert [reply.error for reply in replies if isinstance(reply, ShardDecline)] == ["KeyError", "KeyError"]


def test_secrets_are_never_shown(setup: TaskSetup) -> None:
    secret = replace(setup, address=StoreAddress("file:///data", {"key": "hunter2"}))
    assert "hunter2" not in repr(secret)
    assert "hunter2" not in str(secret)


@pytest.fixture
def shared(setup: TaskSetup) -> TaskSetup:
    return replace(setup, address=StoreAddress(setup.address.url, {"shared": True}))


def unmount(folder: Path) -> None:
    """Leave the bare mount point. The other hosts, the driver among them, have the folder as before."""
    folder.rename(folder.with_name(f"{folder.name} as the others see it"))
    folder.mkdir()


def is_declined(replies: list[Reply]) -> bool:
    declines = [each for each in replies if isinstance(each, ShardDecline) and each.error == "CheckpointDeclinedError"]
    return len(declines) == len(replies) and all("mount the same file system" in each.reason for each in declines)


def test_a_file_below_a_mount_point_that_is_bare_again_is_declined(
    shared: TaskSetup, writer: StreamWriter, tmp_path: Path
) -> None:
    order = order_of(writer)
    replies_of(shared, order, 0, 1, iter([batch((0, 1, 1))]))
    unmount(tmp_path)
    assert is_declined(replies_of(shared, order, 1, 2, iter([batch((2, 7, 10))]))), "its file is on this host alone"


def test_so_it_is_where_the_mount_goes_while_the_task_works(
    shared: TaskSetup,
    writer: StreamWriter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = ManifestChain.read

    def goes_after_the_manifest_was_read(chain: ManifestChain, version: Version) -> Manifest:
        manifest = own(chain, version)
        unmount(tmp_path)
        return manifest

    monkeypatch.setattr(ManifestChain, "read", goes_after_the_manifest_was_read)
    replies = replies_of(shared, order_of(writer), 1, 2, iter([batch((2, 7, 10))]))
    assert is_declined(replies), "its file is on this host alone"


def test_state_that_is_not_there_because_the_mount_is_gone_is_no_damage(
    shared: TaskSetup,
    writer: StreamWriter,
    tmp_path: Path,
) -> None:
    """Its advice would be to restore a backup, or to go back to an older epoch."""
    replies = replies_of(shared, order_of(writer), 1, 1, iter([batch((2, 7, 10))]))
    [ack] = [reply for reply in replies if isinstance(reply, ShardAck) and reply.shard == 2]
    runs = {
        each.table: tuple(each.runs if shard == ack.shard else () for shard in range(SHARDS)) for each in ack.tables
    }
    state = replace(writer.manifest, runs=runs)
    assert state.runs["groups"][2], "there is state now"
    order = order_of(writer)
    _known[_place(shared)] = _Known(state, {})
    unmount(tmp_path)
    assert is_declined(replies_of(shared, order, 1, 2, iter([batch((2, 7, 10))])))
