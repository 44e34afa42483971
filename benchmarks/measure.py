"""Measures one cell, in a process of its own: no cell finds another one's heap, caches or worker processes.

    python -m benchmarks.measure full native/1M-uniform FOLDER

All data go to FOLDER, the figures to FOLDER/figures.json.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.alone import run_alone
from benchmarks.commits import run_commits
from benchmarks.graph import run_graph_race
from benchmarks.growth import run_growth
from benchmarks.plan import (
    PLANS,
    Alone,
    Cell,
    Commits,
    GraphRace,
    Growth,
    QueryRace,
    Race,
    Reading,
    Spreading,
    StepRace,
    TableGrowth,
)
from benchmarks.progress import Tell, shown
from benchmarks.queries import run_query_race
from benchmarks.race import run_race
from benchmarks.reading import run_reading
from benchmarks.spreading import run_spreading
from benchmarks.step_race import run_step_race
from benchmarks.tables import run_table_growth


def main(plan: str, name: str, folder: Path) -> None:
    cell = PLANS[plan][name]
    with shown(cell.steps) as tell:
        figures = _WAYS[type(cell)](cell, folder, tell)
    (folder / "figures.json").write_text(json.dumps(figures))


_WAYS: Mapping[type[Cell], Callable[[Any, Path, Tell], object]] = {
    Race: run_race,
    StepRace: run_step_race,
    GraphRace: run_graph_race,
    QueryRace: run_query_race,
    TableGrowth: run_table_growth,
    Growth: run_growth,
    Alone: run_alone,
    Commits: run_commits,
    Spreading: run_spreading,
    Reading: run_reading,
}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
