"""The newest manifest is damaged, or one is missing: nobody is answered from an older one, and there is a way back."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CheckpointError, CorruptStateError, FencedError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Version
from dagster_ckpt.protocol.lease import Lease, encode_lease
from dagster_ckpt.protocol.manifest.manifest import EpochRange, Manifest, ManifestKind
from dagster_ckpt.protocol.object_names import TRIMMED, lease_name, manifest_name, parse_manifest_name
from dagster_ckpt.storage.chain import damaged_end
from dagster_ckpt.storage.chain.damaged_end import LOST, BrokenEnd
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience, RetryingStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover, open_again, open_manifest
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import a_holder, a_store, an_edit, an_opening

Damage = Callable[[MemoryObjectStore, Version], None]


def back_to(epoch: int, run: str = "run-9", **fields: object) -> Opening:
    return an_opening(run, from_epoch=Epoch(epoch), take_over=Takeover.ALWAYS, **fields)


@dataclass
class World:
    """A stream of epochs 2 to 6, all retained, whose writer has told in its lease how far it came."""

    store: MemoryObjectStore = field(default_factory=a_store)
    clock: StillClock = field(default_factory=StillClock)

    def __post_init__(self) -> None:
        opening = an_opening()
        self.writer = StreamWriter(self.chain, opening, open_manifest(self.chain, opening))
        for _ in range(5):
            self.writer.commit(an_edit(self.writer.manifest))
        self.tell(self.writer.manifest)

    @property
    def chain(self) -> ManifestChain:
        return ManifestChain(self.store, self.clock)

    def tell(self, manifest: Manifest) -> None:
        lease = Lease(manifest.term, a_holder(), 30_000, Epoch(max(manifest.epoch, manifest.term)), closed="done")
        self.store.put(lease_name(manifest.term), encode_lease(lease))

    def open(self, opening: Opening) -> StreamWriter:
        return StreamWriter(self.chain, opening, open_manifest(self.chain, opening))

    def lose(self, *versions: int) -> None:
        for version in versions:
            self.store.delete(manifest_name(Version(version)))

    def versions(self) -> list[Version]:
        found = (parse_manifest_name(name) for name in self.store.list("manifest"))
        return sorted(version for version in found if version is not None)


@pytest.fixture
def world() -> World:
    return World()


def test_a_hint_on_a_number_that_was_freed_and_taken_by_sleepers_breaks_nothing(world: World) -> None:
    """Two of them: so the second has its predecessor, as a newest manifest does."""
    world.store.put(TRIMMED, b"{}")
    world.lose(1, 4)
    newest = world.writer.manifest
    assert world.chain.newest(Version(2)) == newest
    assert world.chain.newest(Version(3)) == newest
    late = FaultyStore(world.store, hidden={manifest_name(Version(version)) for version in (5, 6)})
    assert ManifestChain(late, world.clock).newest(Version(3)) == newest, "nor where the list knows only the sleepers'"


def flipped(store: MemoryObjectStore, version: Version) -> None:
    data = bytearray(store.get(manifest_name(version)))
    data[len(data) // 2] ^= 1
    store.put(manifest_name(version), bytes(data))


def cut_off(store: MemoryObjectStore, version: Version) -> None:
    store.put(manifest_name(version), store.get(manifest_name(version))[:-3])


def emptied(store: MemoryObjectStore, version: Version) -> None:
    store.put(manifest_name(version), b"")


def anothers(store: MemoryObjectStore, version: Version) -> None:
    store.put(manifest_name(version), store.get(manifest_name(Version(version - 2))))


def gone(store: MemoryObjectStore, version: Version) -> None:
    store.delete(manifest_name(version))


def two_gone(store: MemoryObjectStore, version: Version) -> None:
    for number in (version - 2, version):
        store.delete(manifest_name(Version(number)))


DAMAGES = [flipped, cut_off, emptied, anothers, gone]


# Nobody is answered from an older one


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("hint", [None, 1, 4, 6, 70])
def test_a_damaged_newest_manifest_is_never_mistaken_for_absent(world: World, damage: Damage, hint: int | None) -> None:
    damage(world.store, Version(6))
    with pytest.raises(CorruptStateError, match=r"object=manifest/0+6\.json"):
        world.chain.newest(None if hint is None else Version(hint))
    with pytest.raises(CorruptStateError, match=r"object=manifest/0+6\.json"):
        world.open(an_opening("run-2"))
    assert world.versions() == [version for version in range(1, 7) if version != 6 or damage is not gone]


@pytest.mark.parametrize("lost", [(5,), (4, 5), (2,), (2, 3, 4), (3, 5), (1, 3)])
def test_a_hole_in_the_chain_hides_nothing_wherever_the_search_begins(world: World, lost: tuple[int, ...]) -> None:
    world.lose(*lost)
    for hint in [None, *range(1, 8)]:
        try:
            found = world.chain.newest(None if hint is None else Version(hint))
        except CorruptStateError as error:
            assert "a manifest was lost: restore" in str(error)  # noqa: PT017
        else:
            assert found == world.writer.manifest


def test_only_a_lease_shows_a_hole_if_all_later_manifests_are_gone(world: World) -> None:
    world.lose(4, 5, 6)
    with pytest.raises(CorruptStateError, match=r"object=manifest/0+4\.json, known_to_be_used=6"):
        world.chain.newest()
    world.store.delete(lease_name(world.writer.term))
    found = world.chain.newest()
    assert found is not None
    assert found.version == 3, "nothing is left that knows better"


def test_a_damaged_lease_proves_nothing(world: World) -> None:
    name = lease_name(world.writer.term)
    world.store.put(name, world.store.get(name).replace(b'"epoch": 6', b'"epoch": 7'))
    assert world.chain.newest() == world.writer.manifest
    world.store.put(lease_name(world.writer.term), b"\xff")
    assert world.chain.newest() == world.writer.manifest


def test_a_writer_that_goes_on_during_a_search_is_no_damage(world: World) -> None:
    store = FaultyStore(world.store)

    def goes_on(call: Call) -> Fault:
        if call.verb == "list":
            world.writer.commit(an_edit(world.writer.manifest))
            world.tell(world.writer.manifest)
        return Fault.NONE

    store.decide = goes_on
    found = ManifestChain(store, world.clock).newest()
    assert found is not None
    assert found.version >= 8


def test_where_no_manifest_can_be_read_only_a_backup_helps(world: World) -> None:
    for version in world.versions():
        emptied(world.store, version)
    for opening in [an_opening("run-2"), back_to(0)]:
        with pytest.raises(CorruptStateError, match="restore its folder from a backup"):
            world.open(opening)
    world.lose(*world.versions())
    with pytest.raises(CorruptStateError, match="restore its folder from a backup"):
        world.open(an_opening("run-2"))
    assert world.versions() == []


def test_a_lease_that_names_a_far_later_epoch_costs_no_time(world: World) -> None:
    world.tell(world.writer.manifest)
    lease = Lease(world.writer.term, a_holder(), 30_000, Epoch(10**15), closed="done")
    world.store.put(lease_name(world.writer.term), encode_lease(lease))
    with pytest.raises(CorruptStateError, match="known_to_be_used=1000000000000000"):
        world.open(back_to(3))


def test_a_writer_whose_own_manifest_is_gone_does_not_go_on_from_an_older_one(world: World) -> None:
    world.store.delete(lease_name(world.writer.term))
    world.lose(6)
    with pytest.raises(CorruptStateError, match=r"object=manifest/0+6\.json, found=5"):
        open_again(world.chain, an_opening(), world.writer.manifest)
    assert world.versions() == [1, 2, 3, 4, 5]


# The way back


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("epoch", [0, 2, 5])
def test_a_rollback_abandons_all_unknown_epochs(world: World, damage: Damage, epoch: int) -> None:
    damage(world.store, Version(6))
    shown = world.open(back_to(epoch)).manifest
    assert (shown.kind, shown.version, shown.term, shown.parent) == (ManifestKind.ROLLBACK, 7, 7, 6)
    assert shown.epoch == epoch
    assert shown.abandoned == (EpochRange(Epoch(epoch + 1), Epoch(6)),)
    assert [entry.epoch for entry in shown.retained] == [2, 3, 4, 5], "the list of the newest that can be read"
    for hint in [None, *range(1, 9)]:
        assert world.chain.newest(None if hint is None else Version(hint)) == shown
    assert world.versions() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("lost", [(5,), (4, 5), (2,), (2, 3, 4), (3, 5)])
def test_going_back_over_a_hole_marks_what_was_lost(world: World, lost: tuple[int, ...]) -> None:
    world.lose(*lost)
    shown = world.open(back_to(6)).manifest
    assert (shown.version, shown.epoch, shown.abandoned) == (7, 6, ())
    assert world.chain.newest() == shown
    first = world.chain.end()
    assert first == shown
    unbroken = {version for version in lost if world.store.get(manifest_name(Version(version))) == LOST}
    assert unbroken, "at least the first number that was missing is marked"


def test_going_back_once_more_is_an_ordinary_rollback(world: World) -> None:
    flipped(world.store, Version(6))
    first = world.open(back_to(4))
    first.commit(an_edit(first.manifest))
    second = world.open(back_to(3, "run-10")).manifest
    assert (second.version, second.abandoned) == (9, (EpochRange(Epoch(4), Epoch(8)),))


def test_the_retry_of_a_dagster_run_that_went_back_does_not_again(world: World) -> None:
    back = world.open(back_to(4))
    for _ in range(2):
        back.commit(an_edit(back.manifest))
    flipped(world.store, Version(9))
    with pytest.raises(CorruptStateError, match=r"object=manifest/0+9\.json"):
        world.open(back_to(4, "run-10", root_run="run-9"))


def test_several_damaged_manifests_in_a_row(world: World) -> None:
    for version in (4, 5, 6):
        emptied(world.store, Version(version))
    assert world.open(back_to(3)).manifest.abandoned == (EpochRange(Epoch(4), Epoch(6)),)


def test_a_stream_of_one_manifest_that_is_damaged_cannot_be_known(world: World) -> None:
    world = World()
    world.lose(2, 3, 4, 5, 6)
    emptied(world.store, Version(1))
    with pytest.raises(CorruptStateError, match="backup"):
        world.open(back_to(0))


def test_the_live_writer_of_a_damaged_manifest_is_waited_for_all_the_same(world: World) -> None:
    opened = world.open(an_opening("run-2"))
    lease = Lease(opened.term, a_holder("run-2"), 30_000, opened.manifest.epoch)
    world.store.put(lease_name(opened.term), encode_lease(lease))
    flipped(world.store, Version(opened.manifest.version))

    class Beating(StillClock):
        def sleep_ms(self, duration_ms: int) -> None:
            super().sleep_ms(duration_ms)
            nonlocal lease
            lease = lease.beaten(lease.epoch)
            world.store.put(lease_name(opened.term), encode_lease(lease))

    with pytest.raises(FencedError, match="dagster_run=run-2"):
        open_manifest(ManifestChain(world.store, Beating()), an_opening("run-3", from_epoch=Epoch(3)))


def test_a_writer_that_still_lives_meets_the_rollback_and_stops(world: World) -> None:
    flipped(world.store, Version(6))
    shown = world.open(back_to(4)).manifest
    with pytest.raises(FencedError, match="another writer took over"):
        world.writer.commit(an_edit(world.writer.manifest))
    assert world.chain.newest() == shown


def test_a_writer_that_was_quicker_than_the_rollback_has_mended_the_chain(world: World) -> None:
    flipped(world.store, Version(6))
    with pytest.raises(CorruptStateError, match=r"manifest/0+6\.json"):  # told by the check of its parent
        world.writer.commit(an_edit(world.writer.manifest))
    newest = world.chain.newest()
    assert newest is not None
    assert (newest.version, newest.epoch) == (7, 7), "the epoch is committed and whole: it needs no damaged manifest"


# Sleepers, lost replies and crashes at every call


def others_go_on(world: World) -> Manifest:
    """Somebody else goes back, commits many epochs, and retention frees all numbers up to shortly before the end."""
    other = world.open(back_to(3, "run-20"))
    for _ in range(7):
        other.commit(an_edit(other.manifest))
    world.store.put(TRIMMED, b"{}")
    world.lose(*(version for version in world.versions() if version <= other.manifest.version - 6))
    world.tell(other.manifest)
    return other.manifest


def calls_of_a_rollback(damage: Damage) -> int:
    world = World()
    damage(world.store, Version(6))
    store = FaultyStore(world.store)
    open_manifest(ManifestChain(store, world.clock), back_to(3))
    return len(store.calls)


class AtCall:
    """Lets something happen before, and something befall, one call."""

    def __init__(self, number: int, happens: Callable[[], object] = lambda: None, fault: Fault = Fault.NONE) -> None:
        self._number, self._happens, self._fault = number, happens, fault
        self._seen = 0

    def __call__(self, call: Call) -> Fault:
        self._seen += 1
        if self._seen != self._number:
            return Fault.NONE
        self._happens()
        return self._fault


def slept_at_every_call(
    damage: Damage, chains: Callable[[ObjectStore, Clock], ManifestChain] = ManifestChain
) -> Iterator[str]:
    """What goes wrong where a rollback sleeps before one of its calls, and others go on meanwhile."""
    for number in range(1, calls_of_a_rollback(damage) + 1):
        for fault in (Fault.NONE, Fault.LOST_REPLY):
            world = World()
            damage(world.store, Version(6))
            theirs: list[Manifest] = []
            store = FaultyStore(world.store)
            store.decide = AtCall(
                number, partial(lambda within, made: made.append(others_go_on(within)), world, theirs), fault
            )
            try:
                mine = open_manifest(chains(store, world.clock), back_to(4))
            except CheckpointError:
                mine = None  # epoch 4 is not in the others' lineage
            if not theirs:
                continue
            newest = world.chain.newest()
            if mine is not None and mine.parent == theirs[0].version:
                continue  # it looked again, and opened what the others made
            if newest != theirs[0] or mine is not None:
                yield f"{number=}, {fault=}, newest={newest and newest.version}, theirs={theirs[0].version}, {mine=}"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_rollback_that_sleeps_longer_than_retention_changes_nothing(damage: Damage) -> None:
    assert list(slept_at_every_call(damage)) == []


def restored_at_every_call(
    chains: Callable[[ObjectStore, Clock], ManifestChain] = ManifestChain,
) -> Iterator[str]:
    """What goes wrong if an operator restores the damaged manifest before one of a rollback's calls up to its create.

    The rollback has to start again: its manifest would retain too few epochs, and might repeat a term.
    """
    for number in range(1, calls_of_a_rollback(flipped) + 1):
        world = World()
        whole = world.store.get(manifest_name(Version(6)))
        flipped(world.store, Version(6))
        store = FaultyStore(world.store)
        store.decide = AtCall(number, partial(world.store.put, manifest_name(Version(6)), whole))
        mine = open_manifest(chains(store, world.clock), back_to(4))
        if Epoch(6) not in {entry.epoch for entry in mine.retained}:
            yield f"{number=}, retained={mine.retained}"
        if store.calls[number - 1].verb == "put_if_absent":
            return


def test_a_rollback_starts_again_if_the_damaged_manifest_is_restored_meanwhile() -> None:
    assert list(restored_at_every_call()) == []


class NoDigest(ManifestChain):
    """A mutant: where the parent cannot be read it is taken to be there."""

    def _is_still_broken(self, end: BrokenEnd, store: RetryingStore) -> bool:
        return True


def test_a_parent_check_that_passes_over_what_cannot_be_read_is_caught() -> None:
    assert list(restored_at_every_call(NoDigest))


class SeesNothingLater(ManifestChain):
    """A mutant: it does not look for later manifests."""

    def _has_later(self, version: Version, store: RetryingStore) -> bool:
        return False


class ChecksNothing(NoDigest, SeesNothingLater):
    pass


def test_a_sleeper_that_checks_nothing_after_its_create_is_caught() -> None:
    assert list(slept_at_every_call(flipped, ChecksNothing))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.LATE])
def test_a_store_that_does_not_answer_one_call_makes_no_second_history(damage: Damage, fault: Fault) -> None:
    for number in range(1, calls_of_a_rollback(damage) + 1):
        world = World()
        damage(world.store, Version(6))
        store = FaultyStore(world.store, AtCall(number, fault=fault))
        shown = open_manifest(ManifestChain(store, world.clock), back_to(4))
        store.land()
        assert world.chain.newest() == shown, number
        assert world.versions() == [1, 2, 3, 4, 5, 6, 7], number


class Killed(BaseException):
    pass


@pytest.mark.parametrize("damage", [*DAMAGES, two_gone])
def test_a_crash_at_any_call_leaves_the_rollback_or_a_chain_as_broken_as_before(damage: Damage) -> None:
    def killed() -> None:
        raise Killed

    for number in range(1, calls_of_a_rollback(damage) + 1):
        world = World()
        damage(world.store, Version(6))
        store = FaultyStore(world.store, AtCall(number, killed))
        with pytest.raises(Killed):
            open_manifest(ManifestChain(store, world.clock), back_to(3))
        end = world.chain.end()
        assert isinstance(end, BrokenEnd) or (end is not None and end.kind is ManifestKind.ROLLBACK)
        shown = world.open(back_to(3, "run-10")).manifest
        assert (shown.epoch, shown.abandoned[-1].last) == (3, shown.parent if isinstance(end, BrokenEnd) else 6)
        assert world.chain.newest() == shown


def test_the_store_that_never_answers_is_no_damage(world: World) -> None:
    flipped(world.store, Version(6))
    store = FaultyStore(world.store, lambda _: Fault.LOST_REQUEST)
    with pytest.raises(StoreUnavailableError):
        ManifestChain(store, world.clock, Patience(total_ms=10, pause_ms=5)).end()


def test_the_mark_of_a_lost_manifest_is_readable() -> None:
    assert b"was lost" in damaged_end.LOST
