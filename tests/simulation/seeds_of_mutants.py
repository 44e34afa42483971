"""`python -m tests.simulation.seeds_of_mutants` finds for each rule left out the first worlds that catch it.

For `mutants.py`, after a change of the protocol or of the worlds; two minutes of a core.
"""

from itertools import islice

from rich.console import Console

from tests.simulation.mutants import MUTANTS
from tests.simulation.world import World

WANTED = 1
SEEDS = 1_000


def main() -> None:
    """One line for each rule, as soon as it is known. `*`: what is written down does not catch it any more."""
    console = Console(highlight=False, soft_wrap=True)
    for name, mutant in MUTANTS.items():
        with mutant.applied():
            known = tuple(seed for seed in mutant.seeds if World(seed, mutant.parts).run().rule is not None)
            searched = range(mutant.first_seed, mutant.first_seed + SEEDS)
            caught = (seed for seed in searched if World(seed, mutant.parts).run().rule is not None)
            found = known or tuple(islice(caught, WANTED))
        console.print(f"{'*' if not known else ' '} {name}: {', '.join(map(str, found)) or 'none'}")


if __name__ == "__main__":
    main()
