from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from uuid import uuid4

import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.ids import EMPTY, Epoch, Nonce, Shard, Term, Version
from dagster_ckpt.protocol.epochs.pin import Pin, encode_pin
from dagster_ckpt.protocol.epochs.retention import MANIFESTS_KEPT, files_named
from dagster_ckpt.protocol.manifest.manifest import FileSeen, Manifest, Retained
from dagster_ckpt.protocol.object_names import (
    COLLECTOR,
    TRIMMED,
    FileId,
    changes_name,
    lease_name,
    manifest_name,
    pin_name,
    probe_name,
    state_name,
)
from dagster_ckpt.storage.chain import indexed_lists
from dagster_ckpt.storage.chain.indexed_lists import TAIL_MAX
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collected, Collector
from dagster_ckpt.storage.operations.manual_opening import roll_back
from dagster_ckpt.storage.retention_refs.pins import read_pins, remove_pin, write_pin
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.worlds.clock import StillClock
from tests.worlds.collected_stream import EPOCH_MS, FOLDER, GRACE_MS, IMPATIENT, NAME, RETAINED, World
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.manifests import PIPELINE
from tests.worlds.streams import SHARDS, an_edit, an_opening, with_files


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.writer.close("the test is over")


def test_a_stream_that_works_on_keeps_as_many_objects_as_it_needs(world: World) -> None:
    counts = []
    for _ in range(40):
        world.commit(10)
        world.collect_mine()
        assert world.is_whole()
        counts.append(len(world.names))
    # What an epoch adds lives on for as long as it is retained, and for a grace period.
    assert max(counts[10:]) == max(counts[30:])
    assert len(world.versions) < (GRACE_MS / EPOCH_MS) + 10 + RETAINED + 5


def test_unneeded_objects_are_gone_a_grace_period_later(world: World) -> None:
    world.commit(100)
    world.wait()
    collected = world.collect_mine()
    assert world.versions == list(range(101 - MANIFESTS_KEPT + 1, 102))
    manifests = [world.chain.read(Version(version)) for version in world.versions]
    assert world.files == set().union(*map(files_named, manifests))
    assert world.is_whole()
    assert collected.manifests == 101 - MANIFESTS_KEPT
    assert world.collect_mine() == Collected()


def test_an_epoch_can_be_read_for_a_grace_period_after_it_ceased_to_be_retained(world: World) -> None:
    chosen = world.commit()
    world.commit(RETAINED)  # with the last of these it is not retained any more
    world.commit(50)
    for _ in range(8):
        world.collect_mine()
        assert world.chain.read(chosen.version) == chosen
        assert files_named(chosen) <= world.files
        world.clock.sleep_ms(1_000)
    world.wait()
    world.collect_mine()
    assert chosen.version not in world.versions
    assert not files_named(chosen) & world.files


def test_version_1_is_deleted_only_after_the_trimmed_mark_exists(world: World) -> None:
    world.commit(50)
    world.wait()
    order: list[tuple[str, str]] = []

    def noted(call: Call) -> Fault:
        order.append((call.verb, call.name))
        return Fault.NONE

    Collector(ManifestChain(FaultyStore(world.store, noted), world.clock), world.root, GRACE_MS).collect()
    deleted = [name for verb, name in order if verb == "delete" and name.startswith("manifest/")]
    assert deleted == [manifest_name(Version(version)) for version in range(1, 52 - MANIFESTS_KEPT)]
    assert order.index(("put_if_absent", TRIMMED)) < order.index(("delete", manifest_name(Version(1))))


def pinned_and_retired(world: World) -> Manifest:
    """The manifest of an epoch that a pin alone still keeps."""
    pinned = world.commit(3)
    write_pin(world.chain, "before-migration", pinned.retained[-1])
    world.commit(100)
    world.wait()
    world.collect_mine()
    return pinned


def test_a_pinned_epoch_stays_whole_until_it_is_unpinned(world: World) -> None:
    pinned = pinned_and_retired(world)
    assert pinned.version not in world.versions
    assert files_named(pinned) <= world.files
    [pin] = read_pins(world.chain)
    assert pin.manifest == pinned
    remove_pin(world.chain, "before-migration")
    world.collect_mine()
    assert not files_named(pinned) & world.files


