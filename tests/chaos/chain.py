"""`python -m tests.chaos.chain` kills each stream of a chain over and over, lets one sleep for long, and compares."""

import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from benchmarks import facts
from tests.chaos.chain_lanes import CHAIN
from tests.chaos.cluster import NO_ANSWER, Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import Wrong, inbox_in, rows_of
from tests.chaos.results import append, lines_of, read, summary
from tests.chaos.rounds import LOOK_S, RECOVERY_S_MAX, BrokenPromiseError, Outcome
from tests.chaos.services import ROOT
from tests.chaos.strikes import Kind, NoTargetError, strike
from tests.chaos.world import until

LOCATION = Path(__file__).with_name("chain_location.py")
WORK = ROOT / ".work"
KINDS = (Kind.PYTHON, Kind.JVM, Kind.WORKER)
SLEEPER = "totals"
"""Both an upstream and a downstream: while it sleeps, `ids` retires epochs that it has not read."""

SETTLED_S = 3.0
"""For so long tables must stay right without new rows: what is doubled may come late."""

console = Console(highlight=False, soft_wrap=True)


@click.command()
@click.option("--kills", default=30, show_default=True, help="Of each of the three streams.")
@click.option(
    "--seed", type=int, default=None, help="Chooses kinds, streams and moments; drawn and shown if not given."
)
@click.option(
    "--overlap", default=0.25, show_default=True, help="How often, of one, the next does not wait for recovery."
)
@click.option("--results", type=click.Path(path_type=Path), default=WORK / "chaos-chain.jsonl", help="Appended to.")
def main(kills: int, seed: int | None, overlap: float, results: Path) -> None:
    """Kill the processes of a chain of streams, let one sleep while its upstream retires epochs, compare with batch."""
    for number in (signal.SIGINT, signal.SIGTERM):  # past all that has to be ended, as Ctrl-C
        signal.signal(number, signal.default_int_handler)
    seed = random.randrange(2**32) if seed is None else seed
    place = WORK / "chaos" / f"chain-{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}"
    place.mkdir(parents=True)
    console.print(f"seed {seed}; the cluster and its logs are in {place.relative_to(ROOT)}")
    outcome = Outcome()
    about: dict[str, object] = {"seed": seed, "overlap": overlap, "commit": facts.commit(ROOT), "round": 0}
    with Cluster(place, {}, LOCATION) as cluster, Feeder(place) as feeder:
        try:
            _play(Rounds(cluster, feeder, random.Random(seed), overlap, outcome), kills)
        except AssertionError as error:
            append(lines_of(outcome, {**about, "broken": str(error)}), results)
            raise
    append(lines_of(outcome, about), results)
    console.print(summary(read(results)))
    if outcome.lost or outcome.doubled:
        console.print(f"[red]rows are wrong[/]; kept: {place.relative_to(ROOT)}. {outcome.wrong}")
        sys.exit(1)
    shutil.rmtree(place)


def _play(rounds: "Rounds", kills: int) -> None:
    rounds.begin()
    for lane, kind in _in_order_of_chance(kills, rounds.chance):
        rounds.kill(lane, kind)
    rounds.compare()
    rounds.let_sleep(SLEEPER)
    rounds.compare()


def _in_order_of_chance(kills: int, chance: random.Random) -> Iterator[tuple[str, Kind]]:
    """So many kills of each stream, of each kind as often as of any other."""
    for number in range(kills):
        for lane in chance.sample([*CHAIN], len(CHAIN)):
            yield lane, KINDS[(number + [*CHAIN].index(lane)) % len(KINDS)]


