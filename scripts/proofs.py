"""The results of the proofs: each is a line of `docs/results/proofs.md`, which its command replaces with `PUBLISH=1`.

    make simulate SEEDS=20000 PUBLISH=1

A command publishes when it has ended and nothing was wrong. A line is known by what it proves, its first cell.
"""

import os
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import facts

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results/proofs.md"
VARIABLE = "PUBLISH"


def asked_for() -> bool:
    """Whether the command is to publish what it finds."""
    return bool(os.environ.get(VARIABLE))


def publish(what: str, result: str, found: str = "", page: Path = PAGE) -> None:
    """Put a result in place of the one in the line of this proof. `found`: the day and commit, if not these.

    Raises KeyError for a proof that has no line: write one, with its command and its goal.
    """
    lines = page.read_text().splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith(f"| {what} | ")]
    if len(rows) != 1:
        raise KeyError(what)
    first, command, _, goal = lines[rows[0]].split(" | ")
    found = found or f"{datetime.now(UTC):%Y-%m-%d}, on {facts.commit(ROOT)}"
    lines[rows[0]] = " | ".join((first, command, f"{found}: {result}", goal))
    page.write_text("\n".join(lines) + "\n")