def test_what_a_pin_kept_stays_where_the_stream_went_back_to_it_while_the_collector_slept(world: World) -> None:
    pinned = pinned_and_retired(world)

    def goes_back(call: Call) -> Fault:
        # The newest manifest has been read. The pins have not: what the pin kept is the newest manifest's by then.
        if (call.verb, call.name) == ("put", COLLECTOR) and read_pins(world.chain):
            roll_back(world.chain, pinned.epoch, Takeover.ALWAYS)
            remove_pin(world.chain, "before-migration")
        return Fault.NONE

    chain = ManifestChain(FaultyStore(world.store, goes_back), world.clock)
    Collector(chain, world.root, GRACE_MS).collect(world.writer.term)
    newest = world.chain.newest()
    assert newest is not None
    assert newest.epoch == pinned.epoch
    assert files_named(newest) <= world.files


def test_whenever_the_pin_is_removed_while_the_stream_goes_back_to_it_the_stream_is_whole_or_stays() -> None:
    came = Counter[bool]()
    for at in count():
        world, calls = World(), count()
        pinned = pinned_and_retired(world)

        def unpinned(_: Call, world: World = world, at: int = at, calls: "count[int]" = calls) -> Fault:
            if next(calls) == at:
                remove_pin(world.chain, "before-migration")
                world.collect_mine()
            return Fault.NONE

        goes_back = True
        try:
            roll_back(ManifestChain(FaultyStore(world.store, unpinned), world.clock), pinned.epoch, Takeover.ALWAYS)
        except InvalidPipelineError:
            goes_back = False
        newest = world.chain.newest()
        assert newest is not None
        assert (newest.epoch == pinned.epoch) is goes_back
        world.collect_mine()
        assert files_named(newest) <= world.files
        kept = [pin.name for pin in read_pins(world.chain)]
        world.writer.close("the test is over")
        if next(calls) <= at:
            assert kept == ["before-migration"], "nothing happened, and its own pin is gone"
            break
        assert kept == []
        came[goes_back] += 1
    assert came[True] > 2
    assert came[False] > 2


def test_a_pin_that_goes_while_pins_are_read_may_have_left_its_files_to_another(world: World) -> None:
    pinned = world.commit(3)
    write_pin(world.chain, "a", pinned.retained[-1])
    write_pin(world.chain, "b", pinned.retained[-1])
    remove_pin(world.chain, "b")
    [pin] = read_pins(world.chain)
    world.commit(100)
    world.wait()
    world.collect_mine()

    reads: list[str] = []

    def changes_hands(call: Call) -> Fault:
        if (call.verb, call.name) == ("get", pin_name("a")):
            reads.append(call.name)
        # "a" has been listed for the second time, by which files are judged. "b" keeps the epoch in its place.
        if len(reads) == 2 and pin_name("a") in world.names:
            world.store.put(pin_name("b"), encode_pin(replace(pin, name="b")))
            remove_pin(world.chain, "a")
        return Fault.NONE

    chain = ManifestChain(FaultyStore(world.store, changes_hands), world.clock)
    Collector(chain, world.root, GRACE_MS).collect(world.writer.term)
    assert [pin.name for pin in read_pins(world.chain)] == ["b"]
    assert files_named(pinned) <= world.files


def test_a_late_pin_is_refused_and_leaves_nothing(world: World) -> None:
    asked = world.commit(3).retained[0]
    world.commit(RETAINED)
    with pytest.raises(InvalidPipelineError, match="retired while it was pinned"):
        write_pin(world.chain, "late", asked)
    assert read_pins(world.chain) == []


def test_a_pin_of_an_epoch_without_a_manifest_is_refused_and_leaves_nothing(world: World) -> None:
    retained = world.commit().retained[0]
    world.commit(60)
    world.wait()
    world.collect_mine()
    with pytest.raises(InvalidPipelineError, match="the epoch was retired while it was pinned"):
        write_pin(world.chain, "late", retained)
    assert read_pins(world.chain) == []
    missing = world.writer.manifest.retained[0]
    world.store.delete(manifest_name(missing.version))
    with pytest.raises(CorruptStateError, match="a manifest is missing"):
        write_pin(world.chain, "never", missing)


def test_a_name_pins_one_epoch(world: World) -> None:
    first, second = world.commit(2).retained
    assert write_pin(world.chain, "p", first) == write_pin(world.chain, "p", first)
    with pytest.raises(InvalidPipelineError, match="taken by another pin"):
        write_pin(world.chain, "p", second)
    with pytest.raises(InvalidPipelineError, match=r"no such pin.*pins=\['p'\]"):
        remove_pin(world.chain, "q")
    with pytest.raises(InvalidPipelineError, match="not empty"):
        write_pin(world.chain, "", first)


