"""`python -m tests.chaos` kills a Dagster with streams at work over and over; `--summary` shows what came of it."""

import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import facts
from benchmarks.report.headlines import publish
from scripts import proofs
from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import LANES, LANES_VARIABLE, USUAL
from tests.chaos.progress import Counting, counting
from tests.chaos.results import append, headline, lines_of, read, summary
from tests.chaos.rounds import Outcome, Rounds
from tests.chaos.services import ROOT
from tests.chaos.strikes import LANES_OF, ON_SPARK, Kind

WORK = ROOT / ".work"
PROOF = "real kills, compared with batch"
KILLS_A_ROUND = 10

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--kills", default=100, show_default=True, help="How many in all.")
@click.option("--seed", type=int, default=None, help="Chooses kinds, lanes and moments; drawn and shown if not given.")
@click.option(
    "--overlap", default=0.25, show_default=True, help="How often, of one, the next does not wait for recovery."
)
@click.option(
    "--lanes", default=",".join(USUAL), show_default=True, help=f"The streams under fire, of {', '.join(LANES)}."
)
@click.option("--kinds", default="", help="Only these kinds of kill, such as worker; all without it.")
@click.option("--results", type=click.Path(path_type=Path), default=WORK / "chaos.jsonl", help="Appended to.")
@click.option("--summary", "only_summary", is_flag=True, help="Show what is in the results, and kill nothing.")
@click.option("--publish", "publishes", is_flag=True, help="Put the newest commit's kills on the pages that show them.")
def main(
    kills: int,
    seed: int | None,
    overlap: float,
    lanes: str,
    kinds: str,
    results: Path,
    only_summary: bool,
    publishes: bool,
) -> None:
    """Kill processes at random moments and compare every stream's table with a batch computation after each round."""
    # A plain kill goes the way of Ctrl-C, past all that has to be ended; so does one that is started with &.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    wrong = 0
    if not (only_summary or publishes):
        seed = random.randrange(2**32) if seed is None else seed
        wrong = _kill_here(kills, seed, overlap, lanes.split(","), _possible(lanes, kinds), results)
    console.print(summary(read(results)))
    if publishes and (found := headline(read(results))):
        publish(ROOT, found)
        kills_found = found["kills"]
        result = f"{kills_found.figure}, no row lost or doubled"
        proofs.publish(PROOF, result, f"{kills_found.date}, on {kills_found.commit}")
    if wrong:
        sys.exit(1)


def _possible(lanes: str, kinds: str) -> list[Kind]:
    """The kinds asked for, all without any, that one of the lanes can meet on one host."""
    there = [kind for kind in Kind if kind not in ON_SPARK]
    asked = set(kinds.split(",") if kinds else there)
    possible = [kind for kind in there if kind in asked and set(LANES_OF[kind]).intersection(lanes.split(","))]
    if not possible or not asked <= set(there):
        raise click.UsageError(
            f"none of these lanes meets such kills. lanes={lanes}, kinds={kinds} of {', '.join(there)}"
        )
    return possible


def _kill_here(
    kills: int, seed: int, overlap: float, lanes: Sequence[str], possible: Sequence[Kind], results: Path
) -> int:
    """Kill in a folder of its own, which stays where anything went wrong."""
    place = WORK / "chaos" / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    place.mkdir(parents=True)
    console.print(f"seed {seed}; the cluster and its logs are in {place.relative_to(ROOT)}")
    try:
        wrong = kill(kills, seed, overlap, lanes, possible, place, results)
    except BaseException:
        console.print(f"[red]stopped[/]; all there is to look at is kept: {place.relative_to(ROOT)}")
        raise
    if wrong:
        console.print(f"[red]{wrong} rows are wrong[/]; kept: {place.relative_to(ROOT)}")
    else:
        shutil.rmtree(place)
    return wrong


def kill(
    kills: int,
    seed: int,
    overlap: float,
    lanes: Sequence[str],
    possible: Sequence[Kind],
    place: Path,
    results: Path,
) -> int:
    """Make so many kills in rounds; returns how many rows were lost or doubled. Stops after the first such round."""
    about = {"seed": seed, "overlap": overlap, "commit": facts.commit(ROOT)}
    environment = {LANES_VARIABLE: ",".join(lanes)}
    with Cluster(place, environment) as cluster, Feeder(place) as feeder, counting(console, kills) as progress:
        rounds = Rounds(cluster, feeder, random.Random(seed), overlap, lanes, tell=progress.tell)
        return play(rounds, in_rounds(kills, possible, random.Random(seed)), about, results, progress)


def play(
    rounds: Rounds,
    kinds_of_rounds: Iterable[Sequence[Kind]],
    about: Mapping[str, object],
    results: Path,
    progress: Counting,
) -> int:
    """Make kills on a cluster, in rounds of these kinds; returns how many rows were lost or doubled."""
    began_s = time.monotonic()
    rounds.begin()
    progress.tell(f"all lanes work after {time.monotonic() - began_s:.0f} s")
    for number, kinds in enumerate(kinds_of_rounds):
        outcome = Outcome()
        try:
            rounds.play(kinds, outcome)
        except AssertionError as error:
            append(lines_of(outcome, {**about, "round": number, "broken": str(error)}), results)
            raise
        append(lines_of(outcome, {**about, "round": number}), results)
        progress.advance(len(kinds))
        progress.tell(f"round {number}: {len(kinds)} kills, lost={outcome.lost}, doubled={outcome.doubled}")
        progress.tell(f"events in Dagster, which add up: {outcome.events}")
        if outcome.lost or outcome.doubled:
            return outcome.lost + outcome.doubled
    return 0


def in_rounds(kills: int, possible: Sequence[Kind], chance: random.Random) -> Iterator[list[Kind]]:
    """Each kind in turn, in an order of chance, cut into rounds."""
    kinds: list[Kind] = []
    for first in range(0, kills, KILLS_A_ROUND):
        count = min(KILLS_A_ROUND, kills - first)
        while len(kinds) < count:
            kinds += chance.sample(possible, len(possible))
        yield kinds[:count]
        del kinds[:count]


if __name__ == "__main__":
    main()
