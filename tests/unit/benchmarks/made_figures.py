"""Figures as a machine with round numbers would measure them."""

from typing import Any

from benchmarks.plan import FULL, Name, Read, Shape, Spreading, spread_as
from benchmarks.report.figures import Figures
from benchmarks.results import Measured, settings_of

CODE = "0123456789ab"


def measured(cell: str, figures: dict[str, Any], **fields: Any) -> Measured:
    """The cell of the full plan, with these figures."""
    given: dict[str, Any] = {
        "figures": figures,
        "settings": settings_of(FULL[cell]),
        "machine": {"cores": 2, "memory_gb": 24, "python": "3.11.7"},
        "fsync_ms": 1.5,
        "date": "2026-01-01 12:00 UTC",
        "commit": "abc1234",
        "code": CODE,
        "command": "make bench",
        "took_s": 60,
    }
    return Measured(**{**given, **fields})


def a_race(rows: int, **seconds: float) -> dict[str, Any]:
    """Three rounds of two triggers, each side's all alike; sides by the names of `Name`."""
    return {str(rows): {str(Name[side]): [[each, each]] * 3 for side, each in seconds.items()}}


def grown(
    seconds: float, slow: float | None = None, recovery: float = 0.5, merged: int | None = None
) -> dict[str, Any]:
    """Twenty triggers, the last three of them perhaps slow."""
    last = [seconds if slow is None else slow] * 3
    return {
        "seconds": [seconds] * 17 + last,
        "merged_rows": [merged] * 20,
        "state_bytes": 44_000_000,
        "recoveries": [[1 + recovery, 1.0]] * 3,
    }


def a_step(ours: float, sparks: float, state: int = 1_200, live: int = 1_000) -> dict[str, Any]:
    """Three rounds of two triggers, each side's all alike."""
    seconds = {str(Name.OURS): [[ours, ours]] * 3, str(Name.SPARK): [[sparks, sparks]] * 3}
    return {"seconds": seconds, "state_bytes": state, "live_bytes": live, "live_rows": 10}


def a_graph(**seconds: float) -> dict[str, Any]:
    """Three rounds of two triggers, each shape's all alike; shapes by the names of `Shape`."""
    return {"seconds": {str(Shape[shape]): [[each, each]] * 3 for shape, each in seconds.items()}}


def a_table(seconds: float, step: float) -> dict[str, Any]:
    """Ten triggers, all alike."""
    return {"seconds": [seconds] * 10, "step_seconds": [step] * 10, "state_bytes": 120_000_000}


def a_query(seconds: float, batch: float, sparks: float | None = None) -> dict[str, Any]:
    """Two rounds of two triggers, each side's all alike."""
    sides = {str(Name.OURS): seconds, **({} if sparks is None else {str(Name.SPARK): sparks})}
    return {
        "seconds": {name: [[each, each]] * 2 for name, each in sides.items()},
        "batch_seconds": [batch] * 2,
        "compile_seconds": [1.5, 0.5, 0.5],
        "mode": None if sparks is None else "update",
        "refusal": "",
        "state_bytes": 120_000_000,
        "table_rows": 10,
    }


def a_task(peak: int) -> dict[str, Any]:
    """Twenty epochs of the engine alone, all alike, in a process of so much memory."""
    return {"seconds": [0.1] * 20, "merged_rows": [0] * 20, "state_bytes": 22_000_000, "peak_bytes": peak}


def a_reading(ours: float, parquet: float, sparks: float) -> dict[str, Any]:
    """Three times, all alike, whatever is read."""
    sides = {str(Name.OURS): [ours] * 3, str(Name.PARQUET): [parquet] * 3}
    by_spark = {**sides, str(Name.SPARK): [sparks] * 3}
    return {"seconds": {str(what): by_spark if what is Read.SPARK else sides for what in Read}}


def spread(first: float, *others: float) -> dict[str, Any]:
    """Two rounds of two triggers, those of each pair of shards and tasks all alike."""
    cell = FULL["tasks/1k"]
    assert isinstance(cell, Spreading)
    pairs = zip(cell.sides, [first, *others], strict=True)
    return {"seconds": {spread_as(*side): [[each] * 2] * 2 for side, each in pairs}}


def figures_of(**cells: dict[str, Any]) -> Figures:
    """By the cells' names, with `__` for the stroke and `_` for the dash."""
    named = {name.replace("__", "/").replace("_", "-"): figures for name, figures in cells.items()}
    return Figures({name: measured(name, figures) for name, figures in named.items()}, CODE)