def test_a_pinned_epoch_is_read_as_any_other(world: World) -> None:
    history = StreamHistory(world.root, NAME, world.clock)
    epoch = world.commit().epoch
    pin = history.pin(epoch, "kept")
    world.commit(50)
    world.wait()
    history.collect_garbage("60s")
    assert history.manifest(epoch).epoch == history.info(epoch).epoch == epoch
    assert epoch in [info.epoch for info in history.epochs()]
    assert history.pins() == [pin]
    history.unpin("kept")
    assert epoch not in [info.epoch for info in history.epochs()]
    with pytest.raises(InvalidPipelineError, match="no longer kept"):
        history.manifest(epoch)
    with pytest.raises(InvalidPipelineError, match="empty stream"):
        history.pin(0, "nothing")


def an_orphan(world: World, term: int, epoch: int) -> str:
    """A run that an attempt has written which nobody chose."""
    name = state_name("total", (Shard(0),), SHARDS, FileId(Term(term), Epoch(epoch), Shard(0), attempt=9))
    world.store.put_if_absent(name, b"an orphan")
    return name


def test_what_failed_attempts_have_left_is_collected_by_the_writer_that_lives(world: World) -> None:
    newest = world.commit(3)
    done = [an_orphan(world, newest.term, epoch) for epoch in (2, newest.epoch)]
    in_flight = an_orphan(world, newest.term, newest.version + 1)
    assert world.collect() == Collected()
    assert world.collect(Term(newest.term + 1)) == Collected()
    assert world.collect_mine().files == len(done)
    assert in_flight in world.files
    assert not set(done) & world.files


def test_any_collector_may_delete_what_a_finished_writer_left(world: World) -> None:
    term = world.commit(3).term
    in_flight = an_orphan(world, term, world.writer.next_epoch)
    world.open()
    assert world.collect().files == 1
    assert in_flight not in world.files
    assert world.is_whole()


def test_a_fenced_writer_collects_as_any_other_collector(world: World) -> None:
    term = world.commit(3).term
    world.open()
    newest = world.commit(3)
    theirs = an_orphan(world, newest.term, newest.epoch)
    world.collect(term)
    assert theirs in world.files


def test_a_file_that_is_no_files_name_stays(world: World) -> None:
    world.commit(3)
    world.open()
    foreign = ["state/total/README.txt", "changes/mine.parquet", "other/1-2-3-4.parquet"]
    for name in foreign:
        world.store.put(name, b"")
    world.collect_mine()
    assert set(foreign) <= world.names


def test_an_epoch_that_a_rollback_left_behind_stays_while_it_is_retained(world: World) -> None:
    first = world.commit(3).retained[0]
    abandoned = world.writer.manifest
    world.open(from_epoch=first.epoch)
    world.wait()
    world.collect_mine()
    assert files_named(abandoned) <= world.files
    world.commit(100)
    assert world.is_whole()
    world.wait()
    world.collect_mine()
    assert world.is_whole()
    assert changes_name(FileId(abandoned.term, abandoned.epoch, Shard(0), 0)) not in world.files


def test_an_epoch_gone_back_to_keeps_what_later_ones_had_merged_away(world: World) -> None:
    target = world.commit(4)
    world.commit(4)  # by now no shard names a run of the first epoch
    world.open(from_epoch=target.epoch)
    world.commit(RETAINED + MANIFESTS_KEPT)
    for _ in range(4):
        world.clock.sleep_ms(GRACE_MS // 4)
        world.collect_mine()
        assert world.is_whole()


def test_an_append_only_streams_files_stay_also_where_an_index_object_lists_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 20)
    world.writer.close("it is made anew")
    world.root = MemoryObjectStore(uuid4().hex, world.clock)
    opening = an_opening("run", pipeline=replace(PIPELINE, tables=(), keys=(), appends=True), retained=RETAINED)
    world.writer = open_stream(world.store, opening, world.clock)
    world.commit(30)
    assert world.writer.manifest.files.index
    world.wait()
    assert world.collect_mine().manifests > 0
    assert len({name for name in world.files if name.startswith("changes/")}) == 30 * SHARDS


