import socket
from dataclasses import replace
from pathlib import Path

import pytest

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, RunRef
from dagster_ckpt.protocol.object_names import FileId, changes_name, merged_name, state_name
from dagster_ckpt.runtime.micro_batch.executor_files import ExecutorFiles
from dagster_ckpt.runtime.task.ack_rows import Reply, ShardDecline
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.object_store import ObjectStore

EPOCH = Epoch(7)
SHARD = Shard(0)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(tmp_path.as_uri())


def file(epoch: Epoch = EPOCH, attempt: int = 1) -> FileId:
    return FileId(Term(3), epoch, SHARD, attempt)


def run(epoch: Epoch = EPOCH, attempt: int = 1) -> RunRef:
    return RunRef(state_name("groups", [SHARD], 1, file(epoch, attempt)), 1, 1, "", epoch)


def change(attempt: int = 1) -> ChangeRef:
    return ChangeRef(changes_name(file(attempt=attempt)), 1, 1, "", EPOCH, SHARD)


def ack(host: str, *runs: RunRef) -> ShardAck:
    return ShardAck(SHARD, (ShardRuns("groups", runs),), host=host)


def test_an_ack_whose_files_the_driver_does_not_see_becomes_a_decline(store: ObjectStore) -> None:
    [decline] = ExecutorFiles(store).decline_unseen([ack("one", run())], EPOCH)
    assert isinstance(decline, ShardDecline)
    assert (decline.shard, decline.host, decline.error) == (SHARD, "one", "CheckpointDeclinedError")
    assert "not a copy or an overlay of it" in decline.reason
    assert decline.reason.endswith(f"host=one, store={store.url}, missing={run().path}")


@pytest.mark.parametrize(
    "written",
    [
        ack("one", run()),
        replace(ack("one"), changes=(change(),)),
        replace(ack("one"), files_merged=FilesMerged((), ChangeRef(merged_name(1, file()), 1, 1, "", EPOCH, SHARD))),
    ],
)
def test_files_of_every_kind_are_looked_for(store: ObjectStore, written: ShardAck) -> None:
    [decline] = ExecutorFiles(store).decline_unseen([written], EPOCH)
    assert isinstance(decline, ShardDecline)


def test_a_host_is_checked_until_a_file_of_it_was_seen(store: ObjectStore) -> None:
    files = ExecutorFiles(store)
    old = ack("one", run(Epoch(6)))  # of another epoch, and perhaps of another host
    assert files.decline_unseen([old], EPOCH) == (old,)
    assert isinstance(files.decline_unseen([ack("one", run())], EPOCH)[0], ShardDecline)
    store.put(run().path, b"x")
    seen = ack("one", run())
    assert files.decline_unseen([seen], EPOCH) == (seen,)
    later = ack("one", run(attempt=2))
    assert files.decline_unseen([later], EPOCH) == (later,)
    assert isinstance(files.decline_unseen([ack("two", run(attempt=2))], EPOCH)[0], ShardDecline)


def test_a_host_with_one_missing_file_among_others_is_not_trusted(store: ObjectStore) -> None:
    files = ExecutorFiles(store)
    store.put(run().path, b"x")
    good, bad = ack("one", run()), ack("one", run(attempt=2))
    assert isinstance(files.decline_unseen([good, bad], EPOCH)[1], ShardDecline)
    assert isinstance(files.decline_unseen([bad], EPOCH)[0], ShardDecline)


def test_the_drivers_own_host_and_declines_pass(store: ObjectStore) -> None:
    replies: list[Reply] = [ack(socket.gethostname(), run()), ShardDecline(SHARD, "one", "OSError", "no")]
    assert ExecutorFiles(store).decline_unseen(replies, EPOCH) == (*replies,)


def test_a_store_that_does_not_answer_declines_as_such(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> bool:
        raise StoreUnavailableError("try later")

    monkeypatch.setattr(store, "exists", refuse)
    [decline] = ExecutorFiles(store).decline_unseen([ack("one", run())], EPOCH)
    assert isinstance(decline, ShardDecline)
    assert (decline.error, decline.reason) == ("StoreUnavailableError", "try later")
