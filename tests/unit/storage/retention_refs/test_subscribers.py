"""What a stream keeps for the streams that read it: its change log, from what they have consumed for good."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.history import StreamHistory
from dagster_ckpt.ids import Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck
from dagster_ckpt.protocol.epochs.pin import Pin, encode_pin
from dagster_ckpt.protocol.epochs.retention import MANIFESTS_KEPT, files_named, log_named
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.protocol.epochs.upstream import BACKFILL_PINS, FORMAT, UpstreamPosition, backfill_pin
from dagster_ckpt.protocol.manifest.manifest import Manifest, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.object_names import folder_of, manifest_name, parse_manifest_name, pin_name, subscriber_name
from dagster_ckpt.storage.chain import indexed_lists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.operations.fork import fork_stream
from dagster_ckpt.storage.retention_refs.pins import names_of_pins, write_pin
from dagster_ckpt.storage.retention_refs.subscribers import read_subscribers, subscribe, unsubscribe
from dagster_ckpt.storage.retention_refs.upstream_log import UpstreamLog
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore, Scripted
from tests.worlds.manifests import PIPELINE
from tests.worlds.streams import an_edit, an_opening

GRACE_MS = 60_000
RETAINED = 3
PATIENCE = Patience(total_ms=10, pause_ms=50, pause_ms_max=50)
UP, DOWN = "delays", "late/carriers"


@dataclass
class TwoStreams:
    """A stream, and one that reads it: both in one store, each commit takes a second."""

    clock: StillClock = field(default_factory=StillClock)
    writers: dict[str, StreamWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = MemoryObjectStore(uuid4().hex, self.clock)
        self.open(UP)
        self.open(DOWN)

    def store(self, name: str) -> ObjectStore:
        return folder_store(self.root, folder_of(name.split("/")))

    def chain(self, name: str) -> ManifestChain:
        return ManifestChain(self.store(name), self.clock, PATIENCE)

    def open(self, name: str, from_epoch: int | None = None, **fields: Any) -> Manifest:
        opening = an_opening(
            self.clock.unique(),
            stream=name,
            retained=RETAINED,
            take_over=Takeover.ALWAYS,
            from_epoch=None if from_epoch is None else Epoch(from_epoch),
            **fields,
        )
        self.writers[name] = open_stream(self.store(name), opening, self.clock)
        self.writers[name].heartbeat.stop()
        return self.writers[name].manifest

    def commit(self, name: str, epochs: int = 1, **fields: Any) -> Epoch:
        for _ in range(epochs):
            writer = self.writers[name]
            edit = an_edit(writer.manifest, **fields)
            for ack in edit.acks:
                for path in [
                    *(run.path for table in ack.tables for run in table.runs),
                    *(change.path for change in ack.changes),
                ]:
                    writer.store.put_if_absent(path, b"a file")
            writer.commit(edit)
            self.clock.sleep_ms(1_000)
        return self.writers[name].manifest.epoch

    def consume(self, epoch: int) -> None:
        """Let the reader commit one epoch, up to that one of the other stream."""
        identity = SourceIdentity(FORMAT, UP)
        parent = {position.source: position for position in self.writers[DOWN].manifest.sources}
        previous = parent[identity].current if identity in parent else None
        current = UpstreamPosition(self.upstream, Epoch(epoch)).encode()
        self.commit(DOWN, sources=(SourcePosition(identity, current, previous),))

    def subscribe(self, epoch: int) -> Manifest:
        down = self.writers[DOWN].manifest
        return subscribe(self.chain(UP), Subscriber(DOWN, down.uuid, Epoch(epoch)))

    def collect(self, max_lag: int = 10_000, store: ObjectStore | None = None) -> Collected:
        self.clock.sleep_ms(GRACE_MS + 1_000)
        chain = ManifestChain(store or self.store(UP), self.clock, PATIENCE)
        return Collector(chain, self.root, GRACE_MS, max_lag).collect(self.writers[UP].term)

    @property
    def upstream(self) -> StreamUuid:
        return self.writers[UP].manifest.uuid

    @property
    def versions(self) -> list[Version]:
        names = self.store(UP).list("manifest")
        return sorted(version for name in names if (version := parse_manifest_name(name)) is not None)

    @property
    def newest(self) -> int:
        return self.writers[UP].manifest.version

    @property
    def files(self) -> set[str]:
        return {name for name in self.store(UP).list("") if name.startswith(("state/", "changes/"))}

    @property
    def history(self) -> StreamHistory:
        return StreamHistory(self.root, UP, self.clock)


@pytest.fixture
def world() -> TwoStreams:
    return TwoStreams()


def test_the_log_behind_what_a_subscriber_has_consumed_stays_and_the_state_there_goes(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    for epoch in (10, 20, 25, 30):
        world.commit(UP, epoch - world.writers[UP].manifest.epoch)
        world.consume(epoch)
    world.commit(UP, 40)
    world.collect()
    oldest = 20  # of the three epochs that the reader may go back to
    assert world.versions == list(range(oldest, world.newest + 1))
    logs = {name for version in world.versions for name in log_named(world.chain(UP).read(version))}
    states = {
        name
        for version in map(Version, range(world.newest + 1 - MANIFESTS_KEPT, world.newest + 1))
        for name in files_named(world.chain(UP).read(version))
    }
    assert world.files == logs | states


def test_one_that_has_committed_nothing_keeps_the_log_from_where_it_begins(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.commit(UP, 60)
    world.collect()
    assert world.versions[0] == world.writers[DOWN].manifest.version + 5
    world.open(DOWN, from_epoch=0)
    world.collect()
    assert world.versions[0] == 6


def test_what_was_retained_when_one_subscribed_is_kept_whatever_a_collector_did_then(world: TwoStreams) -> None:
    """A pass has listed all there was, and then somebody subscribes, before the pass looks for subscribers."""
    world.commit(UP, 60)
    wanted: list[int] = []

    def subscribing(call: Call) -> Fault:
        if call.verb == "put" and not wanted:
            wanted.append(world.subscribe(world.newest).epoch)
        return Fault.NONE

    world.collect(store=FaultyStore(world.store(UP), subscribing))
    world.commit(UP, 100)
    world.collect()
    assert world.versions[0] == wanted[0]


def test_to_subscribe_again_changes_nothing(world: TwoStreams) -> None:
    first = world.subscribe(world.commit(UP, 3))
    again = world.subscribe(world.commit(UP, 3))
    assert again.epoch == first.epoch + 3
    [subscriber] = read_subscribers(world.chain(UP))
    assert subscriber.epoch == first.epoch


def test_a_lost_answer_leaves_one_subscriber(world: TwoStreams) -> None:
    epoch = world.commit(UP, 3)
    store = FaultyStore(world.store(UP), Scripted(("put_if_absent", "subscribers", Fault.LOST_REPLY)))
    mine = Subscriber(DOWN, world.writers[DOWN].manifest.uuid, epoch)
    assert subscribe(ManifestChain(store, world.clock), mine).epoch == epoch
    assert read_subscribers(world.chain(UP)) == [mine]


def test_who_is_too_far_behind_is_cut_off_and_comes_back_with_a_snapshot(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.consume(6)
    world.commit(UP, 60)
    assert world.collect(max_lag=60).cut_off == ()
    [info] = world.history.subscribers()
    assert (info.stream, info.lag, info.kept_from, info.cut_off, info.gone) == (DOWN, 60, 6, False, False)
    assert world.collect(max_lag=59).cut_off == (DOWN,)
    assert world.versions == list(range(world.newest + 1 - MANIFESTS_KEPT, world.newest + 1))
    [info] = world.history.subscribers()
    assert info.cut_off
    world.open(DOWN, from_epoch=0)
    world.consume(world.subscribe(world.newest).epoch)
    behind = world.newest
    world.commit(UP, 40)
    assert world.collect(max_lag=59).cut_off == ()
    assert world.versions[0] == behind


def test_who_reads_on_is_not_cut_off_for_the_epochs_that_it_might_go_back_to(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    for epoch in (10, 70, 110):
        world.commit(UP, epoch - world.writers[UP].manifest.epoch)
        world.consume(epoch)
    world.commit(UP, 10)
    assert world.collect(max_lag=50).cut_off == ()
    assert world.versions[0] == 120 - 50
    world.commit(UP, 41)
    assert world.collect(max_lag=50).cut_off == (DOWN,)


def test_who_was_cut_off_is_followed_again_once_its_snapshot_is_pinned(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.consume(6)
    world.commit(UP, 60)
    world.open(DOWN, from_epoch=0)
    shown = world.writers[UP].manifest.retained[-1]
    down = world.writers[DOWN].manifest
    write_pin(world.chain(UP), backfill_pin(down.uuid, down.term), shown)
    world.commit(UP, 40)
    assert world.collect(max_lag=40).cut_off == ()
    assert world.versions[0] == shown.version
    assert world.history.subscribers()[0].kept_from == shown.epoch


def test_a_snapshot_of_an_earlier_term_counts_until_the_live_one_has_pinned(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.commit(UP, 60)
    down, shown = world.writers[DOWN].manifest, world.writers[UP].manifest.retained[-1]
    write_pin(world.chain(UP), backfill_pin(down.uuid, down.term), shown)
    world.open(DOWN)
    world.commit(UP, 40)
    assert world.collect(max_lag=40).cut_off == ()
    assert world.versions[0] == shown.version
    world.commit(UP, 1)
    assert world.collect(max_lag=40).cut_off == (DOWN,)


def test_pins_of_a_fenced_reader_do_not_count_for_the_live_one(world: TwoStreams) -> None:
    begins = world.commit(UP, 5)
    world.subscribe(begins)
    fenced = world.writers[DOWN].manifest
    world.open(DOWN)
    shown = world.commit(UP, 40)
    write_pin(world.chain(UP), backfill_pin(fenced.uuid, fenced.term), world.writers[UP].manifest.retained[-1])
    world.commit(UP, 20)
    assert shown is not None
    world.collect()
    assert world.history.subscribers()[0].kept_from == 6
    assert world.versions[0] == 6


def test_a_fork_keeps_the_log_it_continues_from_before_its_first_start(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP))
    world.consume(2)
    world.commit(UP, 5)
    fork = fork_stream(world.root, world.chain(DOWN), world.writers[DOWN].manifest, "dev/carriers")
    world.commit(UP, 60)
    for _ in range(RETAINED):
        world.consume(world.newest)
    world.collect()
    assert world.versions[0] == 2
    kept = {each.stream: each.kept_from for each in world.history.subscribers()}
    assert kept["dev/carriers"] == 2
    assert kept[DOWN] > 60
    UpstreamLog(world.chain(UP), UP).check(UpstreamPosition(world.upstream, fork.consumed[0].epoch))


def test_a_fork_of_what_only_a_pin_keeps_says_that_the_log_is_gone(
    world: TwoStreams, caplog: pytest.LogCaptureFixture
) -> None:
    world.subscribe(world.commit(UP))
    world.consume(2)
    pinned = world.writers[DOWN].manifest
    write_pin(world.chain(DOWN), "kept", pinned.retained[-1])
    world.commit(UP, 60)
    for _ in range(RETAINED):
        world.consume(world.newest)
    world.collect()
    fork_stream(world.root, world.chain(DOWN), pinned, "dev/carriers")
    assert "its first start reports whether anything is missing" in caplog.text
    assert "upstream=delays, consumed=2, reason=this position can no longer be followed" in caplog.text
    assert [each.stream for each in world.history.subscribers()] == [DOWN], "what is gone need not be kept"


def test_a_fork_of_what_has_read_nothing_keeps_nothing(world: TwoStreams, caplog: pytest.LogCaptureFixture) -> None:
    world.consume(0)
    fork_stream(world.root, world.chain(DOWN), world.writers[DOWN].manifest, "dev/carriers")
    assert world.history.subscribers() == []
    assert caplog.text == ""


def test_who_reads_in_two_ways_of_which_one_has_not_begun_keeps_the_log_for_the_other(world: TwoStreams) -> None:
    """The upstream had its first epoch between two looks at it, so one way of reading it had found none."""
    world.subscribe(0)
    first = world.commit(UP)
    ways = [SourceIdentity(FORMAT, UP, (("read", way),)) for way in ("table", "changes")]
    at = [UpstreamPosition(world.upstream, epoch).encode() for epoch in (Epoch(0), first)]
    world.commit(DOWN, sources=tuple(SourcePosition(way, text) for way, text in zip(ways, at, strict=True)))
    world.commit(UP, 60)
    down = world.open(DOWN)  # for the way that has not begun it pins a snapshot, far ahead of the other
    write_pin(world.chain(UP), backfill_pin(down.uuid, down.term), world.writers[UP].manifest.retained[-1])
    world.commit(UP, 10)
    world.collect()
    assert world.versions[0] == Version(first)
    assert world.history.subscribers()[0].kept_from == first


def test_a_subscriber_that_began_again_keeps_the_log_from_there(world: TwoStreams) -> None:
    """It also reads something else, so the oldest epoch that it can go back to is one from before it began anew."""
    identity = SourceIdentity(FORMAT, UP)
    back = world.commit(UP, 5)
    world.subscribe(world.commit(UP, RETAINED - 1))
    world.open(UP, from_epoch=back)
    at = [UpstreamPosition(world.upstream, epoch).encode() for epoch in (Epoch(0), back)]
    world.commit(DOWN, sources=(SourcePosition(identity, at[0]),))
    world.commit(DOWN, sources=(SourcePosition(identity, at[1], at[0]),))
    world.open(DOWN)
    world.commit(UP, 60)
    world.collect()
    assert world.versions[0] == Version(back), "it reads on behind that"


def test_a_snapshot_goes_with_the_log_behind_it_and_what_a_person_pinned_stays(world: TwoStreams) -> None:
    """Nothing can go on behind it any more: neither who is in its midst, nor who goes back there."""
    first = world.commit(UP, 3)
    down = world.writers[DOWN].manifest
    world.subscribe(first)
    old, new = backfill_pin(down.uuid, Term(1)), backfill_pin(down.uuid, Term(2))
    for name in (old, f"{BACKFILL_PINS}2024", "mine"):
        write_pin(world.chain(UP), name, world.writers[UP].manifest.retained[-1])
    second = world.commit(UP, 20)
    write_pin(world.chain(UP), new, world.writers[UP].manifest.retained[-1])
    world.commit(UP, 20)
    world.collect(max_lag=40)
    assert names_of_pins(world.chain(UP), "") == sorted([old, new, f"{BACKFILL_PINS}2024", "mine"]), "just near enough"
    world.commit(UP)
    world.collect(max_lag=40)
    assert names_of_pins(world.chain(UP), "") == sorted([new, f"{BACKFILL_PINS}2024", "mine"])
    assert (first, second) == (4, 24)


def test_a_collector_that_slept_takes_no_snapshot_away_that_was_pinned_since_the_stream_went_back(
    world: TwoStreams,
) -> None:
    """To it the new snapshot, of an old epoch, looks as far behind as an old one."""
    world.commit(UP, 3)
    down, old = world.writers[DOWN].manifest, world.writers[UP].manifest
    write_pin(world.chain(UP), "what they have gone back to", old.retained[-1])
    world.commit(UP, 50)
    name = backfill_pin(down.uuid, down.term)
    snapshot = encode_pin(Pin(name, 0, old, Nonce("old")))

    def pins_meanwhile(call: Call) -> Fault:
        if call.verb != "list":  # the first call is
            world.store(UP).put_if_absent(pin_name(name), snapshot)
        return Fault.NONE

    world.collect(max_lag=40, store=FaultyStore(world.store(UP), pins_meanwhile))
    assert name in names_of_pins(world.chain(UP), "")
    world.collect(max_lag=40)
    assert name not in names_of_pins(world.chain(UP), ""), "where nobody has gone back, it is far behind"


def test_nothing_is_deleted_while_a_subscriber_cannot_be_read(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.consume(6)
    world.consume(6)
    world.commit(UP, 60)
    before = set(world.store(UP).list(""))
    world.store(DOWN).put(manifest_name(world.writers[DOWN].manifest.retained[0].version), b"damaged")
    with pytest.raises(CorruptStateError, match=r"unsubscribe it\. subscriber='late/carriers'.*object=manifest"):
        world.collect()
    world.store(UP).put(subscriber_name("x"), b"damaged")
    with pytest.raises(CorruptStateError, match="object=subscribers/x"):
        world.collect()
    assert before <= set(world.store(UP).list(""))


def test_one_whose_folder_is_gone_keeps_the_log_until_it_is_unsubscribed(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    for name in list(world.store(DOWN).list("")):
        world.store(DOWN).delete(name)
    world.commit(UP, 60)
    assert world.collect().gone == (DOWN,)
    assert world.versions[0] == 6
    world.open(DOWN)  # made anew: another stream
    assert world.collect().gone == (DOWN,)
    assert world.history.subscribers()[0].gone
    with pytest.raises(InvalidPipelineError, match=r"subscribers=\['late/carriers'\]"):
        world.history.unsubscribe("carriers")
    name = backfill_pin(read_subscribers(world.chain(UP))[0].uuid, Term(1))
    for pin in (name, f"{BACKFILL_PINS}2024", "mine"):
        write_pin(world.chain(UP), pin, world.writers[UP].manifest.retained[-1])
    world.history.unsubscribe(DOWN)
    assert names_of_pins(world.chain(UP), "") == [f"{BACKFILL_PINS}2024", "mine"]
    assert world.collect() == Collected(
        manifests=world.newest - MANIFESTS_KEPT - 5, files=2 * world.newest - 42, leases=1
    )
    assert world.history.subscribers() == []


def test_one_that_is_made_again_during_the_look_is_gone_and_not_damaged(
    world: TwoStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.subscribe(world.commit(UP, 5))
    world.commit(DOWN, 9)
    world.commit(UP, 60)
    newest, looks = ManifestChain.newest, list[Version]()

    def made_again(chain: ManifestChain, hint: Version | None = None) -> Manifest | None:
        if chain.store.url == world.store(DOWN).url and not looks:
            looks.append(world.writers[DOWN].manifest.version)
            for name in list(world.store(DOWN).list("")):
                world.store(DOWN).delete(name)
            world.open(DOWN)
            return newest(chain, looks[0])  # a list from before has shown this number
        return newest(chain, hint)

    monkeypatch.setattr(ManifestChain, "newest", made_again)
    assert world.collect().gone == (DOWN,)
    assert looks


def test_a_damaged_manifest_stops_the_pass_only_where_its_log_is_needed(world: TwoStreams) -> None:
    world.subscribe(world.commit(UP, 5))
    world.consume(20)
    world.commit(UP, 60)
    for version in map(Version, (10, 30)):
        world.store(UP).put(manifest_name(version), b"damaged")
    with pytest.raises(CorruptStateError, match=f"object={manifest_name(Version(30))}"):
        world.collect()
    assert world.versions[0] == 1
    unsubscribe(world.chain(UP), DOWN)
    world.collect()
    assert world.versions[0] == world.newest + 1 - MANIFESTS_KEPT


def test_a_change_log_stays_while_another_collector_removes_all_else_of_its_epoch(
    world: TwoStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 4)
    monkeypatch.setattr(indexed_lists, "MERGED", 2)
    world.open(UP, pipeline=replace(PIPELINE, tables=(), keys=(), appends=True))
    world.subscribe(world.commit(UP, 5))
    world.consume(5)
    world.commit(UP, MANIFESTS_KEPT)
    shown = world.writers[UP].manifest
    world.commit(UP, acks=merging(shown))
    world.commit(UP, 5)
    newest = world.writers[UP].manifest
    retained = [world.chain(UP).read(entry.version) for entry in newest.retained]
    gone = set(shown.files.index) - {ref for each in retained for ref in each.files.index}
    assert gone
    for ref in gone:  # as a pass with a higher bound does
        world.store(UP).delete(ref.path)
    world.collect()
    assert log_named(shown) <= set(world.store(UP).list("changes"))


def test_a_pass_that_slept_while_epochs_were_retired_takes_no_collected_index_for_damage(
    world: TwoStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 4)
    monkeypatch.setattr(indexed_lists, "MERGED", 2)
    world.open(UP, pipeline=replace(PIPELINE, tables=(), keys=(), appends=True))
    world.subscribe(world.commit(UP, MANIFESTS_KEPT))
    shown, subscribed = world.writers[UP].manifest, Collector._subscriptions
    slept: list[Manifest] = []

    def sleep(collector: Collector, newest: Manifest) -> Any:
        if not slept:
            slept.append(newest)
            world.commit(UP, 10)
            kept = {ref for each in world.history.epochs() for ref in world.chain(UP).read(each.version).files.index}
            gone = set(shown.files.index) - kept
            assert gone
            for ref in gone:  # as another pass does
                world.store(UP).delete(ref.path)
        return subscribed(collector, newest)

    monkeypatch.setattr(Collector, "_subscriptions", sleep)
    world.collect()
    assert slept == [shown]


def merging(parent: Manifest) -> tuple[ShardAck, ...]:
    """The acknowledgements of the next epoch, which merges the newest files of the table."""
    merged = parent.files.tail[-len(parent.changes) :]
    assert merged == parent.changes
    first, *others = an_edit(parent).acks
    file = replace(first.changes[0], path="table/1/1-9-0-0.parquet", rows=sum(each.rows for each in merged))
    return (replace(first, files_merged=FilesMerged(tuple(each.path for each in merged), file)), *others)