def test_index_objects_of_sources_stay_while_a_manifest_names_them(world: World) -> None:
    seen = [FileSeen(f"file:///{number}", number) for number in range(TAIL_MAX + 1)]
    edit = an_edit(world.writer.manifest)
    world.writer.commit(replace(edit, sources=(with_files(edit.sources[0], *seen),)))
    [index] = [name for name in world.files if name.startswith("index/")]
    world.commit(60)
    world.wait()
    world.collect_mine()
    assert index in world.files


def test_a_pin_that_came_too_late_to_keep_an_index_object_is_named_with_what_helps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_lists, "TAIL_MAX", 10)
    opening = an_opening("run", pipeline=replace(PIPELINE, tables=(), keys=(), appends=True), retained=RETAINED)
    world.writer = open_stream(world.store, opening, world.clock)
    world.commit(30)
    shown = world.writer.manifest
    assert shown.files.index
    late = Pin("late", world.clock.now_ms(), shown, Nonce("late"))
    for ref in shown.files.index:
        world.store.delete(ref.path)
    world.open(from_epoch=EMPTY)
    world.commit(60)
    world.wait()
    world.store.put_if_absent(pin_name("late"), encode_pin(late))
    before = set(world.store.list(""))
    with pytest.raises(CorruptStateError, match=r"unpin it\. .* pin='late', reason=an index object is missing"):
        world.collect()
    assert before <= {*world.store.list(""), "collector.json"}
    remove_pin(world.chain, "late")
    assert world.collect().manifests > 0


@pytest.mark.parametrize("damaged", ["a manifest", "a manifest under another's name", "a pin", "a missing manifest"])
def test_nothing_is_removed_where_what_is_needed_cannot_be_made_out(world: World, damaged: str) -> None:
    kept = world.commit(60).retained[0]
    write_pin(world.chain, "p", kept)
    world.commit(60)
    world.open()
    an_orphan(world, 1, 3)
    world.wait()
    match damaged:
        case "a manifest":
            world.store.put(manifest_name(world.writer.manifest.retained[0].version), b"damaged")
        case "a manifest under another's name":
            older, newer = (manifest_name(entry.version) for entry in world.writer.manifest.retained[:2])
            world.store.put(older, world.store.get(newer))
        case "a missing manifest":
            world.store.delete(manifest_name(world.writer.manifest.retained[1].version))
        case _:
            world.store.put(pin_name("p"), b"damaged")
    before = world.files
    versions = world.versions
    with pytest.raises(CorruptStateError):
        world.collect_mine()
    assert world.files == before
    assert world.versions == versions


def test_an_unneeded_damaged_manifest_is_skipped_and_deleted_with_the_others(world: World) -> None:
    world.commit(60)
    for version in range(20, 40):
        world.store.put(manifest_name(Version(version)), b"damaged")
    world.wait()
    world.commit(20)
    damaged = Version(world.writer.manifest.version - RETAINED - 2)
    world.store.put(manifest_name(damaged), b"damaged")
    assert world.collect_mine().manifests > 40
    assert damaged in world.versions
    assert world.is_whole()
    world.wait()
    world.commit(60)
    world.collect_mine()
    assert damaged not in world.versions
    assert world.is_whole()


def test_leases_of_earlier_terms_and_leftovers_of_probes_go_when_they_are_old(world: World) -> None:
    first = world.writer.term
    world.commit(3)
    world.open()
    left = probe_name("left")
    world.store.put(left, b"first")
    assert world.collect_mine().leases == 0
    world.wait()
    assert world.collect_mine().leases == 2
    assert lease_name(first) not in world.names
    assert lease_name(world.writer.term) in world.names
    assert left not in world.names


@dataclass
class Refusing(FaultyStore):
    """A store that can be read and deleted from, and takes no object: a quota is used up, or puts get a 503."""

    def put_if_absent(self, name: str, data: bytes | memoryview) -> bool:
        if self.takes(data):
            return super().put_if_absent(name, data)
        raise StoreUnavailableError(f"no space left: free some. {name=}")

    def put(self, name: str, data: bytes | memoryview) -> None:
        if not self.takes(data):
            raise StoreUnavailableError(f"no space left: free some. {name=}")
        super().put(name, data)

    def takes(self, data: bytes | memoryview) -> bool:
        return False


class FullDisk(Refusing):
    """Takes an entry of a folder, but no byte."""

    def takes(self, data: bytes | memoryview) -> bool:
        return not data


