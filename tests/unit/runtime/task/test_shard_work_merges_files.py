"""An append-only stream's tasks, called as Spark calls them: they merge the table's small files, and no row is lost."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, InputSpec, Manifest, Owner
from dagster_ckpt.protocol.object_names import merge_count
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.task.ack_rows import ShardDecline, decode_replies, encode_replies, merge_acks
from dagster_ckpt.runtime.task.epoch_task import EpochOrder, TaskSetup, replies_of
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.task.worker_engine import EngineOptions
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream

SHARDS = 2
SCHEMA = pa.schema([("n", pa.int64())])
FILES_MIN = 32

Reply = ShardAck | ShardDecline


@dataclass
class AppendStream:
    """A stream whose rows are counted: each epoch brings the next numbers."""

    root: Path
    retained: int = 3
    memory_limit_bytes: int = 256 * 1024**2
    writer: StreamWriter = field(init=False)
    numbers: int = 0
    attempts: int = 0
    rows_after: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        engine = EngineOptions(memory_limit_bytes=self.memory_limit_bytes)
        self.setup = TaskSetup(
            StoreAddress(self.root.as_uri()), "events", ShardAssignment.unkeyed(SHARDS), (None,), engine
        )
        self.store = folder_store(self.setup.address.open(), "events")
        self.open()

    def open(self, from_epoch: int | None = None) -> None:
        opening = Opening(
            stream="events",
            owner=Owner("tests", "events"),
            pipeline=AppendOnly.build(InputSpec((), SCHEMA)).pipeline,
            shards=SHARDS,
            holder=LeaseHolder("run", "tests", this_process()),
            root_run=f"run-{from_epoch}",
            retained=self.retained,
            take_over=Takeover.ALWAYS,
            from_epoch=None if from_epoch is None else Epoch(from_epoch),
        )
        self.writer = open_stream(self.store, opening, SystemClock())

    def reopen(self, from_epoch: int | None = None) -> None:
        """As after a crash."""
        self.writer.close("the test goes on")
        self.open(from_epoch)

    @property
    def history(self) -> StreamHistory:
        return CheckpointStore(self.root.as_uri()).stream("events")

    @property
    def manifest(self) -> Manifest:
        return self.writer.manifest

    @property
    def files(self) -> list[str]:
        """The names of all files in the store, referenced by a manifest or not."""
        return [name for folder in ("changes", "table") for name in self.store.list(folder)]

    def replies(self, partition: int, rows: int, then: type[Exception] | None = None) -> list[Reply]:
        """One attempt at a task with that many of the next numbers; its input may fail after them."""
        manifest = self.manifest
        order = EpochOrder(self.writer.next_epoch, manifest.term, manifest.version, manifest.nonce)
        self.attempts += 1

        def batches() -> Iterator[pa.RecordBatch]:
            if rows:
                yield pa.record_batch({"n": np.arange(self.numbers, self.numbers + rows)})
            if then is not None:
                raise then("the input breaks off")

        replies = replies_of(self.setup, order, partition, self.attempts, batches())
        return decode_replies(encode_replies(replies))

    def commit(self, replies: list[Reply], rows: int) -> Manifest:
        acks = [reply for reply in replies if isinstance(reply, ShardAck)]
        assert len(acks) == len(replies), replies
        by_shard = {Shard(shard): ShardAck(Shard(shard)) for shard in range(SHARDS)} | merge_acks(acks)
        batch = 0 if self.manifest.batch_id is None else self.manifest.batch_id + 1
        manifest = self.writer.commit(EpochEdit(tuple(by_shard.values()), (), batch, epoch_ms=1))
        self.numbers += rows
        self.rows_after[manifest.epoch] = self.numbers
        return manifest

    def epoch(self, rows: int = 3, partition: int = 0) -> Manifest:
        return self.commit(self.replies(partition, rows), rows)

    def epochs(self, count: int) -> Manifest:
        for _ in range(count):
            self.epoch()
        return self.manifest

    def collect(self) -> None:
        # It waits a second longer than asked.
        chain = ManifestChain(self.store, SystemClock())
        Collector(chain, self.setup.address.open(), grace_ms=-1_000).collect(self.writer.term)

    def check(self, epoch: int | None = None) -> None:
        """The epoch shows every row that came up to it, each once and in its place."""
        numbers = self.history.read(epoch=epoch)["n"].to_pylist()
        assert numbers == [*range(self.rows_after[epoch or self.manifest.epoch])]


@pytest.fixture
def stream(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AppendStream]:
    stream = AppendStream(tmp_path, **getattr(request, "param", {}))
    yield stream
    stream.writer.close("the test is over")


def paths(manifest: Manifest) -> list[str]:
    return [file.path for file in manifest.files.tail]


def test_small_files_become_few_and_every_retained_epoch_can_be_read_at_any_time(stream: AppendStream) -> None:
    longest = 0
    for _ in range(110):
        manifest = stream.epoch()
        longest = max(longest, len(paths(manifest)))
        if manifest.statistics.merged_rows or manifest.epoch % 20 == 0:
            for retained in manifest.retained:
                stream.check(retained.epoch)
    assert longest < 2 * FILES_MIN
    assert {merge_count(path) for path in paths(stream.manifest)} == {0, 1}


def test_the_epoch_says_how_many_rows_were_merged(stream: AppendStream) -> None:
    merged_rows = [stream.epoch().statistics.merged_rows for _ in range(FILES_MIN + 2)]
    assert merged_rows == [*[0] * FILES_MIN, 3 * FILES_MIN, 0]
    assert stream.history.latest().merged_rows == 0
    assert stream.history.info(epoch=stream.manifest.epoch - 1).merged_rows == 3 * FILES_MIN


def test_the_files_in_the_store_are_few_once_garbage_is_collected(stream: AppendStream) -> None:
    most = 0
    for _ in range(100):
        stream.epoch()
        if stream.manifest.epoch % 10 == 0:
            stream.collect()
            most = max(most, len(stream.files))
    assert most < 2.5 * FILES_MIN, "what the newest 16 manifests name, and no more"
    stream.check()


def test_only_one_task_of_an_epoch_merges(stream: AppendStream) -> None:
    stream.epochs(FILES_MIN)
    first, other, third = (stream.replies(partition, 2) for partition in (0, 1, 2))
    assert [reply.files_merged is not None for [reply] in (first, other, third) if isinstance(reply, ShardAck)] == [
        True,
        False,
        False,
    ]
    assert third[0].shard == first[0].shard, "they are of one shard"


def test_an_epoch_without_that_task_merges_nothing_and_the_next_one_does(stream: AppendStream) -> None:
    stream.epochs(FILES_MIN)
    assert stream.epoch(partition=1).statistics.merged_rows == 0
    assert stream.commit([], 0).statistics.merged_rows == 0
    assert stream.epoch().statistics.merged_rows > 0
    stream.check()


def test_an_ack_that_was_lost_leaves_an_orphan_and_nothing_else(stream: AppendStream) -> None:
    stream.epochs(FILES_MIN)
    [lost] = stream.replies(0, 3)
    assert isinstance(lost, ShardAck)
    assert lost.files_merged is not None
    orphan = lost.files_merged.file.path
    manifest = stream.epoch()
    assert orphan in stream.files
    assert orphan not in paths(manifest)
    assert manifest.statistics.merged_rows == 3 * FILES_MIN
    stream.check()
    stream.epochs(20)
    stream.collect()
    assert orphan not in stream.files
    stream.check()


def test_an_attempt_that_fails_after_the_merged_file_was_written_declines_and_the_next_one_does_it(
    stream: AppendStream,
) -> None:
    stream.epochs(FILES_MIN)
    before = set(stream.files)
    [reply] = stream.replies(0, 3, then=OSError)
    assert isinstance(reply, ShardDecline)
    assert "breaks off" in reply.reason
    assert stream.epoch().statistics.merged_rows == 3 * FILES_MIN
    assert before <= set(stream.files)
    stream.check()
    for epoch in [retained.epoch for retained in stream.manifest.retained]:
        stream.check(epoch)


def test_a_writer_that_opens_after_a_crash_merges_what_the_dead_one_had_merged(stream: AppendStream) -> None:
    stream.epochs(FILES_MIN)
    stream.replies(0, 3)  # and then the driver dies
    stream.reopen()
    assert stream.epoch().statistics.merged_rows == 3 * FILES_MIN
    stream.check()


@pytest.mark.parametrize("at", [0, FILES_MIN - 1])
def test_damage_declines_the_epoch_and_names_the_file(stream: AppendStream, at: int) -> None:
    stream.epochs(FILES_MIN)
    path = stream.root / "events" / paths(stream.manifest)[at]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    [reply] = stream.replies(0, 3)
    assert isinstance(reply, ShardDecline)
    assert reply.error == "CorruptStateError"
    assert f"file={paths(stream.manifest)[at]}" in reply.reason
    assert not list(stream.store.list("table"))
    data[len(data) // 2] ^= 1
    path.write_bytes(data)  # restored from a backup
    assert stream.epoch().statistics.merged_rows == 3 * FILES_MIN
    stream.check()


def test_damage_to_a_merged_file_is_found_and_the_epochs_before_the_merge_do_without_it(stream: AppendStream) -> None:
    before = stream.epochs(FILES_MIN)
    stream.epoch()
    assert stream.history.verify().whole
    [combined, _] = paths(stream.manifest)
    path = stream.root / "events" / combined
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStateError, match=f"file={combined}.*good_epoch={before.epoch}"):
        stream.history.read()
    [finding] = stream.history.verify().findings
    assert (finding.object, finding.epochs) == (combined, (stream.manifest.epoch,))
    stream.check(before.epoch)


@pytest.mark.parametrize("stream", [{"retained": 20}], indirect=True)
def test_a_rollback_shows_the_older_list_again_and_merging_goes_on(stream: AppendStream) -> None:
    before = stream.epochs(FILES_MIN)
    stream.epochs(10)
    assert merge_count(paths(stream.manifest)[0]) == 1
    stream.reopen(from_epoch=before.epoch)
    assert paths(stream.manifest) == paths(before)
    stream.numbers = stream.rows_after[before.epoch]
    stream.check(before.epoch)
    assert stream.epoch().statistics.merged_rows == 3 * FILES_MIN
    stream.check()


def test_a_pin_keeps_the_small_files_that_its_epoch_names(stream: AppendStream) -> None:
    pinned = stream.epochs(FILES_MIN)
    stream.history.pin(pinned.epoch, "before the merge")
    stream.epochs(20)
    stream.collect()
    assert set(paths(pinned)) <= set(stream.files)
    stream.check(pinned.epoch)
    stream.history.unpin("before the merge")
    stream.collect()
    assert not set(paths(pinned)) & set(stream.files)
    stream.check()


@pytest.mark.parametrize("stream", [{"memory_limit_bytes": 1024**2}], indirect=True)
def test_a_merged_file_takes_no_more_than_its_part_of_the_workers_memory(stream: AppendStream) -> None:
    merges = [stream.epoch(rows=10_000).statistics.merged_rows for _ in range(8)]
    assert sum(merges) > 0
    sizes = [file.bytes for file in stream.manifest.files.tail]
    assert max(sizes) <= 1024**2 / 4
    stream.check()


def test_the_names_of_merged_files_are_never_used_twice(stream: AppendStream) -> None:
    stream.epochs(FILES_MIN)
    names = set()
    for _ in range(3):
        [reply] = stream.replies(0, 0)
        assert isinstance(reply, ShardAck)
        assert reply.files_merged is not None
        names.add(reply.files_merged.file.path)
    assert len(names) == 3


def test_a_merge_that_takes_too_long_is_left_for_later_and_the_epoch_goes_on(
    stream: AppendStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(store: ObjectStore, refs: Sequence[ChangeRef]) -> list[pa.Buffer]:
        time.sleep(0.6)
        return read(store, refs)

    stream.epochs(FILES_MIN)
    read, setup = change_log.read_files, stream.setup
    with monkeypatch.context() as slow:
        slow.setattr(change_log, "read_files", slowly)
        slow.setattr(stream, "setup", replace(setup, engine=EngineOptions(timeout_ms=2_000)))
        assert stream.epoch().statistics.merged_rows == 0
    assert stream.epoch().statistics.merged_rows == 3 * (FILES_MIN + 1)
    stream.check()
