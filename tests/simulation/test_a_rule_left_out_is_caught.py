"""The oracle bites: whatever rule is left out of the product, some world shows it."""

import re

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import Parts, World

OTHER_SEEDS = 600


@pytest.mark.timeout(300)  # a search takes a minute and a half
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_rule_left_out_is_caught(mutant: Mutant) -> None:
    # When the protocol asks the store other questions, or the worlds change, another world will catch it. The search
    # keeps the test true, and slow: write down what `python -m tests.simulation.seeds_of_mutants` finds.
    others = range(mutant.first_seed, mutant.first_seed + OTHER_SEEDS)
    caught_by = next((seed for seed in (*mutant.seeds, *others) if _goes_wrong(mutant, seed)), None)
    assert caught_by is not None
    assert World(caught_by, Parts()).run().rule is None, "it goes wrong with the rule too"


def _goes_wrong(mutant: Mutant, seed: int) -> bool:
    with mutant.applied():
        outcome = World(seed, mutant.parts).run()
    # A mutant that does not fit the code that calls it proves nothing.
    assert not re.search(r"^(Type|Attribute|Name)Error", outcome.why, re.MULTILINE), outcome.why
    return outcome.rule is not None
