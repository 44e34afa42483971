"""Many worlds, several at once; what came of them is appended to a file, so that the counts of several runs add up."""

import gc
import json
import multiprocessing
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from scripts import proofs
from tests.simulation.world import Outcome, World

PROOF = "simulated worlds, one seed each"
BATCH = 100
STEPS_SHOWN = 40


@dataclass(frozen=True)
class Failure:
    """A seed that broke a promise: which, and all that is known about it, ready to be shown."""

    seed: int
    rule: str
    story: str


@dataclass(frozen=True)
class Batch:
    """What came of some seeds in a row: of all, or of those whose worlds were asked for."""

    first: int
    seeds: int
    worlds: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    failures: tuple[Failure, ...] = ()

    def line(self, code: str) -> str:
        """Its line in the results file. `code` names the checkout that it was found with."""
        return json.dumps(
            {
                "first": self.first,
                "seeds": self.seeds,
                "worlds": self.worlds,
                "failed": [{"seed": failure.seed, "rule": failure.rule} for failure in self.failures],
                "seconds": round(self.seconds, 2),
                "code": code,
                "counts": dict(sorted(self.counts.items())),
            }
        )


def simulate(first: int, seeds: int, rebuilds: bool = False) -> Batch:
    """Run these worlds one after another. `rebuilds`: only those with a rebuild."""
    began = time.process_time()
    counts: Counter[str] = Counter()
    failures, worlds = [], 0
    with _collected_between() as collect:
        for seed in range(first, first + seeds):
            world = World(seed)
            if rebuilds and not world.rebuilds:
                continue
            worlds += 1
            outcome = world.run()
            counts.update(outcome.counts)
            if outcome.rule is not None:
                failures.append(Failure(seed, outcome.rule, story_of(outcome)))
            collect()
    return Batch(first, seeds, worlds, time.process_time() - began, counts, tuple(failures))


@contextmanager
def _collected_between() -> Iterator[Callable[[], None]]:
    """Python collects its garbage when told to: between two worlds, when all of one is, not while one happens.

    What is left then is looked at no more: modules, and what is remembered from world to world.
    """

    def collect() -> None:
        gc.collect()
        gc.freeze()

    gc.disable()
    collect()
    try:
        yield collect
    finally:
        gc.enable()
        gc.unfreeze()


def story_of(outcome: Outcome, steps: int = STEPS_SHOWN) -> str:
    """How to see a failing seed again, which promise it broke, and the last steps before that."""
    began_ms = outcome.steps[0][0] if outcome.steps else 0
    lines = [
        f"make simulate SEED={outcome.seed}",
        f"broken: {outcome.rule}",
        *(
            f"{(when_ms - began_ms) / 1000:10.3f} s  {who:24} {verb} {name} -> {what}"
            for when_ms, who, verb, name, what in outcome.steps[-steps:]
        ),
        outcome.why.rstrip(),
    ]
    return "\n".join(lines)


def campaign(
    seeds: int, first: int | None, processes: int, results: Path, console: Console, rebuilds: bool = False
) -> bool:
    """Simulate that many seeds, by default those after the last in the results file; whether all kept all promises.

    `rebuilds`: of these seeds, only the worlds with a rebuild.
    """
    start = next_seed(results) if first is None else first
    results.parent.mkdir(parents=True, exist_ok=True)
    code, sound, worlds = _code(), True, 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress, results.open("a") as lines:
        bar = progress.add_task(f"seeds from {start} on", total=seeds)
        for batch in _batches(start, seeds, processes, rebuilds):
            lines.write(batch.line(code) + "\n")
            lines.flush()
            worlds += batch.worlds
            progress.advance(bar, batch.seeds)
            for failure in batch.failures:
                sound = False
                console.print(failure.story, markup=False, highlight=False, soft_wrap=True)
    console.print(summary(results), markup=False, highlight=False)
    if sound and proofs.asked_for() and not rebuilds:
        proofs.publish(PROOF, f"{worlds:,} from seed {start:,} on, no promise broken")
    return sound


def next_seed(results: Path) -> int:
    """The first seed after all that the file tells of."""
    return max((int(line["first"] + line["seeds"]) for line in _lines(results)), default=0)


def summary(results: Path) -> str:
    """What all runs together came to."""
    worlds = failed = 0
    for line in _lines(results):
        worlds += line.get("worlds", line["seeds"])
        failed += len(line["failed"])
    return f"{worlds:,} worlds in {results}, of all runs: {failed} broke a promise"


def _batches(first: int, seeds: int, processes: int, rebuilds: bool) -> Iterator[Batch]:
    # Spawned, because a forked child would inherit the console's threads.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        end = first + seeds
        waiting = {pool.submit(simulate, at, min(BATCH, end - at), rebuilds) for at in range(first, end, BATCH)}
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            for future in waiting:
                future.cancel()


def _lines(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def _code() -> str:
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return described.stdout.strip() or "unknown"
