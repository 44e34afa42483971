"""`python -m tests.chaos.delivery` kills deliveries, streams and servers over and over, and compares destinations."""

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import facts
from tests.chaos.cluster import Cluster
from tests.chaos.delivery.fire import Outcome, Rounds
from tests.chaos.delivery.results import lines_of
from tests.chaos.delivery.targets import KAFKA_VARIABLE, POSTGRES_VARIABLE, TARGETS, TARGETS_VARIABLE
from tests.chaos.feeder import Feeder
from tests.chaos.progress import Counting, counting
from tests.chaos.results import append, read, summary
from tests.chaos.services import ROOT
from tests.servers.kafka import JARS, Broker
from tests.servers.postgres import Database
from tests.servers.processes import Killable

LOCATION = Path(__file__).with_name("location.py")
WORK = ROOT / ".work"
KILLS_A_ROUND = 10

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--kills", default=40, show_default=True, help="How many each destination meets.")
@click.option("--only", default="", metavar="NAMES", help=f"Some destinations: {','.join(TARGETS)}.")
@click.option("--seed", type=int, default=None, help="Chooses kinds and moments; drawn and shown if not given.")
@click.option("--results", type=click.Path(path_type=Path), default=WORK / "chaos-delivery.jsonl", help="Appended to.")
@click.option("--summary", "only_summary", is_flag=True, help="Show what is in the results, and kill nothing.")
def main(kills: int, only: str, seed: int | None, results: Path, only_summary: bool) -> None:
    """Kill deliveries, their streams and servers at random moments; compare every destination with batch."""
    for number in (signal.SIGINT, signal.SIGTERM):  # past all that has to be ended, as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    targets = [name.strip() for name in only.split(",") if name.strip()] or [*TARGETS]
    if unknown := [name for name in targets if name not in TARGETS]:
        raise click.UsageError(f"unknown destinations: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    wrong = 0
    if not only_summary:
        wrong = _kill_here(kills, targets, random.randrange(2**32) if seed is None else seed, results)
    for by in ("destination", "kind"):
        console.print(summary(read(results), by))
    if wrong:
        sys.exit(1)


def _kill_here(kills: int, targets: list[str], seed: int, results: Path) -> int:
    """Kill in a folder of its own, which stays where anything went wrong. How many rows are wrong."""
    place = WORK / "chaos" / f"delivery-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    place.mkdir(parents=True)
    shown = place.relative_to(ROOT)
    console.print(f"seed {seed}; the cluster and its logs are in {shown}")
    try:
        with counting(console, kills * len(targets)) as progress:
            wrong = _kill(kills, targets, seed, place, results, progress)
    except BaseException:
        console.print(f"[red]stopped[/]; kept: {shown}")
        raise
    if wrong:
        console.print(f"[red]{wrong} rows are wrong[/]; kept: {shown}")
    else:
        shutil.rmtree(place)
    return wrong


def _kill(kills: int, targets: list[str], seed: int, place: Path, results: Path, progress: Counting) -> int:
    """Kill in rounds; how many rows were lost or doubled. Stops after the first such round."""
    about = {"seed": seed, "commit": facts.commit(ROOT)}
    with _servers(targets, place) as (servers, environment), ExitStack() as at_the_end:
        environment[TARGETS_VARIABLE] = ",".join(targets)
        cluster = at_the_end.enter_context(Cluster(place, environment, LOCATION))
        feeder = at_the_end.enter_context(Feeder(place, files_per_second=1.0))
        rounds = Rounds(cluster, feeder, random.Random(seed), targets, servers, environment, progress.tell)
        began_s = time.monotonic()
        rounds.begin()
        progress.tell(f"all deliveries work after {time.monotonic() - began_s:.0f} s")
        for number, first in enumerate(range(0, kills, KILLS_A_ROUND)):
            count, outcome = min(KILLS_A_ROUND, kills - first), Outcome()
            try:
                rounds.play(count, outcome)
            except AssertionError as error:
                append(lines_of(outcome, {**about, "broken": str(error)}, number), results)
                raise
            append(lines_of(outcome, about, number), results)
            progress.advance(count * len(targets))
            wrong = sum(each.lost + each.doubled + each.other for each in outcome.wrong.values())
            progress.tell(f"round {number}: {len(outcome.kills)} kills, {wrong} rows wrong; {feeder.rows} rows so far")
            if wrong:
                return wrong
    return 0


@contextmanager
def _servers(targets: list[str], place: Path) -> Iterator[tuple[dict[str, Killable], dict[str, str]]]:
    """The servers that these destinations need, and the environment that has their addresses."""
    needed, servers, environment = {TARGETS[name].server for name in targets}, dict[str, Killable](), dict[str, str]()
    # PostgreSQL runs as another user where this one is root, who may not go into just any folder.
    folder = Path(tempfile.mkdtemp(prefix="dagster-ckpt-chaos-"))
    folder.chmod(0o755)
    try:
        if "postgres" in needed:
            database = Database(folder / "postgres", "shop", "of the chaos", "shop")
            servers["postgres"], environment[POSTGRES_VARIABLE] = database, database.url
        if "kafka" in needed:
            if not JARS:
                raise click.ClickException("there are no jars of Kafka: use `make chaos-delivery`, which fetches them")
            (folder / "kafka").mkdir()
            broker = Broker(folder / "kafka")
            servers["kafka"], environment[KAFKA_VARIABLE] = broker, broker.address
            broker.start()
        yield servers, environment
    finally:
        for server in servers.values():
            server.kill()
        for log in folder.glob("*.log"):
            shutil.copy(log, place)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
