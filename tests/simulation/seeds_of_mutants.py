"""For each rule left out (`mutants.py`), the first world that catches it, in `seeds_of_mutants.json`.

`python -m tests.simulation.seeds_of_mutants` writes that file after a change of the protocol or of the worlds; two
minutes of a core.
"""

import json
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import World

_FILE = Path(__file__).with_suffix(".json")
SEEDS = 2_000


def known_seeds() -> dict[str, int]:
    """The seed that was found for each name of `MUTANTS`."""
    seeds: dict[str, int] = json.loads(_FILE.read_text())
    return seeds


def main() -> None:
    """Seeds that still catch their rule stay."""
    known = known_seeds()
    found = {name: _first_caught(mutant, known.get(name)) for name, mutant in track(MUTANTS.items())}
    _FILE.write_text(json.dumps({name: seed for name, seed in found.items() if seed is not None}, indent=2) + "\n")
    console = Console(highlight=False, soft_wrap=True)
    for name in (name for name, seed in found.items() if seed is None):
        console.print(f"none of {SEEDS} worlds catches: {name}")
    console.print(f"{sum(known.get(name) != seed for name, seed in found.items())} of {len(found)} seeds are new")


def _first_caught(mutant: Mutant, known: int | None) -> int | None:
    searched = range(mutant.first_seed, mutant.first_seed + SEEDS)
    seeds = searched if known is None else (known, *searched)
    with mutant.applied():
        return next((seed for seed in seeds if World(seed, mutant.parts).run().rule is not None), None)


if __name__ == "__main__":
    main()
