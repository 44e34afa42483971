"""Measures one cell, in a process of its own: no cell finds another one's heap, caches or worker processes.

    python -m benchmarks.measure full native/1M-uniform FOLDER

All data go to FOLDER, the figures to FOLDER/figures.json.
"""

import json
import sys
from pathlib import Path

from benchmarks.alone import run_alone
from benchmarks.commits import run_commits
from benchmarks.growth import run_growth
from benchmarks.plan import PLANS, Alone, Cell, Commits, Growth, Race, StepRace
from benchmarks.progress import Tell, shown
from benchmarks.race import run_race
from benchmarks.step_race import run_step_race


def main(plan: str, name: str, folder: Path) -> None:
    cell = PLANS[plan][name]
    with shown(cell.steps) as tell:
        figures = _measure(cell, folder, tell)
    (folder / "figures.json").write_text(json.dumps(figures))


def _measure(cell: Cell, folder: Path, tell: Tell) -> object:
    match cell:
        case Race():
            return run_race(cell, folder, tell)
        case StepRace():
            return run_step_race(cell, folder, tell)
        case Growth():
            return run_growth(cell, folder, tell)
        case Alone():
            return run_alone(cell, folder, tell)
        case Commits():
            return run_commits(cell, folder, tell)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
