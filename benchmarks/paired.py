"""Each kind of step in this checkout and in another commit, epoch by epoch in turns, without Spark.

    python -m benchmarks.paired --against COMMIT [--epochs 20] [--only 'join'] [--results .work/paired.md]

A process of each side works the same rows; each runs its own `benchmarks.step_worker`, so that names may move between
the two commits. The processor's time counts, since it differs less than the clock's on a machine that others use. A
kind's ratio is the median of the epochs' ratios, each the time here over the time there: above 1, this checkout is
slower. Exits with 1 if a kind is slower by more than 3 % and its lower quartile is above 1 as well; or if rows differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean, median, quantiles
from typing import Any

from benchmarks import facts
from benchmarks.report.page import table_of
from scripts import proofs

ROOT = Path(__file__).parents[1]
PROOF = "each kind of step on Arrow batches, against another commit"
_SLOWER_MAX = 1.03


class Worker:
    """A process that works the epochs of one side."""

    def __init__(self, checkout: Path) -> None:
        # The checkout is first on the path, whatever is installed; sets of text are in the same order on both sides.
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "benchmarks.step_worker"]
        self._process = subprocess.Popen(
            command, cwd=checkout, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        there = self.reply()
        self.kinds: list[str] = there["kinds"]
        assert Path(there["package"]) == checkout, f"another package was loaded. package={there['package']}"

    def ask(self, line: str) -> None:
        """Begin a kind by its name, or its next epoch with an empty line."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def reply(self) -> dict[str, Any]:
        """The reply to what was asked first of all that has none."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                "a side has failed: its error is above; a commit before benchmarks/step_worker.py has none"
            )
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@dataclass
class Pairs:
    """A kind's epochs: milliseconds here and there, of the processor and of the clock."""

    cpu_ms: list[tuple[float, float]] = field(default_factory=list)
    wall_ms: list[tuple[float, float]] = field(default_factory=list)
    same_rows: bool = True

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The quartiles of the time here over the time there."""
        low, middle, high = quantiles([here / there for here, there in self.cpu_ms], n=4)
        return low, middle, high

    @property
    def verdict(self) -> str:
        """What is wrong; empty where nothing is."""
        low, middle, _ = self.ratios
        if not self.same_rows:
            return "**other rows**"
        return "**slower**" if middle > _SLOWER_MAX and low > 1 else ""


def pairs_of(kind: str, here: Worker, there: Worker, epochs: int) -> Pairs:
    """Fill both sides at once, then let them take turns, each epoch begun by the other one."""
    for side in (here, there):
        side.ask(kind)
    for side in (here, there):
        side.reply()
    pairs = Pairs()
    for epoch in range(epochs):
        replies = {}
        for side in (here, there) if epoch % 2 else (there, here):
            side.ask("")
            replies[side] = side.reply()
        ours, theirs = replies[here], replies[there]
        pairs.cpu_ms.append((ours["cpu_ms"], theirs["cpu_ms"]))
        pairs.wall_ms.append((ours["wall_ms"], theirs["wall_ms"]))
        pairs.same_rows &= ours["rows_out"] == theirs["rows_out"]
    return pairs


def report(commit: str, found: dict[str, Pairs]) -> str:
    """The page with the table of all kinds."""
    rows = []
    for kind, pairs in found.items():
        (ours, theirs), (wall, other_wall) = (
            map(median, zip(*each, strict=True)) for each in (pairs.cpu_ms, pairs.wall_ms)
        )
        low, middle, high = pairs.ratios
        cells = (f"{ours:.1f}", f"{theirs:.1f}", f"{wall:.1f}", f"{other_wall:.1f}")
        rows.append([kind, *cells, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", pairs.verdict])
    head = ["step", "ms here", "ms there", "clock here", "clock there", "ratio", "half of the epochs", ""]
    mean = geometric_mean([pairs.ratios[1] for pairs in found.values()])
    return (
        "# Each kind of step against another commit\n\n"
        f"{facts.commit(ROOT)} here, {commit} there: milliseconds of the processor in an epoch, at the median, and the "
        f"ratio of both, here over there. The geometric mean of the ratios is {mean:.3f}.\n\n{table_of(head, rows)}\n"
    )


@contextmanager
def checkout_of(commit: str) -> Iterator[Path]:
    """A worktree of the commit, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "there"
        _git("worktree", "add", "--quiet", "--detach", str(path), commit)
        try:
            yield path
        finally:
            _git("worktree", "remove", "--force", str(path))


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", required=True, metavar="COMMIT")
    parser.add_argument("--epochs", type=int, default=20, help="timed epochs of each kind, at least 2")
    parser.add_argument("--only", default="", help="kinds whose names have this text")
    parser.add_argument("--results", type=Path, default=ROOT / ".work/paired.md")
    options = parser.parse_args(arguments)
    commit = _git("rev-parse", "--short", options.against)
    found = {}
    with ExitStack() as stack:
        there = Worker(stack.enter_context(checkout_of(commit)))
        stack.callback(there.end)
        here = Worker(ROOT)
        stack.callback(here.end)
        for kind in here.kinds:
            if options.only in kind and kind in there.kinds:
                found[kind] = pairs_of(kind, here, there, options.epochs)
                print(f"{kind:32} {found[kind].ratios[1]:.3f} {found[kind].verdict}", flush=True)
    text = report(commit, found)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(text)
    print(text)
    wrong = any(pairs.verdict for pairs in found.values())
    if not (wrong or options.only) and proofs.asked_for():
        ratios = [pairs.ratios[1] for pairs in found.values()]
        mean = f"the geometric mean {geometric_mean(ratios):.3f}"
        result = f"{len(found)} kinds against {commit}: {min(ratios):.3f} to {max(ratios):.3f} of its time, {mean}"
        proofs.publish(PROOF, result)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
