"""The steps that are raced: ours, Spark's own, what pandas says of them, and which rows their state must still know."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.plan import StepRace, Work
from benchmarks.step_inputs import COLUMNS, FILE
from dagster_ckpt import Stream, agg, session, tumbling
from dagster_ckpt.operators.shared.window_kinds import Window

Frames = Sequence[pd.DataFrame]
"""All rows of each input, as `StepInbox.frame` gives them."""

ODD_MS = 1
"""A session's gap is so much longer: Spark and we agree on rows exactly a gap apart, but pandas need not be told."""


@dataclass(frozen=True)
class WayOfWork:
    """A step in four ways. `columns` are those of the results that are compared, by the names all three give them.

    `truth` is what must have come out of these rows; `live` those rows of each input that may still matter.
    """

    inputs: int
    columns: tuple[str, ...]
    ours: Callable[[StepRace, Sequence[DataFrame]], Stream]
    sparks: Callable[[StepRace, Sequence[DataFrame]], DataFrame]
    truth: Callable[[StepRace, Frames], pd.DataFrame]
    live: Callable[[StepRace, Frames], Frames]


def watermark_ms(race: StepRace, frames: Frames) -> int:
    """The least over inputs, after these rows."""
    return min(int(frame["t"].max()) for frame in frames) - race.delay_s * 1_000


def _timed(race: StepRace, frame: DataFrame, prefix: str = "") -> Stream:
    key, time, _ = (f"{prefix}{column}" for column in COLUMNS)
    return Stream(frame).with_watermark(time, f"{race.delay_s}s").key_by(key)


def _watermarked(race: StepRace, frame: DataFrame, prefix: str = "") -> DataFrame:
    return frame.withWatermark(f"{prefix}t", f"{race.delay_s} seconds")


# ---------------------------------------------------------------------------------------------------- tumbling windows


def _our_tumbling(race: StepRace, frames: Sequence[DataFrame]) -> Stream:
    return _our_sums(race, frames, tumbling(f"{race.reach_s}s"))


def _sparks_tumbling(race: StepRace, frames: Sequence[DataFrame]) -> DataFrame:
    return _sparks_sums(race, frames, F.window("t", f"{race.reach_s} seconds"), "window")


def _starts(race: StepRace, rows: pd.DataFrame) -> pd.Series:
    size = race.reach_s * 1_000
    return rows["t"] // size * size


def _tumbling_truth(race: StepRace, frames: Frames) -> pd.DataFrame:
    [rows] = frames
    windows = _summed(rows.assign(window_start=_starts(race, rows)), ["k", "window_start"])
    return windows[windows["window_start"] + race.reach_s * 1_000 <= watermark_ms(race, frames)]


def _tumbling_live(race: StepRace, frames: Frames) -> Frames:
    [rows] = frames
    return [rows[_starts(race, rows) + race.reach_s * 1_000 > watermark_ms(race, frames)]]


# ------------------------------------------------------------------------------------------------------------ sessions


def _our_session(race: StepRace, frames: Sequence[DataFrame]) -> Stream:
    return _our_sums(race, frames, session(f"{race.reach_s * 1_000 + ODD_MS}ms"))


def _sparks_session(race: StepRace, frames: Sequence[DataFrame]) -> DataFrame:
    gap = f"{race.reach_s * 1_000 + ODD_MS} milliseconds"
    return _sparks_sums(race, frames, F.session_window("t", gap), "session_window")


