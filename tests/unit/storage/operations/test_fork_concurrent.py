"""A fork at each of whose calls of the store something happens: its epoch is retired and collected, or it is killed."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from unittest.mock import patch

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.epochs import retention
from dagster_ckpt.protocol.epochs.pin import Pin
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.operations import collector as collector_module
from dagster_ckpt.storage.operations import fork as fork_module
from dagster_ckpt.storage.retention_refs.pins import settled_pins
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.unit.storage.operations.test_fork import FORK, ORIGIN, Killed, World
from tests.worlds.faulty_store import Call, Fault, FaultyStore

RETIRED_AFTER = 9

pytestmark = pytest.mark.usefixtures("few_are_kept")


@pytest.fixture
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MANIFESTS_KEPT", 2)


def forked_while(happens: Callable[[World], None]) -> Iterator[tuple[World, Manifest | None]]:
    """For each call that a fork makes: the world where this happened right before it, and the fork if there is one."""
    for at in count():
        world, calls = World(), count()

        def decide(call: Call, world: World = world, at: int = at, calls: "count[int]" = calls) -> Fault:
            if next(calls) == at:
                happens(world)
            return Fault.NONE

        shown, first = world.shown(3), None
        try:
            root = FaultyStore(world.root, decide)
            first = fork_module.fork_stream(root, world.chain(root=root), shown, FORK)
        except (InvalidPipelineError, Killed):
            pass
        if next(calls) <= at:
            return
        yield world, first
        world.writer.close("the test is over")


def retire(world: World) -> None:
    world.commit(world.writer, RETIRED_AFTER)
    world.collect(ORIGIN)


def kill(world: World) -> None:
    raise Killed


def broken_forks() -> Iterator[int]:
    """At which calls an epoch can be retired so that a fork is there which misses files."""
    for at, (world, first) in enumerate(forked_while(retire)):
        retire(world)
        if first is None:
            assert world.pins() == [], "one that was refused leaves nothing"
            assert world.chain(FORK).newest() is None
        elif not world.is_whole(first):
            yield at


def test_whenever_the_epoch_is_retired_the_fork_is_whole_or_refused() -> None:
    assert list(broken_forks()) == []


def test_whenever_it_is_killed_the_fork_is_whole_or_not_there_and_can_be_made_again() -> None:
    came = set()
    for world, _ in forked_while(kill):
        there = world.chain(FORK).newest()
        came.add((there is not None, bool(world.pins())))
        if there is None:
            there = fork_module.fork_stream(world.root, world.chain(), world.shown(3), FORK)
        retire(world)
        assert world.is_whole(there)
        assert world.forks() == {there.uuid}, "what the killed one has left is gone"
    assert came == {(False, False), (False, True), (True, True)}


def no_pin(self: object, store: ObjectStore, manifest: Manifest, is_kept: Callable[[], bool]) -> None:
    pass


def pins_unproved(self: fork_module._Fork, store: ObjectStore, manifest: Manifest, is_kept: Callable[[], bool]) -> None:
    pins(self, store, manifest, lambda: True)


def creates_before_it_pins(self: fork_module._Fork, shown: Manifest) -> Manifest:
    with patch.object(self, "_pin", partial(no_pin, self)):
        first = forks(self, shown)
    self._pin(self._origin.store, shown, lambda: True)
    return first


def no_forks_pins(*words: object) -> list[Pin]:
    return [pin for pin in reads_pins(*words) if pin.fork is None]  # type: ignore[arg-type]


pins, forks, reads_pins = fork_module._Fork._pin, fork_module._Fork.of, settled_pins


@pytest.mark.parametrize(
    ("where", "name", "mutant"),
    [
        (fork_module._Fork, "_pin", no_pin),
        (fork_module._Fork, "_pin", pins_unproved),
        (fork_module._Fork, "of", creates_before_it_pins),
        (collector_module, "settled_pins", no_forks_pins),
    ],
    ids=["no pin", "a pin that is not proved", "a pin after the manifest", "a collector that ignores forks' pins"],
)
def test_a_rule_left_out_is_caught(where: object, name: str, mutant: object) -> None:
    with patch.object(where, name, mutant):
        assert next(broken_forks(), None) is not None
