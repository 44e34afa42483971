"""The results file: a line of JSON for each kill, appended to by every run, and the table that sums it up.

A kill gets its line only once its round was compared, with what the round's tables had lost or doubled.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.report.headlines import Headline, from_kills
from tests.chaos.rounds import Outcome
from tests.chaos.strikes import Strike

Line = Mapping[str, Any]


def lines_of(outcome: Outcome, about: Mapping[str, object]) -> list[Line]:
    """A line for each strike of a round; `about` says what is the same for all of them."""
    shared = {**about, "at": datetime.now(UTC).isoformat(timespec="seconds"), "load": round(os.getloadavg()[0], 1)}
    found = {
        "compared": bool(outcome.wrong),
        "lost": outcome.lost,
        "doubled": outcome.doubled,
        "events": outcome.events,
    }
    return [{**shared, **_facts(each), **found} for each in outcome.strikes]


def append(lines: Iterable[Line], results: Path) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)


def read(results: Path) -> list[Line]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def summary(lines: Iterable[Line], by: str = "kind") -> Table:
    """Kills by kind, or by another field: how many, and how long it took from each to the next committed epoch.

    `unproved` are those of rounds that broke before the tables were compared: `broken` of their lines says why.
    """
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line[by], []).append(line)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(by, no_wrap=True)
    for heading in ("kills", "median s", "p95 s", "max s", "unproved", "lost", "doubled"):
        table.add_column(heading, justify="right")
    for name in sorted(groups):
        table.add_row(name, *_figures(groups[name]))
    table.add_section()
    table.add_row("all", *_figures([line for group in groups.values() for line in group]))
    return table


def headline(lines: Iterable[Line]) -> dict[str, Headline]:
    """What the kills of the newest commit come to, for the pages; nothing of kills that lost or doubled a row."""
    found = list(lines)
    newest = [line for line in found if line["commit"] == found[-1]["commit"]]
    seconds = [line["seconds"] for line in newest if line["seconds"] is not None]
    if not seconds or any(line["lost"] or line["doubled"] or not line["compared"] for line in newest):
        return {}
    date, commit = str(newest[-1]["at"])[:10], str(newest[-1]["commit"])
    return from_kills(seconds, median(seconds), percentile(seconds, 0.95), date, commit)


def percentile(values: Iterable[float], share: float) -> float:
    """The least of the values that at least that share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _figures(lines: list[Line]) -> list[str]:
    seconds = [line["seconds"] for line in lines if line["seconds"] is not None]
    unproved = [line for line in lines if not line["compared"]]
    # A round's rows count once, however many kills of it are in this row of the table.
    rounds = {(line["seed"], line.get("world"), line["round"]): line for line in lines}.values()
    return [
        f"{len(lines)}",
        *(
            [f"{median(seconds):.1f}", f"{percentile(seconds, 0.95):.1f}", f"{max(seconds):.1f}"]
            if seconds
            else [""] * 3
        ),
        f"{len(unproved)}",
        f"{sum(line['lost'] for line in rounds)}",
        f"{sum(line['doubled'] for line in rounds)}",
    ]


def _facts(strike: Strike) -> Line:
    facts: dict[str, Any] = {
        "kind": strike.name,
        "lanes": [*strike.before],
        "seconds": None if strike.seconds is None else round(strike.seconds, 2),
        "over": strike.is_over,
    }
    if strike.zombie is not None:
        zombie = strike.zombie
        facts |= {"woken": str(zombie.wakes), "stopped": len(zombie.pids), "fenced": zombie.was_fenced}
    return facts
