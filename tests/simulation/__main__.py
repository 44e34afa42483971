"""`python -m tests.simulation`: many worlds, or one of them again."""

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.simulation.campaign import campaign, story_of
from tests.simulation.world import World


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many worlds.")
@click.option("--first", type=int, help="The first of them. [default: the one after all in the results file]")
@click.option("--processes", default=2, show_default=True, help="How many at once.")
@click.option("--results", default=".work/simulation.jsonl", show_default=True, type=click.Path(path_type=Path))
@click.option("--seed", type=int, help="One world only, with all its steps.")
def main(seeds: int, first: int | None, processes: int, results: Path, seed: int | None) -> None:
    """Simulate worlds in which everything goes wrong; the exit code is 1 where a promise was broken."""
    console = Console()
    if seed is None:
        sys.exit(0 if campaign(seeds, first, processes, results, console) else 1)
    outcome = World(seed).run()
    console.print(story_of(outcome, len(outcome.steps)), markup=False, highlight=False, soft_wrap=True)
    sys.exit(0 if outcome.rule is None else 1)


if __name__ == "__main__":
    main()
