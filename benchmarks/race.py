"""Sides in turns on the same files, in one process; figures count only where the results are right."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks import python_rivals
from benchmarks.inputs import COLUMNS, Inbox
from benchmarks.nothing import Nothing
from benchmarks.ours import Ours, OursByCode
from benchmarks.plan import Name, Race
from benchmarks.progress import Tell
from benchmarks.rivals import SparkQuery, Totals, native
from benchmarks.session import read_inbox, rivals_session, start
from benchmarks.sides import Side, worked

_RIVALS: dict[Name, Totals] = {
    Name.NATIVE: native,
    Name.PANDAS: python_rivals.in_pandas,
    Name.ROWS: python_rivals.in_rows,
    Name.APPLY: python_rivals.applied,
}

Figures = dict[str, dict[str, list[list[float]]]]
"""Seconds of the counted triggers: by their rows, then by side, a list for each round."""


def run_race(race: Race, folder: Path, tell: Tell) -> Figures:
    """Raises RuntimeError for a side whose results are wrong, or that took other triggers than it was given."""
    spark = start(folder)
    inbox = Inbox(folder / "inbox", race.keys, race.spread)
    sides = {name: _side(name, spark, inbox.folder, folder / name.name) for name in race.sides}
    files = inbox.put_each_key(race.fill_rows)
    for name, side in sides.items():
        tell(f"{name} fills its state")
        worked(name, side, files)
    figures: Figures = {str(triggers.rows): {name: [] for name in sides} for triggers in race.triggers}
    for turn in range(race.rounds):
        for triggers in race.triggers:
            inbox.put(triggers.warm, triggers.warm_rows)
            inbox.put(triggers.counted, triggers.rows)
        files = sum(triggers.warm + triggers.counted for triggers in race.triggers)
        for name, side in sides.items():
            tell(f"{name}, round {turn + 1} of {race.rounds}")
            seconds = worked(name, side, files)
            for triggers in race.triggers:
                counted = seconds[triggers.warm : triggers.warm + triggers.counted]
                seconds = seconds[triggers.warm + triggers.counted :]
                figures[str(triggers.rows)][name].append([round(one, 4) for one in counted])
    inbox.put_some_keys(race.checked)
    truth = inbox.truth()
    for name, side in sides.items():
        tell(f"{name}: are its results right?")
        check_results(name, side.results(), truth, race.checked)
    spark.stop()
    return figures


def _side(name: Name, spark: SparkSession, inbox: Path, folder: Path) -> Side:
    match name:
        case Name.OURS:
            return Ours.totals(spark, inbox, folder)
        case Name.PROCESS:
            return OursByCode.of(spark, inbox, folder)
        case Name.NOTHING:
            return Nothing(spark, inbox, folder)
        case _:
            return SparkQuery(_RIVALS[name](read_inbox(rivals_session(spark), inbox)), folder)


def check_results(name: str, results: pa.Table | None, truth: pa.Table, least: int) -> None:
    """Raise RuntimeError unless a side's results are those of the truth, and of so many keys at least."""
    if results is None:
        return
    expected = truth.filter(pc.is_in(truth["k"], results["k"].combine_chunks())).sort_by("k")
    found = results.select(COLUMNS).cast(truth.schema).sort_by("k")
    if found.num_rows < least or not found.equals(expected):
        raise RuntimeError(f"the results are wrong. side={name}, keys={found.num_rows}, expected={expected.num_rows}")
