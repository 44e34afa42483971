"""A step in event time, ours and Spark's own in turns on the same files; figures count only where results are right.

Afterwards the bytes of our state are compared with those of a stream that never had any row but those that may still
matter: what expiry leaves behind.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.ours import Ours
from benchmarks.plan import Name, StepRace
from benchmarks.progress import Tell
from benchmarks.rivals import SparkQuery
from benchmarks.session import read_folder, rivals_session, start
from benchmarks.sides import Side, worked
from benchmarks.step_inputs import StepInbox
from benchmarks.steps import WAYS, WayOfWork
from dagster_ckpt.runtime.spark.session import open_session

_PREFIXES = ("", "r")


@dataclass(frozen=True)
class StepFigures:
    """Seconds of the counted triggers by side, a list for each round; bytes of our state, and what it should be."""

    seconds: Mapping[str, list[list[float]]]
    state_bytes: int
    live_bytes: int
    live_rows: int


def run_step_race(race: StepRace, folder: Path, tell: Tell) -> dict[str, object]:
    """The figures as JSON has them. Raises RuntimeError for a side whose results are wrong."""
    spark, way = start(folder), WAYS[race.work]
    inboxes = [StepInbox(folder / f"inbox{number}", race, number, _PREFIXES[number]) for number in range(way.inputs)]
    ours = _ours(spark, race, way, inboxes, folder / "ours")
    sides: dict[Name, Side] = {Name.OURS: ours, Name.SPARK: _sparks(spark, race, way, inboxes, folder / "sparks")}
    seconds: dict[str, list[list[float]]] = {name: [] for name in sides}
    for turn in range(race.rounds + 1):
        files = race.warm + race.counted if turn else race.fill
        for inbox in inboxes:
            inbox.put(files)
        for name, side in sides.items():
            tell(f"{name}, round {turn} of {race.rounds}" if turn else f"{name} fills its state")
            of_triggers = worked(name, side, files)
            if turn:
                seconds[name].append([round(one, 4) for one in of_triggers[race.warm :]])
    _check(race, way, inboxes, sides, tell)
    frames = [inbox.frame() for inbox in inboxes]
    tell("what should its state be?")
    live = way.live(race, frames)
    fresh = [StepInbox(folder / f"live{number}", race, number, _PREFIXES[number]) for number in range(way.inputs)]
    for inbox, rows in zip(fresh, live, strict=True):
        inbox.put_rows(rows)
    one_file = _ours(spark, race, way, fresh, folder / "fresh")
    one_file.work()
    figures = StepFigures(seconds, ours.state_bytes, one_file.state_bytes, sum(map(len, live)))
    spark.stop()
    return asdict(figures)


def _ours(spark: SparkSession, race: StepRace, way: WayOfWork, inboxes: Sequence[StepInbox], store: Path) -> Ours:
    return Ours(way.ours(race, _read(open_session(spark), inboxes)), store)


def _sparks(
    spark: SparkSession, race: StepRace, way: WayOfWork, inboxes: Sequence[StepInbox], place: Path
) -> SparkQuery:
    return SparkQuery(way.sparks(race, _read(rivals_session(spark), inboxes)), place, "append")


def _read(session: SparkSession, inboxes: Sequence[StepInbox]) -> list[DataFrame]:
    return [read_folder(session, inbox.folder, inbox.schema) for inbox in inboxes]


def _check(
    race: StepRace, way: WayOfWork, inboxes: Sequence[StepInbox], sides: Mapping[Name, Side], tell: Tell
) -> None:
    """Both take one more file each: Spark tells what came of that, we the whole table."""
    before = [inbox.frame() for inbox in inboxes]
    for inbox in inboxes:
        inbox.put(1)
    after = [inbox.frame() for inbox in inboxes]
    had, all_ = way.truth(race, before), way.truth(race, after)
    expected = {Name.OURS: all_, Name.SPARK: pd.concat([all_, had]).drop_duplicates(keep=False)}
    for name, side in sides.items():
        tell(f"{name}: are its results right?")
        found = side.results()
        if found is None or not _same(found, expected[name], way.columns):
            rows = 0 if found is None else found.num_rows
            raise RuntimeError(f"the results are wrong. side={name}, rows={rows}, expected={len(expected[name])}")


def _same(found: pa.Table, expected: pd.DataFrame, columns: Sequence[str]) -> bool:
    plain = {column: _whole(found[column]) for column in columns}
    frames = (pd.DataFrame(plain), expected[list(columns)])
    mine, theirs = (frame.sort_values(list(columns), ignore_index=True) for frame in frames)
    return bool(mine.equals(theirs.astype("int64")))


def _whole(column: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_timestamp(column.type):
        return pd.Series(column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_numpy() // 1_000)
    return pd.Series(column.to_numpy())