@dataclass
class Rounds:
    """What is done to the chain on one cluster, in order."""

    cluster: Cluster
    feeder: Feeder
    chance: random.Random
    overlap: float
    outcome: Outcome

    def begin(self) -> None:
        """Until every stream has committed something."""
        self.cluster.wait_until_ready()
        until("every stream commits", lambda: all(self.cluster.standing(lane).rows for lane in CHAIN), RECOVERY_S_MAX)
        _tell("every stream of the chain works")

    def kill(self, lane: str, kind: Kind) -> None:
        """One process of a stream, at a moment of chance. Raises `BrokenPromiseError` where it finds none to kill."""
        self._wait(self.chance.uniform(0.2, 4.0))
        if self.chance.random() >= self.overlap:
            self._until_over()
        end_s = time.monotonic() + RECOVERY_S_MAX
        while time.monotonic() < end_s:
            try:
                made = strike(kind, self.cluster, self.chance, (), among=[lane])
            except NoTargetError:
                self._wait(LOOK_S)
                continue
            self.outcome.strikes.append(made)
            _tell(f"kill {len(self.outcome.strikes)}: {kind} of {lane}")
            return
        raise BrokenPromiseError(f"there was nothing to kill for {RECOVERY_S_MAX:.0f} s. {lane=}, kind={kind}")

    def let_sleep(self, lane: str) -> None:
        """End a stream's run as a person does, until its upstream has retired epochs that it has not read."""
        consumed = self._consumed(lane)
        self._terminate(lane)
        upstream = self.cluster.history([*CHAIN][[*CHAIN].index(lane) - 1])
        until(
            f"the upstream of {lane} retires what it has not read",
            lambda: min(info.epoch for info in upstream.epochs()) > consumed + 1,
            RECOVERY_S_MAX,
        )
        slept, oldest = self._consumed(lane), min(info.epoch for info in upstream.epochs())
        _tell(f"{lane} sleeps; it has read epoch {slept} of its upstream, whose oldest retained one is {oldest}")
        self.cluster.api.launch(f"{lane}_job")
        until(f"{lane} goes on", lambda: self._consumed(lane) > slept, RECOVERY_S_MAX)
        _tell(f"{lane} goes on")

    def compare(self) -> None:
        """Every table with plain pandas, once all rows are in; they go on coming afterwards."""
        self._until_over()
        self.feeder.pause()
        try:
            until("every table is right", lambda: not any(self._wrong().values()), RECOVERY_S_MAX)
            time.sleep(SETTLED_S)
        finally:
            self.outcome.wrong = self._wrong()
            self.feeder.resume()
        _tell(f"compared with batch: lost={self.outcome.lost}, doubled={self.outcome.doubled}")
        for lane in CHAIN:
            if (damaged := self.cluster.history(lane).verify()).findings:
                raise BrokenPromiseError(f"an object is damaged or missing. {lane=}, findings={damaged.findings}")

    def _wrong(self) -> dict[str, Wrong]:
        rows = rows_of(inbox_in(self.cluster.place))
        return {lane: judge(self.cluster.history(lane).read().to_pandas(), rows) for lane, judge in CHAIN.items()}

    def _consumed(self, lane: str) -> int:
        return max(each.epoch for each in self.cluster.history(lane).manifest().consumed)

    def _terminate(self, lane: str) -> None:
        def ended() -> bool:
            try:
                runs = [run.id for run in self.cluster.runs(lane) if run.unfinished]
                if runs:
                    self.cluster.api.terminate(runs)
                return not runs
            except NO_ANSWER:
                return False

        until(f"the run of {lane} ends", ended, RECOVERY_S_MAX)

    def _until_over(self) -> None:
        began_s = time.monotonic()
        while not all(each.is_over for each in self.outcome.strikes):
            if time.monotonic() - began_s > RECOVERY_S_MAX:
                now = {lane: self.cluster.standing(lane) for lane in CHAIN}
                raise BrokenPromiseError(f"a stream is not back after {RECOVERY_S_MAX:.0f} s. {now=}")
            self._wait(LOOK_S)

    def _wait(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while True:
            for each in self.outcome.strikes:
                if not each.is_over:
                    each.look(self.cluster)
                    if each.seconds is not None:
                        _tell(f"{', '.join(each.before)}: back after {each.seconds:.1f} s")
            if (left_s := end_s - time.monotonic()) <= 0:
                return
            time.sleep(min(left_s, LOOK_S))


def _tell(text: str) -> None:
    console.print(f"{datetime.now(UTC):%H:%M:%S} {text}")


if __name__ == "__main__":
    main()
