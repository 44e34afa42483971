"""A fork where something comes in between: a crash, a collector, another fork, a writer."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest

from dagster_ckpt.errors import CorruptStateError, FencedError, InvalidPipelineError, StoreUnavailableError
from dagster_ckpt.ids import FIRST, StreamUuid, Version
from dagster_ckpt.protocol.epochs.pin import ForkId, Pin, decode_pin, encode_pin
from dagster_ckpt.protocol.manifest.manifest import Backfill, BackfillStatus, Manifest, ManifestKind
from dagster_ckpt.protocol.object_names import folder_of, fork_pin_name, manifest_name, name_in_stream, pin_name
from dagster_ckpt.protocol.transitions.edits import NO_OWNER
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.operations.fork import fork_empty, fork_stream
from dagster_ckpt.storage.retention_refs.ancestors import check_ancestors, with_ancestors
from dagster_ckpt.storage.retention_refs.pins import read_pins
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.stores.retry import Patience
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.worlds.clock import StillClock
from tests.worlds.faulty_store import Call, Fault, FaultyStore
from tests.worlds.streams import an_edit, an_opening

ORIGIN, FORK = "flights/delay_by_carrier", "dev/fork"
GRACE_MS = 60_000
IMPATIENT = Patience(total_ms=10, pause_ms=50, pause_ms_max=50)


class Killed(BaseException):
    """The process is no more."""


@dataclass
class World:
    """A store with one stream of three epochs: 2, 3 and 4."""

    clock: StillClock = field(default_factory=StillClock)
    root: MemoryObjectStore = field(init=False)
    writer: StreamWriter = field(init=False)
    writers: dict[str, StreamWriter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.root = MemoryObjectStore(uuid4().hex, self.clock)
        self.writer = self.opened(ORIGIN, an_opening(retained=5))
        self.commit(self.writer, 3)

    def opened(self, stream: str, opening: Opening) -> StreamWriter:
        opening = replace(opening, stream=stream, owner=replace(opening.owner, asset_key=stream))
        writer = open_stream(self.folder(stream), opening, self.clock)
        writer.heartbeat.stop()
        self.writers[stream] = writer
        return writer

    def commit(self, writer: StreamWriter, epochs: int = 1) -> None:
        for _ in range(epochs):
            edit = an_edit(writer.manifest)
            for ack in edit.acks:
                for name in [run.path for table in ack.tables for run in table.runs if run.ancestor is None]:
                    writer.store.put_if_absent(name, b"a run")
                for change in ack.changes:
                    writer.store.put_if_absent(change.path, b"changes")
            writer.commit(edit)
            self.clock.sleep_ms(1_000)

    def folder(self, stream: str) -> ObjectStore:
        return folder_store(self.root, folder_of(stream.split("/")))

    def chain(self, stream: str = ORIGIN, root: ObjectStore | None = None) -> ManifestChain:
        return ManifestChain(folder_store(root or self.root, folder_of(stream.split("/"))), self.clock, IMPATIENT)

    def shown(self, epoch: int) -> Manifest:
        return self.chain().read(Version(epoch))

    def fork(self, epoch: int = 3, stream: str = FORK, root: ObjectStore | None = None) -> Manifest:
        root = root or self.root
        return fork_stream(root, self.chain(root=root), self.shown(epoch), stream)

    def pins(self, stream: str = ORIGIN) -> list[Pin]:
        return read_pins(self.chain(stream))

    def forks(self, stream: str = ORIGIN) -> set[StreamUuid]:
        """Those for which there are pins."""
        return {pin.fork.uuid for pin in self.pins(stream) if pin.fork is not None}

    def collect(self, stream: str) -> None:
        self.clock.sleep_ms(GRACE_MS + 2_000)
        writer = self.writers.get(stream)
        Collector(self.chain(stream), self.root, GRACE_MS).collect(None if writer is None else writer.term)

    def is_whole(self, manifest: Manifest) -> bool:
        store = with_ancestors(self.folder(manifest.stream), self.root, manifest.ancestors)
        return all(store.exists(run.name) for table in manifest.runs.values() for runs in table for run in runs)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.writer.close("the test is over")


def _creates_the_fork(call: Call) -> bool:
    return call == Call("put_if_absent", f"{folder_of(FORK.split('/'))}/{manifest_name(FIRST)}")


def killed_at(world: World, is_it: Callable[[Call], bool]) -> ObjectStore:
    """The store, for a process that dies right before the first such call."""

    def decide(call: Call) -> Fault:
        if is_it(call):
            raise Killed
        return Fault.NONE

    return FaultyStore(world.root, decide)


def test_a_forks_first_manifest_names_only_what_is_its_origins_and_pinned(world: World) -> None:
    first = world.fork(3)
    assert world.chain(FORK).newest() == first
    assert (first.kind, first.epoch, first.owner, first.sinks) == (ManifestKind.FORK, 1, NO_OWNER, ())
    [pin] = world.pins()
    assert (pin.name, pin.manifest) == (fork_pin_name(first.uuid), world.shown(3))
    assert pin.fork == ForkId(FORK, first.uuid)
    lease = read_lease(world.folder(FORK), first.term)
    assert lease is not None
    assert lease.closed == "forked from epoch 3"


def test_a_crash_after_the_pin_leaves_an_orphan_that_the_next_fork_to_that_name_takes_away(world: World) -> None:
    with pytest.raises(Killed):
        world.fork(3, root=killed_at(world, _creates_the_fork))
    [orphan] = world.pins()
    assert orphan.fork is not None
    assert orphan.fork.stream == FORK
    assert world.chain(FORK).newest() is None
    other = world.fork(4, "dev/other")
    assert orphan in world.pins(), "it may be of one that is still at work"
    first = world.fork(3)
    assert world.forks() == {first.uuid, other.uuid}


def test_an_epoch_that_only_an_orphan_keeps_can_be_forked_again(world: World) -> None:
    with pytest.raises(Killed):
        world.fork(2, root=killed_at(world, _creates_the_fork))
    [orphan] = world.pins()
    world.commit(world.writer, 40)
    world.collect(ORIGIN)
    first = fork_stream(world.root, world.chain(), orphan.manifest, FORK)
    world.collect(ORIGIN)
    assert world.is_whole(first)
    assert world.forks() == {first.uuid}


def test_a_crash_before_the_lease_leaves_a_fork(world: World) -> None:
    with pytest.raises(Killed):
        world.fork(3, root=killed_at(world, lambda call: "/lease/" in call.name and call.verb == "put"))
    first = world.chain(FORK).newest()
    assert first is not None
    with pytest.raises(InvalidPipelineError, match="of this name already"):
        world.fork(3)
    assert world.forks() == {first.uuid}


def test_an_epoch_that_is_retired_meanwhile_is_refused_and_nothing_is_left(world: World) -> None:
    shown = world.shown(2)
    world.commit(world.writer, 10)
    with pytest.raises(InvalidPipelineError, match="retired while it was forked"):
        fork_stream(world.root, world.chain(), shown, FORK)
    assert world.pins() == []
    assert world.chain(FORK).newest() is None


def test_the_first_to_create_the_stream_has_the_name(world: World) -> None:
    def decide(call: Call) -> Fault:
        if _creates_the_fork(call):
            world.opened(FORK, an_opening()).close("done")
        return Fault.NONE

    with pytest.raises(InvalidPipelineError, match="of this name already"):
        world.fork(3, root=FaultyStore(world.root, decide))
    assert world.pins() == []
    newest = world.chain(FORK).newest()
    assert newest is not None
    assert newest.kind is ManifestKind.OPEN


def test_a_store_that_does_not_answer_leaves_the_pin(world: World) -> None:
    def decide(call: Call) -> Fault:
        return Fault.LOST_REPLY if _creates_the_fork(call) else Fault.NONE

    with pytest.raises(StoreUnavailableError):
        world.fork(3, root=FaultyStore(world.root, decide))
    assert len(world.pins()) == 1, "for the fork may be there, or come"


def test_a_stream_that_is_still_being_filled_is_not_forked(world: World) -> None:
    shown = replace(world.shown(3), backfill=Backfill(BackfillStatus.CREATING, "1/8"))
    with pytest.raises(InvalidPipelineError, match="still being filled"):
        fork_stream(world.root, world.chain(), shown, FORK)
    assert world.pins() == []


def test_a_fork_of_a_fork_pins_in_both_and_is_whole_when_both_have_gone_on(world: World) -> None:
    first = world.fork(3)
    writer = world.opened(FORK, an_opening("run-f", retained=1))
    world.commit(writer)
    second = fork_stream(world.root, world.chain(FORK), writer.manifest, "dev/second")
    assert [each.uuid for each in second.ancestors] == [world.writer.manifest.uuid, first.uuid]
    assert len(world.pins()) == 2
    assert world.forks(FORK) == {second.uuid}
    for each in (world.writer, writer):
        world.commit(each, 30)
    for _ in range(3):
        for stream in (ORIGIN, FORK, "dev/second"):
            world.collect(stream)
    assert world.is_whole(second)
    assert world.is_whole(writer.manifest)
    writer.close("done")


def test_a_fork_of_a_fork_whose_pin_was_removed_is_refused(world: World) -> None:
    first = world.fork(3)
    world.folder(ORIGIN).delete(pin_name(fork_pin_name(first.uuid)))
    with pytest.raises(CorruptStateError, match="was removed"):
        fork_stream(world.root, world.chain(FORK), first, "dev/second")
    assert world.pins(FORK) == []
    assert world.chain("dev/second").newest() is None


def test_an_empty_fork_can_be_opened_by_any_pipeline(world: World) -> None:
    fork_empty(world.root, world.chain(), world.writer.manifest, FORK)
    assert world.pins() == []
    opening = an_opening("run-f")
    tables = (replace(opening.pipeline.tables[0], name="another", keys=("delay",)),)
    other = replace(opening.pipeline, keys=("delay",), tables=tables)
    writer = world.opened(FORK, replace(opening, pipeline=other))
    assert (writer.manifest.epoch, list(writer.manifest.runs)) == (0, ["another"])
    writer.close("done")


def test_nothing_of_an_ancestor_can_be_written(world: World) -> None:
    first = world.fork(3)
    store = with_ancestors(world.folder(FORK), world.root, first.ancestors)
    name = name_in_stream("state/x", world.writer.manifest.uuid)
    for write in (lambda: store.put(name, b""), lambda: store.put_if_absent(name, b""), lambda: store.delete(name)):
        with pytest.raises(AssertionError, match="read-only"):
            write()
    with pytest.raises(CorruptStateError, match="not among its ancestors"):
        store.exists(name_in_stream("state/x", StreamUuid("another")))
    assert with_ancestors(world.folder(ORIGIN), world.root, ()).url == world.folder(ORIGIN).url


def test_a_removed_or_replaced_origin_is_detected_when_the_fork_is_opened(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.fork(3)
    check_ancestors(world.root, world.clock, first, IMPATIENT)
    world.folder(ORIGIN).delete(pin_name(fork_pin_name(first.uuid)))
    check_ancestors(world.root, world.clock, first, IMPATIENT)
    assert "fork's files was removed" in caplog.text
    for name in list(world.folder(ORIGIN).list("")):
        world.folder(ORIGIN).delete(name)
    with pytest.raises(CorruptStateError, match="was removed: restore"):
        check_ancestors(world.root, world.clock, first, IMPATIENT)
    world.opened(ORIGIN, an_opening()).close("done")
    with pytest.raises(CorruptStateError, match="was removed and created again"):
        check_ancestors(world.root, world.clock, first, IMPATIENT)


def test_a_live_writer_of_the_origin_goes_on(world: World) -> None:
    world.fork(3)
    world.commit(world.writer)
    world.writer.check_term()


def test_two_writers_of_a_fork_fence_each_other(world: World) -> None:
    world.fork(3)
    one = world.opened(FORK, an_opening("run-f"))
    one.close("done")
    world.opened(FORK, an_opening("run-g"))
    with pytest.raises(FencedError):
        one.check_term()


def test_a_users_pin_has_the_bytes_it_always_had_and_a_forks_names_the_fork(world: World) -> None:
    world.fork(3)
    [pin] = world.pins()
    assert decode_pin(encode_pin(pin), "p") == pin
    plain = replace(pin, fork=None)
    assert decode_pin(encode_pin(plain), "p") == plain
    assert len(encode_pin(plain)) < len(encode_pin(pin))
