"""`python -m tests.damage`: many damaged objects; what came of them is appended to a file, so that runs add up."""

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from scripts import proofs
from tests.damage.campaign import damaged

PROOF = "damaged or deleted objects"


@click.command()
@click.option("--seeds", default=1, show_default=True, help="How often every object is damaged in every way.")
@click.option("--results", default=".work/damage.jsonl", show_default=True, type=click.Path(path_type=Path))
def main(seeds: int, results: Path) -> None:
    """Damage objects of made streams; the exit status is 1 where that led to anything but a clear error or nothing."""
    results.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    first = max((line["seed"] for line in lines), default=-1) + 1
    wrong = 0
    counts: Counter[str] = Counter()
    for seed in range(first, first + seeds):
        with tempfile.TemporaryDirectory() as folder:
            outcome = damaged(seed, Path(folder))
        with results.open("a") as file:
            file.write(outcome.line() + "\n")
        wrong += len(outcome.wrong)
        counts.update(outcome.counts)
        click.echo(f"seed {seed}: {outcome.counts['cases']} cases in {outcome.seconds:.0f} s")
        for one in outcome.wrong:
            click.echo(f"    WRONG: {one}")
        lines.append(json.loads(outcome.line()))
    for what in ("cases", "an error that names it", "without effect", "gone back over"):
        click.echo(f"{sum(line['counts'].get(what, 0) for line in lines):>8,} {what}")
    click.echo(f"{sum(len(line['wrong']) for line in lines):>8,} wrong, of all runs in {results}")
    if not wrong and proofs.asked_for():
        named, nothing = counts["an error that names it"], counts["without effect"]
        proofs.publish(
            PROOF,
            f"{counts['cases']:,} cases: {named:,} clear errors that name the object, {nothing:,} without effect, "
            "no wrong row",
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
