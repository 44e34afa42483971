"""A pin keeps its epoch for certain once it was validated: only then is anything built on it."""

from collections.abc import Callable, Iterator

import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.ids import Nonce
from dagster_ckpt.protocol.epochs.pin import Pin, encode_pin
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
from dagster_ckpt.protocol.object_names import VERDICTS, pin_name, verdict_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.fork import fork_stream
from dagster_ckpt.storage.retention_refs.pins import find_pin, is_kept, read_pins, remove_pin, write_pin
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import check_can_go_back
from tests.worlds.collected_stream import FOLDER, IMPATIENT, RETAINED, World
from tests.worlds.faulty_store import Call, Fault, FaultyStore


class Killed(BaseException):
    """The process is no more."""


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.writer.close("the test is over")


def _when(world: World, meets: Callable[[Call], bool], happens: Callable[[], object]) -> ManifestChain:
    """A pinner's chain: before the call that meets the condition, once, something happens."""
    pending = [happens]

    def decide(call: Call) -> Fault:
        if pending and meets(call):
            pending.pop()()
        return Fault.NONE

    return ManifestChain(FaultyStore(world.store, decide), world.clock, IMPATIENT)


def _judges(call: Call) -> bool:
    return call.verb == "put_if_absent" and call.name.startswith(f"{VERDICTS}/")


def _kill() -> None:
    raise Killed


def _killed_before_the_verdict(world: World, epoch: Retained) -> Pin:
    with pytest.raises(Killed):
        write_pin(_when(world, _judges, _kill), "p", epoch)
    pin = find_pin(world.chain, "p")
    assert pin is not None
    return pin


def _fork(world: World, shown: Manifest) -> Manifest:
    return fork_stream(world.root, world.chain, shown, "dev/fork")


def test_a_pin_that_was_validated_is_gone_back_to_and_forked_long_after(world: World) -> None:
    kept = world.commit()
    pin = write_pin(world.chain, "p", kept.retained[-1])
    assert is_kept(world.chain, pin)
    world.commit(RETAINED)
    assert check_can_go_back(world.chain, world.writer.manifest, kept.epoch) == kept
    assert _fork(world, kept).consumed == kept.consumed


def test_nothing_is_built_on_a_pin_whose_writer_was_killed_before_it_was_validated(world: World) -> None:
    kept = world.commit()
    pin = _killed_before_the_verdict(world, kept.retained[-1])
    assert not is_kept(world.chain, pin)
    world.commit(RETAINED)
    with pytest.raises(InvalidPipelineError, match="neither retained nor pinned"):
        check_can_go_back(world.chain, world.writer.manifest, kept.epoch)
    with pytest.raises(InvalidPipelineError, match="retired while it was forked"):
        _fork(world, kept)
    assert [each.name for each in read_pins(world.chain)] == ["p"]


def test_the_same_call_again_validates_it_while_the_epoch_is_retained(world: World) -> None:
    kept = world.commit()
    pin = _killed_before_the_verdict(world, kept.retained[-1])
    assert write_pin(world.chain, "p", kept.retained[-1]) == pin
    assert is_kept(world.chain, pin)
    world.commit(RETAINED)
    assert write_pin(world.chain, "p", kept.retained[-1]) == pin  # and keeps it once it is retired


def test_of_two_verdicts_the_first_stands(world: World) -> None:
    """A writer sleeps between its look and its verdict. Another validates the pin, then the epoch is retired."""
    kept = world.commit().retained[-1]

    def another_validates_it() -> None:
        write_pin(world.chain, "p", kept)
        world.commit(RETAINED)

    pin = write_pin(_when(world, _judges, another_validates_it), "p", kept)
    assert is_kept(world.chain, pin)

    late = world.writer.manifest.retained[0]
    world.store.put_if_absent(pin_name("q"), encode_pin(Pin("q", 0, world.chain.read(late.version), nonce=Nonce("n"))))
    world.store.put_if_absent(verdict_name(Nonce("n")), b"late")
    with pytest.raises(InvalidPipelineError, match="retired while it was pinned"):
        write_pin(world.chain, "q", late)
    assert find_pin(world.chain, "q") is not None, "another's pin is not taken away"


def test_a_pin_that_came_too_late_is_gone_and_so_is_its_verdict_a_grace_period_later(world: World) -> None:
    asked = world.commit().retained[-1]
    sleeper = _when(world, lambda call: call.name == pin_name("p"), lambda: world.commit(RETAINED))
    with pytest.raises(InvalidPipelineError, match="retired while it was pinned"):
        write_pin(sleeper, "p", asked)
    assert find_pin(world.chain, "p") is None
    [verdict] = world.store.list(VERDICTS)
    assert world.store.get(verdict) == b"late"
    world.collect()
    assert list(world.store.list(VERDICTS)) == [verdict]
    world.wait()
    world.collect()
    assert list(world.store.list(VERDICTS)) == []


def test_a_verdict_stays_as_long_as_its_pin(world: World) -> None:
    pin = write_pin(world.chain, "p", world.commit().retained[-1])
    world.commit(RETAINED)
    world.wait()
    world.collect()
    assert is_kept(world.chain, pin)
    remove_pin(world.chain, "p")
    world.collect()
    assert list(world.store.list(VERDICTS)) == []


def test_a_damaged_verdict_is_told_of_and_keeps_the_pin(world: World) -> None:
    pin = write_pin(world.chain, "p", world.commit().retained[-1])
    world.store.put(verdict_name(pin.nonce), b"kebt")
    with pytest.raises(CorruptStateError, match=r"verdict on a pin is damaged.*object=verdicts/"):
        is_kept(world.chain, pin)
    assert find_pin(world.chain, "p") == pin


def _fork_killed_at(world: World, meets: Callable[[Call], bool], shown: Manifest) -> None:
    def decide(call: Call) -> Fault:
        if meets(call):
            raise Killed
        return Fault.NONE

    dying = FaultyStore(world.root, decide)
    with pytest.raises(Killed):
        fork_stream(dying, ManifestChain(folder_store(dying, FOLDER), world.clock, IMPATIENT), shown, "dev/dead")


def test_a_forks_pin_is_no_evidence_for_another_fork_before_it_was_validated(world: World) -> None:
    kept = world.commit()
    _fork_killed_at(world, lambda call: f"/{VERDICTS}/" in call.name, kept)
    world.commit(RETAINED)
    assert len(read_pins(world.chain)) == 1
    with pytest.raises(InvalidPipelineError, match="retired while it was forked"):
        _fork(world, kept)


def test_a_forks_pin_is_evidence_for_another_fork_once_it_was_validated(world: World) -> None:
    kept = world.commit()
    _fork_killed_at(
        world, lambda call: call.verb == "put_if_absent" and call.name.startswith("dev.dead/manifest/0"), kept
    )
    world.commit(RETAINED)
    assert _fork(world, kept).ancestors[-1].epoch == kept.epoch
