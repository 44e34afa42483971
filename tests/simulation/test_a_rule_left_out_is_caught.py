"""The oracle bites: whatever rule is left out of the product, some world shows it."""

import re

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.seeds_of_mutants import known_seeds
from tests.simulation.world import Parts, World

OTHER_SEEDS = 600


@pytest.mark.timeout(300)  # a search takes a minute and a half
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_left_out_is_caught(name: str) -> None:
    mutant, known = MUTANTS[name], known_seeds().get(name)
    # When the protocol asks the store other questions, or the worlds change, another world will catch it. The search
    # keeps the test true, and slow: `python -m tests.simulation.seeds_of_mutants` writes down what it finds.
    others = range(mutant.first_seed, mutant.first_seed + OTHER_SEEDS)
    seeds = others if known is None else (known, *others)
    caught_by = next((seed for seed in seeds if _goes_wrong(mutant, seed)), None)
    assert caught_by is not None
    assert World(caught_by, Parts()).run().rule is None, "it goes wrong with the rule too"


def _goes_wrong(mutant: Mutant, seed: int) -> bool:
    with mutant.applied():
        outcome = World(seed, mutant.parts).run()
    # A mutant that does not fit the code that calls it proves nothing.
    assert not re.search(r"^(Type|Attribute|Name)Error", outcome.why, re.MULTILINE), outcome.why
    return outcome.rule is not None