def _in_sessions(race: StepRace, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their sessions' numbers and ends."""
    gap = race.reach_s * 1_000 + ODD_MS
    ordered = rows.sort_values(["k", "t"])
    begins = (ordered["k"] != ordered["k"].shift()) | (ordered["t"] - ordered["t"].shift() > gap)
    ordered = ordered.assign(session=begins.cumsum())
    times = ordered.groupby("session")["t"]
    return ordered.assign(window_start=times.transform("min"), end=times.transform("max") + gap)


def _session_truth(race: StepRace, frames: Frames) -> pd.DataFrame:
    [rows] = frames
    closed = _in_sessions(race, rows)
    return _summed(closed[closed["end"] <= watermark_ms(race, frames)], ["k", "window_start"])


def _session_live(race: StepRace, frames: Frames) -> Frames:
    [rows] = frames
    there = _in_sessions(race, rows)
    return [there[there["end"] > watermark_ms(race, frames)]]


# --------------------------------------------------------------------------------------------------------- deduplicate


def _our_deduplicate(race: StepRace, frames: Sequence[DataFrame]) -> Stream:
    [rows] = frames
    return _timed(race, rows).deduplicate(expire_after=f"{race.delay_s}s")


def _sparks_deduplicate(race: StepRace, frames: Sequence[DataFrame]) -> DataFrame:
    [rows] = frames
    return _watermarked(race, rows).dropDuplicatesWithinWatermark(["k"])


def _deduplicate_truth(_: StepRace, frames: Frames) -> pd.DataFrame:
    [rows] = frames
    return rows[["k"]].drop_duplicates()


def _deduplicate_live(race: StepRace, frames: Frames) -> Frames:
    [rows] = frames
    # Of a key the first trigger that had it, and in it whichever row: their times differ by less than a span.
    firsts = rows.sort_values([FILE, "t"]).drop_duplicates("k")
    return [firsts[firsts["t"] + race.delay_s * 1_000 > watermark_ms(race, frames)]]


# ------------------------------------------------------------------------------------------------------- interval join


def _our_join(race: StepRace, frames: Sequence[DataFrame]) -> Stream:
    left, right = frames
    return _timed(race, left).interval_join(_timed(race, right, "r"), "0s", f"{race.reach_s}s")


def _sparks_join(race: StepRace, frames: Sequence[DataFrame]) -> DataFrame:
    left, right = (_watermarked(race, frame, prefix) for frame, prefix in zip(frames, ("", "r"), strict=True))
    near = F.expr(f"k = rk AND rt >= t AND rt <= t + interval {race.reach_s} seconds")
    return left.join(right, near)


def _join_truth(race: StepRace, frames: Frames) -> pd.DataFrame:
    left, right = frames
    right = right.rename(columns={"k": "rk", "t": "rt", "v": "rv"})
    pairs = left.merge(right, left_on="k", right_on="rk", suffixes=("", "_right"))
    after = pairs["rt"] - pairs["t"]
    return pairs.loc[(after >= 0) & (after <= race.reach_s * 1_000), ["k", "v", "rv"]]


def _join_live(race: StepRace, frames: Frames) -> Frames:
    left, right = frames
    watermark = watermark_ms(race, frames)
    return [left[left["t"] + race.reach_s * 1_000 >= watermark], right[right["t"] >= watermark]]


# -------------------------------------------------------------------------------------------------- windows of windows

GROUPS, LARGE = 10_000, 100


def _our_chained(race: StepRace, frames: Sequence[DataFrame]) -> Stream:
    [rows] = frames
    sums = {"rows": agg.sum("rows"), "total": agg.sum("total")}
    ends = "window_end - INTERVAL 1 MICROSECOND"  # what Spark's window_time gives: the end itself is in the next window
    small = _timed(race, rows).window(tumbling(f"{race.reach_s // 3}s")).aggregate(rows=agg.count(), total=agg.sum("v"))
    groups = small.select(f"k % {GROUPS} AS g", f"{ends} AS t", "rows", "total").with_watermark("t", "0s").key_by("g")
    middle = groups.window(tumbling(f"{race.reach_s}s")).aggregate(**sums)
    large = middle.select(f"g % {LARGE} AS h", f"{ends} AS t", "rows", "total").with_watermark("t", "0s").key_by("h")
    return large.window(tumbling(f"{3 * race.reach_s}s")).aggregate(**sums)


def _sparks_chained(race: StepRace, frames: Sequence[DataFrame]) -> DataFrame:
    [rows] = frames
    sums = (F.sum("rows").alias("rows"), F.sum("total").alias("total"))
    small = _watermarked(race, rows).groupBy(F.window("t", f"{race.reach_s // 3} seconds").alias("small"), "k")
    of_keys = small.agg(F.count("*").alias("rows"), F.sum("v").alias("total"))
    middle = F.window(F.window_time("small"), f"{race.reach_s} seconds").alias("middle")
    of_groups = of_keys.groupBy(middle, F.expr(f"k % {GROUPS}").alias("g")).agg(*sums)
    large = F.window(F.window_time("middle"), f"{3 * race.reach_s} seconds").alias("large")
    of_large = of_groups.groupBy(large, F.expr(f"g % {LARGE}").alias("h")).agg(*sums)
    return of_large.withColumn("window_start", F.col("large.start")).drop("large")


def _in_large(race: StepRace, rows: pd.DataFrame) -> pd.DataFrame:
    size = 3 * race.reach_s * 1_000
    return rows.assign(
        h=rows["k"] % GROUPS % LARGE, window_start=rows["t"] // size * size, end=rows["t"] // size * size + size
    )


def _chained_truth(race: StepRace, frames: Frames) -> pd.DataFrame:
    [rows] = frames
    placed = _in_large(race, rows)
    closed = placed[placed["end"] <= watermark_ms(race, frames)]
    return closed.groupby(["h", "window_start"], as_index=False).agg(rows=("v", "size"), total=("v", "sum"))


def _chained_live(race: StepRace, frames: Frames) -> Frames:
    [rows] = frames
    return [rows[_in_large(race, rows)["end"] > watermark_ms(race, frames)]]


# ---------------------------------------------------------------------------------------------------------------------


def _our_sums(race: StepRace, frames: Sequence[DataFrame], window: Window) -> Stream:
    [rows] = frames
    windows = _timed(race, rows).window(window)
    return windows.aggregate(rows=agg.count(), total=agg.sum("v"), most=agg.max("v"))


def _sparks_sums(race: StepRace, frames: Sequence[DataFrame], window: Column, name: str) -> DataFrame:
    """`name` is what Spark calls the window's column."""
    [rows] = frames
    grouped = _watermarked(race, rows).groupBy(window, "k")
    sums = grouped.agg(F.count("*").alias("rows"), F.sum("v").alias("total"), F.max("v").alias("most"))
    return sums.withColumn("window_start", F.col(f"{name}.start")).drop(name)


def _summed(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    groups = rows.groupby(by, as_index=False)
    return groups.agg(rows=("v", "size"), total=("v", "sum"), most=("v", "max"))


_SUMS = ("k", "window_start", "rows", "total", "most")

WAYS: Mapping[Work, WayOfWork] = {
    Work.TUMBLING: WayOfWork(1, _SUMS, _our_tumbling, _sparks_tumbling, _tumbling_truth, _tumbling_live),
    Work.SESSION: WayOfWork(1, _SUMS, _our_session, _sparks_session, _session_truth, _session_live),
    Work.DEDUPLICATE: WayOfWork(
        1, ("k",), _our_deduplicate, _sparks_deduplicate, _deduplicate_truth, _deduplicate_live
    ),
    Work.CHAINED: WayOfWork(
        1, ("h", "window_start", "rows", "total"), _our_chained, _sparks_chained, _chained_truth, _chained_live
    ),
    Work.INTERVAL_JOIN: WayOfWork(2, ("k", "v", "rv"), _our_join, _sparks_join, _join_truth, _join_live),
}
