"""The epochs of a stream as one that follows it sees them."""

import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, StreamUuid, Version
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition
from dagster_ckpt.protocol.manifest.codec import encode_manifest
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind, RunRef
from dagster_ckpt.protocol.object_names import manifest_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.manifests import a_change, a_run
from tests.worlds.streams import a_store, an_edit, an_opening

FOLDERS = ("manifest", "lease")


class Upstream:
    """A stream whose epochs another follows. Version 1 opens it: its first epoch is 2."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.store: MemoryObjectStore = a_store()
        self.writer: StreamWriter
        self.open()

    def open(self, from_epoch: int | None = None) -> None:
        run = f"run-{self.clock.unique()}"
        epoch = None if from_epoch is None else Epoch(from_epoch)
        opening = an_opening(run, retained=20, take_over=Takeover.ALWAYS, from_epoch=epoch)
        self.writer = open_stream(self.store, opening, self.clock)

    def commit(self, epochs: int) -> None:
        for _ in range(epochs):
            self.writer.commit(an_edit(self.writer.manifest))

    @property
    def chain(self) -> ManifestChain:
        return ManifestChain(self.store, self.clock)

    def at(self, epoch: int) -> UpstreamPosition:
        """A position as earlier releases wrote it."""
        return UpstreamPosition(self.writer.manifest.uuid, Epoch(epoch))

    def backup(self) -> dict[str, bytes]:
        return {name: self.store.get(name) for folder in FOLDERS for name in self.store.list(folder)}

    def restore(self, backup: dict[str, bytes]) -> None:
        """Put a backup back while no writer is alive."""
        self.writer.close("done")
        for name in {*self.backup(), *backup}:
            self.store.delete(name)
            if name in backup:
                self.store.put_if_absent(name, backup[name])
        self.open()

    def following(self, epoch: int, epochs_max: int = 100, until: int | None = None) -> list[int]:
        found = self.log.following(self.at(epoch), epochs_max, None if until is None else Epoch(until))
        return [manifest.epoch for manifest in found]

    @property
    def log(self) -> UpstreamLog:
        return UpstreamLog(self.chain, "flights/delay_by_carrier")


@pytest.fixture
def up() -> Iterator[Upstream]:
    upstream = Upstream()
    yield upstream
    upstream.writer.close("done")


def test_epochs_follow_in_order_whatever_is_between(up: Upstream) -> None:
    up.commit(2)
    up.open()
    up.commit(2)
    assert up.following(0) == [2, 3, 5, 6]
    assert up.following(3) == [5, 6]
    assert up.following(6) == []


def test_at_most_so_many_follow_and_none_above_the_end(up: Upstream) -> None:
    up.commit(5)
    assert up.following(2, epochs_max=2) == [3, 4]
    assert up.following(2, until=5) == [3, 4, 5]


def test_what_a_rollback_left_behind_does_not_follow(up: Upstream) -> None:
    up.commit(4)
    up.open(from_epoch=3)
    assert up.following(3) == []
    up.commit(1)
    assert up.following(2) == [3, 7]
    assert up.following(3) == [7]


def test_a_position_in_an_abandoned_epoch_is_reported(up: Upstream) -> None:
    up.commit(4)
    up.open(from_epoch=3)
    up.commit(1)
    for ask in (up.log.check, lambda at: up.log.following(at, 9)):
        with pytest.raises(NothingFollowsError) as caught:
            ask(up.at(4))
        assert caught.value.trouble is Trouble.ROLLED_BACK
    assert up.log.check(up.at(3)).epoch == 7


def test_a_position_below_the_first_manifest_is_reported(up: Upstream) -> None:
    up.commit(4)
    for version in (1, 2):
        up.store.delete(manifest_name(Version(version)))
    assert up.log.check(up.at(3)).epoch == 5
    for ask in (up.log.check, lambda at: up.log.following(at, 9)):
        with pytest.raises(NothingFollowsError) as caught:
            ask(up.at(2))
        assert caught.value.trouble is Trouble.CUT_OFF


def test_a_sleepers_manifest_on_a_freed_number_is_not_taken_for_what_follows(up: Upstream) -> None:
    up.commit(4)
    data = up.store.get(manifest_name(Version(3)))
    for version in (1, 2, 3):
        up.store.delete(manifest_name(Version(version)))
    up.store.put_if_absent(manifest_name(Version(3)), data)
    for ask in (up.log.check, lambda at: up.log.following(at, 1)):
        with pytest.raises(NothingFollowsError) as caught:
            ask(up.at(2))
        assert caught.value.trouble is Trouble.CUT_OFF


def test_behind_the_empty_stream_the_first_epoch_follows_however_often_it_was_opened_before(up: Upstream) -> None:
    for _ in range(20):
        up.open()
    for version in range(1, 6):  # retired, before anybody read it
        up.store.delete(manifest_name(Version(version)))
    up.commit(2)
    assert up.following(0) == [22, 23]


def test_behind_the_empty_stream_nothing_follows_once_the_first_epoch_is_gone(up: Upstream) -> None:
    up.commit(4)
    first = up.store.get(manifest_name(Version(2)))
    for version in (1, 2, 3):
        up.store.delete(manifest_name(Version(version)))
    with pytest.raises(NothingFollowsError) as caught:
        up.following(0)
    assert caught.value.trouble is Trouble.CUT_OFF
    up.store.put_if_absent(manifest_name(Version(2)), first)  # as a sleeper's may lie there
    with pytest.raises(NothingFollowsError) as caught:
        up.following(0, epochs_max=1)
    assert caught.value.trouble is Trouble.CUT_OFF


def test_another_stream_of_that_name_is_reported(up: Upstream) -> None:
    up.commit(1)
    with pytest.raises(NothingFollowsError) as caught:
        up.log.check(replace(up.at(2), uuid=StreamUuid("another")))
    assert caught.value.trouble is Trouble.RECREATED


def test_a_stream_that_never_was_is_named() -> None:
    log = UpstreamLog(ManifestChain(a_store(), StillClock()), "flights/delay_by_carrier")
    with pytest.raises(InvalidPipelineError, match=r"materialize it first.* stream=flights/delay_by_carrier"):
        log.newest()


def test_what_was_read_once_is_not_read_again(up: Upstream) -> None:
    up.commit(3)
    log = up.log
    assert len(log.following(up.at(0), 9)) == 3
    up.store.delete(manifest_name(Version(2)))
    assert [manifest.epoch for manifest in log.following(up.at(1), 9)] == [2, 3, 4]


def test_a_reader_keeps_little_of_many_large_manifests(up: Upstream) -> None:
    shards, epochs = range(512), 60
    newest = replace(up.writer.manifest, kind=ManifestKind.EPOCH, shards=len(shards))
    runs: dict[str, tuple[tuple[RunRef, ...], ...]] = {
        "total": tuple((a_run(1, 2, shard, len(shards)),) * 8 for shard in shards)
    }
    for number, version in enumerate(map(Version, range(2, 2 + epochs))):
        changes = tuple(a_change(1, version, shard) for shard in shards)
        statistics = replace(newest.statistics, total_epochs=number + 1)
        newest = replace(newest, version=version, epoch=Epoch(version), changes=changes, statistics=statistics)
        with_state = newest if number % 10 else replace(newest, runs=runs)
        up.store.put_if_absent(manifest_name(version), encode_manifest(with_state))
    log = up.log
    tracemalloc.start()
    try:
        assert len(log.following(up.at(0), epochs)) == epochs
        gc.collect()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 7_000_000
    for version in map(Version, range(epochs - 5, epochs)):
        up.store.delete(manifest_name(version))
    assert len(log.following(up.at(epochs - 6), 9)) == 7, "the newest are those that are kept"


def test_a_stream_created_again_during_a_read_returns_nothing(up: Upstream) -> None:
    up.commit(3)
    at = up.at(2)
    newest = up.writer.manifest
    up.store = a_store()
    up.open()
    up.commit(3)
    assert (up.writer.manifest.version, up.writer.manifest.uuid == newest.uuid) == (newest.version, False)

    class LooksEarlier(UpstreamLog):
        def newest(self) -> Manifest:
            return newest

    log = LooksEarlier(up.chain, "flights/delay_by_carrier")
    with pytest.raises(NothingFollowsError) as refused:
        log.following(at, 100)
    assert refused.value.trouble is Trouble.RECREATED


def test_a_position_in_an_epoch_that_a_restored_stream_does_not_have_is_reported(up: Upstream) -> None:
    """Whatever the stream has at the number now: no epoch yet, an opening, another epoch, perhaps an old one."""
    up.commit(2)
    backup = up.backup()
    up.commit(2)
    ahead = [UpstreamPosition.after(up.chain.read(Version(version))) for version in (4, 5)]
    kept = UpstreamPosition.after(up.chain.read(Version(3)))
    up.restore(backup)  # version 4 opens it
    for _ in range(4):
        for at in ahead:
            for ask in (up.log.check, lambda at: up.log.following(at, 1)):
                with pytest.raises(NothingFollowsError) as caught:
                    ask(at)
                newest = UpstreamPosition.after(up.writer.manifest)
                there = UpstreamPosition.after(up.chain.read(Version(5))) if at.epoch == 5 <= newest.epoch else newest
                assert (caught.value.trouble, caught.value.instead) == (Trouble.DIVERGED, there)
                assert at.encode() in str(caught.value)
                assert there.encode() in str(caught.value)
        assert up.log.check(kept).epoch == up.writer.manifest.epoch
        up.commit(1)


def test_a_reader_that_lives_through_a_restore_never_mixes_two_histories(up: Upstream) -> None:
    up.commit(2)
    backup = up.backup()
    up.commit(3)
    log, at = up.log, UpstreamPosition.after(up.chain.read(Version(2)))
    assert [each.epoch for each in log.following(at, 3)] == [3, 4, 5]
    up.restore(backup)
    up.commit(4)
    with pytest.raises(NothingFollowsError) as caught:
        log.following(at, 9)
    assert caught.value.trouble is Trouble.DIVERGED
    assert [each.epoch for each in up.log.following(at, 9)] == [3, 5, 6, 7, 8]


def test_an_epoch_keeps_its_nonce_through_openings_rollbacks_and_pins(up: Upstream) -> None:
    up.commit(3)
    third = up.chain.read(Version(3))
    at = UpstreamPosition.after(third)
    assert at.nonce == third.nonce
    for from_epoch in (3, None, None):
        up.open(from_epoch)
        assert UpstreamPosition.after(up.writer.manifest) == at
        assert up.log.check(at).epoch == 3
    up.commit(1)
    assert [each.epoch for each in up.log.following(at, 9)] == [8]


def test_a_position_without_a_nonce_is_followed_by_its_number(up: Upstream) -> None:
    up.commit(4)
    assert up.following(3) == [4, 5]
    assert up.log.following(up.at(3), 9)[-1].epoch_nonce == up.writer.manifest.nonce
