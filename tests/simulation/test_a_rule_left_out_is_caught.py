"""The oracle bites: whatever rule is left out of the product, some world shows it."""

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

OTHER_SEEDS = range(600)


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_rule_left_out_is_caught(mutant: Mutant) -> None:
    # When the protocol asks the store other questions, another world will catch it: find it, and write it down there.
    assert any(_goes_wrong(mutant, seed) for seed in (*mutant.seeds, *OTHER_SEEDS))


def _goes_wrong(mutant: Mutant, seed: int) -> bool:
    with mutant.applied():
        return World(seed, mutant.parts).run().rule is not None