class FullUntilFreed(Refusing):
    """A quota that lets nothing in until something is gone."""

    def takes(self, data: bytes | memoryview) -> bool:
        return any(call.verb == "delete" for call in self.calls)


def collect_in(store: ObjectStore, world: World) -> Collected:
    """A pass of the stream's writer, which sees that store in the place of its own."""
    return Collector(ManifestChain(store, world.clock, IMPATIENT), world.root, GRACE_MS).collect(world.writer.term)


def test_on_a_full_disk_all_garbage_is_collected(world: World) -> None:
    world.commit(40)
    world.wait()
    full = FullDisk(world.store)
    collected = collect_in(full, world)
    assert collected.manifests > 20
    assert collected.files > 80
    assert world.collect_mine() == Collected()
    assert world.is_whole()


def test_a_store_that_refuses_all_writes_is_collected_by_the_latest_time_known(world: World) -> None:
    world.commit(40)
    world.wait()
    world.collect_mine()
    world.commit(100)
    last_ms = world.store.modified_ms(manifest_name(world.writer.manifest.version))
    world.wait()  # the store's clock went on, but no object shows it
    refusing = Refusing(world.store)
    collected = collect_in(refusing, world)
    assert collected.manifests > 0
    assert collected.files > 0
    assert world.is_whole()
    first = world.chain.read(Version(world.versions[0]))
    given_up_ms = world.store.modified_ms(manifest_name(Version(first.version + RETAINED)))
    assert last_ms - given_up_ms < GRACE_MS + 2 * EPOCH_MS, "it goes on to the grace period"
    assert last_ms - given_up_ms >= GRACE_MS, "an epoch is kept for the grace period before that time"


def test_without_room_for_the_mark_of_a_trimmed_stream_only_state_goes(world: World) -> None:
    world.commit(100)
    before = world.names
    refusing = Refusing(world.store)
    collected = collect_in(refusing, world)
    gone = before - world.names
    assert gone
    assert all(name.startswith("state/") for name in gone)
    assert collected == Collected(files=len(gone))
    assert world.versions == list(range(1, 102))
    assert TRIMMED not in world.names
    assert world.is_whole()


def test_room_that_a_pass_makes_is_used_to_collect_the_rest(world: World) -> None:
    world.commit(100)
    world.wait()
    quota = FullUntilFreed(world.store)
    collected = collect_in(quota, world)
    assert collected.manifests > 80
    assert collected.files > 2 * 80
    assert world.collect_mine() == Collected()
    assert world.is_whole()


def test_a_store_that_refuses_writes_and_has_no_garbage_is_left_as_it_is(world: World) -> None:
    world.commit(3)
    before = world.names
    refusing = Refusing(world.store)
    assert collect_in(refusing, world) == Collected()
    assert world.names == before


def test_a_kill_at_any_call_leaves_a_refusing_store_whole(world: World) -> None:
    class Killed(BaseException):
        pass

    world.commit(100)
    killed_at = 0
    while True:
        left = killed_at

        def decide(call: Call) -> Fault:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return Fault.NONE

        refusing = Refusing(world.store, decide)
        try:
            collect_in(refusing, world)
            break
        except Killed:
            assert world.is_whole()
            assert world.versions == list(range(1, 102))
        killed_at += 7
    assert killed_at > 100


def test_an_empty_folder_has_no_garbage() -> None:
    root, clock = MemoryObjectStore(uuid4().hex), StillClock()
    store = folder_store(root, FOLDER)
    assert Collector(ManifestChain(store, clock), root, GRACE_MS).collect() == Collected()
    assert list(store.list("")) == []


def test_a_late_list_lets_no_manifest_go_before_an_older_one(world: World) -> None:
    world.commit(60)
    world.wait()
    late = FaultyStore(world.store, hidden={manifest_name(Version(version)) for version in (1, 2, 3, 7)})
    Collector(ManifestChain(late, world.clock), world.root, GRACE_MS).collect()
    assert world.versions == list(range(62 - MANIFESTS_KEPT, 62))


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LATE])
def test_a_pass_may_end_at_any_call_and_another_finishes_its_work(fault: Fault, world: World) -> None:
    world.commit(22)
    world.open()
    an_orphan(world, 1, 3)
    made = world.root
    at, finished = 0, False
    while not finished:
        world.root = MemoryObjectStore(uuid4().hex, world.clock)
        for name in made.list(""):
            world.root.put(name, made.get(name))
        world.wait()
        left = iter(range(at))

        def down_after(call: Call, left: Iterator[int] = left) -> Fault:
            return Fault.NONE if next(left, None) is not None else fault

        store = FaultyStore(world.store, down_after)
        with suppress(StoreUnavailableError):
            Collector(ManifestChain(store, world.clock, IMPATIENT), world.root, GRACE_MS).collect()
            finished = True
        assert world.is_whole()
        assert world.versions == list(range(world.versions[0], 25))
        world.collect()
        store.land()
        assert world.is_whole()
        assert world.versions == list(range(25 - MANIFESTS_KEPT, 25))
        at += 1
    assert at > 60


