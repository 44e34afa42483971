"""`python -m tests.simulation`: many worlds, or one of them again."""

import sys
from pathlib import Path

import click
from rich.console import Console

from tests.simulation.campaign import campaign, story_of
from tests.simulation.world import World


@click.command()
@click.option("--seeds", default=1_000, show_default=True, help="How many seeds, each a world.")
@click.option("--first", type=int, help="The first of them. [default: the one after all in the results file]")
@click.option("--processes", default=2, show_default=True, help="How many at once.")
@click.option("--rebuilds", is_flag=True, help="Run only the worlds with a rebuild, about one in eight.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    help="[default: .work/simulation.jsonl, with --rebuilds .work/simulation-rebuilds.jsonl]",
)
@click.option("--seed", type=int, help="One world only, with all its steps.")
def main(seeds: int, first: int | None, processes: int, rebuilds: bool, results: Path | None, seed: int | None) -> None:
    """Simulate worlds in which everything goes wrong; the exit code is 1 where a promise was broken."""
    console = Console()
    if seed is None:
        lines = results or Path(f".work/simulation{'-rebuilds' if rebuilds else ''}.jsonl")
        sys.exit(0 if campaign(seeds, first, processes, lines, console, rebuilds) else 1)
    outcome = World(seed).run()
    console.print(story_of(outcome, len(outcome.steps)), markup=False, highlight=False, soft_wrap=True)
    sys.exit(0 if outcome.rule is None else 1)


if __name__ == "__main__":
    main()
