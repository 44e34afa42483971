"""Two or three writers and a collector on a store that loses requests and replies: at most one history comes of it.

Epochs are committed in one line, each built on the one before; none that a writer was told is committed is ever lost;
no number is used again; a fenced writer commits nothing. A crash can come before and after every call, and a pause can
be longer than retention.
"""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import FencedError
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.manifest import Manifest, ManifestKind
from dagster_ckpt.protocol.names import manifest_name
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.patience import Tries
from tests.worlds.faulty_store import FaultyStore
from tests.worlds.simulation import IMPATIENT, Burst, Oracle, Simulation, Turn, a_schedule

BURSTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50), st.sampled_from(Turn)), max_size=50)


def _is_one_history(truth: Oracle) -> bool:
    """No fault was seen, and what is there is what was committed, in one line."""
    history = [truth.history[version] for version in sorted(truth.history)]
    assert [manifest.version for manifest in history] == list(range(1, len(history) + 1))
    epochs = [manifest.epoch for manifest in history if manifest.kind is ManifestKind.EPOCH]
    assert len(set(epochs)) == len(epochs)
    assert all(before.term <= after.term for before, after in pairwise(history))
    assert max(epochs, default=Epoch(0)) <= len(history)
    return truth.faults == []


@settings(max_examples=40, deadline=None)
@given(BURSTS, st.integers(2, 3))
def test_whatever_goes_wrong_there_is_one_history(schedule: list[Burst], writers: int) -> None:
    truth = Simulation(schedule, writers).run()
    assert _is_one_history(truth), truth.faults


@pytest.mark.parametrize("seed", range(14))
def test_whatever_goes_wrong_in_worlds_of_different_character_there_is_one_history(seed: int) -> None:
    truth = Simulation(a_schedule(seed)).run()
    assert _is_one_history(truth), truth.faults


FOUND_BEFORE = {
    "a writer took version 1 away because the stream was trimmed while it slept": 289,
    "an epoch to go back to was retired while its opener looked": 19,
    "the same, twice": 169,
}


@pytest.mark.parametrize("seed", FOUND_BEFORE.values(), ids=FOUND_BEFORE.keys())
def test_what_went_wrong_once_never_does_again(seed: int) -> None:
    truth = Simulation(a_schedule(seed)).run()
    assert _is_one_history(truth), truth.faults


def test_the_simulation_reaches_deep_enough_to_mean_something() -> None:
    commits = freed = rollbacks = terms = 0
    for seed in range(8):
        simulation = Simulation(a_schedule(seed))
        truth = simulation.run()
        commits += simulation.commits
        freed += len(truth.freed)
        rollbacks += sum(manifest.kind is ManifestKind.ROLLBACK for manifest in truth.history.values())
        terms += len({manifest.term for manifest in truth.history.values()})
    assert commits > 400
    assert freed > 200
    assert rollbacks > 10
    assert terms > 80


def test_the_same_schedule_makes_the_same_history() -> None:
    first, second = Simulation(a_schedule(4)).run(), Simulation(a_schedule(4)).run()
    assert first.history == second.history


class NoParentCheck(ManifestChain):
    """A mutant: after a create it does not look whether its number had been freed."""

    def _check_parent(self, parent: Manifest | None, manifest: Manifest, tries: Tries) -> None:
        return


class ExistsIsMine(ManifestChain):
    """A mutant: what exists must be its own, from a try whose reply was lost."""

    def _created(self, manifest: Manifest, data: bytes, tries: Tries) -> bool:
        tries.until_answered(lambda: self.store.put_if_absent(manifest_name(manifest.version), data))
        return True


class TakesAwayWhatWasBuiltUpon(ManifestChain):
    """A mutant: a sleeper takes its manifest away also where others have gone on from it."""

    def _check_parent(self, parent: Manifest | None, manifest: Manifest, tries: Tries) -> None:
        try:
            super()._check_parent(parent, manifest, tries)
        except FencedError:
            self.store.delete(manifest_name(manifest.version))
            raise


class BelievesInVersion1(ManifestChain):
    """A mutant: it does not know that a stream can have been trimmed."""

    def _is_trimmed(self, tries: Tries) -> bool:
        return False


@pytest.mark.parametrize(
    ("mutant", "caught_by"),
    [(NoParentCheck, 0), (ExistsIsMine, 0), (TakesAwayWhatWasBuiltUpon, 289), (BelievesInVersion1, 52)],
)
def test_a_protocol_with_a_rule_left_out_is_caught(mutant: Callable[..., ManifestChain], caught_by: int) -> None:
    def chains(store: FaultyStore, clock: Clock) -> ManifestChain:
        return mutant(store, clock, IMPATIENT)

    # When the protocol asks the store other questions, another world will catch it: find it, and write it above.
    assert any(_goes_wrong(seed, chains) for seed in [caught_by, *range(400)])


def _goes_wrong(seed: int, chains: Callable[[FaultyStore, Clock], ManifestChain]) -> bool:
    try:
        return bool(Simulation(a_schedule(seed), chains=chains).run().faults)
    except AssertionError:
        return True  # the mutant broke something so badly that a rule or the simulation itself stopped it