class SleepersTakeWhatIsFreed(FaultyStore):
    """A writer woke up that had been about to create a manifest, the moment its number was freed, and died of it."""

    def delete(self, name: str) -> None:
        data = self.inner.get(name)
        self.inner.delete(name)
        if name == manifest_name(Version(2)):
            self.inner.put_if_absent(name, data)


def test_a_sleeper_on_a_number_that_was_just_freed_stops_no_pass(world: World) -> None:
    world.commit(22)
    world.wait()
    store = SleepersTakeWhatIsFreed(world.store)
    Collector(ManifestChain(store, world.clock), world.root, GRACE_MS).collect()
    assert world.versions == [2, *range(24 - MANIFESTS_KEPT, 24)]
    assert world.is_whole()
    world.collect()
    assert world.versions == list(range(24 - MANIFESTS_KEPT, 24))


def test_a_sleeper_below_all_that_is_left_and_a_late_list_stop_no_pass(world: World) -> None:
    """The search for what is old enough meets the sleeper's first, which is young, and below it only free numbers."""
    world.commit(40)
    lingering, sleepers = manifest_name(Version(3)), manifest_name(Version(22))
    data = world.store.get(sleepers)
    world.wait()
    world.collect_mine()
    assert world.versions[0] > 22
    world.commit()
    world.store.put_if_absent(sleepers, data)
    orphan = an_orphan(world, world.writer.term, 2)
    late = FaultyStore(world.store, lingering={lingering})
    Collector(ManifestChain(late, world.clock, IMPATIENT), world.root, GRACE_MS).collect(world.writer.term)
    assert orphan not in world.files
    assert world.is_whole()
    world.wait()
    world.collect_mine()
    assert 22 not in world.versions
    assert world.is_whole()


def test_a_sleeper_on_a_number_that_was_freed_while_the_pass_read_stops_no_pass(world: World) -> None:
    world.commit(22)
    world.wait()
    name = manifest_name(world.writer.manifest.retained[1].version)
    data, asked = world.store.get(name), list[Call]()

    def overtakes(call: Call) -> Fault:
        if asked and not world.store.exists(name):  # whatever is asked next
            world.store.put_if_absent(name, data)
        if call == Call("get", name) and not asked:
            world.commit(100)
            world.wait()
            world.collect_mine()
            assert not world.store.exists(name)
            asked.append(call)
        return Fault.NONE

    Collector(ManifestChain(FaultyStore(world.store, overtakes), world.clock), world.root, GRACE_MS).collect()
    assert asked
    assert world.is_whole()


def test_a_collector_that_slept_through_everything_harms_nothing(world: World) -> None:
    """It has made up its mind, sleeps before its first delete, and wakes up when the world has moved on."""
    world.commit(60)
    world.wait()
    slept: list[Call] = []

    def sleeping(call: Call) -> Fault:
        if call.verb == "delete" and not slept:
            slept.append(call)
            pinned = world.commit(100).retained[0]
            write_pin(world.chain, "meanwhile", pinned)
            world.commit(100)
            world.open(from_epoch=world.writer.manifest.retained[0].epoch)
            world.commit(50)
            world.wait()
            world.collect_mine()
            world.commit(10)
        return Fault.NONE

    Collector(ManifestChain(FaultyStore(world.store, sleeping), world.clock), world.root, GRACE_MS).collect(Term(1))
    assert slept
    assert world.is_whole()
    assert world.versions == list(range(world.versions[0], world.versions[-1] + 1))


def test_the_epoch_0_of_a_new_stream_is_not_in_its_list_of_retained(world: World) -> None:
    nothing = Retained(Epoch(0), Version(1), 0)
    with pytest.raises(InvalidPipelineError, match="retired"):
        write_pin(world.chain, "nothing", nothing)
