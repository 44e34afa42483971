"""The rows of a race of steps, what pandas says must come of them, and which of them still matter."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks.plan import FULL, QUICK, StepRace, Work
from benchmarks.step_inputs import FILE, StepInbox
from benchmarks.steps import WAYS, watermark_ms

SMALL = StepRace(
    Work.TUMBLING, keys=50, moved=10, rows=400, span_s=20, delay_s=20, reach_s=60,
    fill=1, rounds=1, warm=0, counted=1,
)  # fmt: skip


def frame_of(folder: Path, race: StepRace, files: int, seed: int = 0) -> pd.DataFrame:
    inbox = StepInbox(folder / f"inbox{seed}", race, seed)
    inbox.put(files)
    return inbox.frame()


def rows_of(*rows: tuple[int, float, int]) -> pd.DataFrame:
    """Key, seconds, file."""
    keys, seconds, files = zip(*rows, strict=True)
    return pd.DataFrame({"k": keys, "t": [int(1_000 * each) for each in seconds], "v": range(len(rows)), FILE: files})


@pytest.mark.parametrize("cell", [cell for cell in FULL.values() if isinstance(cell, StepRace)])
def test_rows_are_out_of_order_and_none_is_late(tmp_path: Path, cell: StepRace) -> None:
    rows = frame_of(tmp_path, replace(cell, rows=2_000), 6)
    for number in range(1, 6):
        watermark = watermark_ms(cell, [rows[rows[FILE] < number]])
        assert rows.loc[rows[FILE] == number, "t"].min() > watermark
    assert (rows["t"].diff() < 0).any()
    assert (rows["t"] % 2 == 0).all()


def test_the_same_race_and_seed_put_the_same_rows_and_keys_move_on(tmp_path: Path) -> None:
    first, again = (frame_of(tmp_path / name, SMALL, 3) for name in ("a", "b"))
    pd.testing.assert_frame_equal(first, again)
    assert first.groupby(FILE)["k"].agg(["min", "max"]).to_numpy().tolist() == [[0, 49], [10, 59], [20, 69]]


def test_windows_come_out_when_the_watermark_has_passed_them_and_the_others_live() -> None:
    way, race = WAYS[Work.TUMBLING], replace(SMALL, work=Work.TUMBLING)
    rows = rows_of((1, 5, 0), (1, 59, 0), (2, 61, 0), (1, 140, 1))  # the watermark is at 120 s
    closed = way.truth(race, [rows])
    assert closed[["k", "window_start", "rows"]].to_numpy().tolist() == [[1, 0, 2], [2, 60_000, 1]]
    assert way.live(race, [rows])[0]["t"].tolist() == [140_000]


def test_sessions_end_a_gap_after_their_last_row() -> None:
    way, race = WAYS[Work.SESSION], replace(SMALL, work=Work.SESSION, reach_s=40)
    rows = rows_of((1, 0, 0), (1, 40, 0), (1, 90, 0), (2, 55, 0), (2, 160, 1))  # the watermark is at 140 s
    closed = way.truth(race, [rows]).sort_values(["k", "window_start"])
    assert closed[["k", "window_start", "rows"]].to_numpy().tolist() == [[1, 0, 2], [1, 90_000, 1], [2, 55_000, 1]]
    assert way.live(race, [rows])[0]["t"].tolist() == [160_000]


def test_of_an_event_its_first_trigger_is_remembered_for_the_delay() -> None:
    way, race = WAYS[Work.DEDUPLICATE], replace(SMALL, work=Work.DEDUPLICATE, delay_s=20)
    rows = rows_of((1, 5, 0), (2, 31, 0), (2, 30, 1), (3, 70, 1))  # the watermark is at 50 s
    assert way.truth(race, [rows])["k"].tolist() == [1, 2, 3]
    assert way.live(race, [rows])[0]["k"].tolist() == [2, 3]


def test_pairs_are_within_the_bounds_and_rows_live_until_nothing_can_match_them() -> None:
    way, race = WAYS[Work.INTERVAL_JOIN], replace(SMALL, work=Work.INTERVAL_JOIN, reach_s=60)
    left, right = rows_of((1, 0, 0), (1, 50, 0), (1, 130, 0)), rows_of((1, 60, 0), (1, 49, 0), (2, 50, 0), (1, 140, 0))
    pairs = way.truth(race, [left, right])
    assert sorted(pairs[["v", "rv"]].to_numpy().tolist()) == [[0, 0], [0, 1], [1, 0], [2, 3]]
    assert [rows["t"].tolist() for rows in way.live(race, [left, right])] == [[50_000, 130_000], [140_000]]


def test_windows_of_windows_come_out_when_the_largest_is_over() -> None:
    way, race = WAYS[Work.CHAINED], replace(SMALL, work=Work.CHAINED, reach_s=20)  # the largest has a minute
    rows = rows_of((1, 5, 0), (101, 59, 0), (2, 61, 0), (1, 100, 1))  # the watermark is at 80 s
    assert way.truth(race, [rows])[["h", "window_start", "rows"]].to_numpy().tolist() == [[1, 0, 2]]
    assert way.live(race, [rows])[0]["t"].tolist() == [61_000, 100_000]


def test_the_quick_plan_has_a_step_of_one_input_and_one_of_two() -> None:
    assert {cell.work for cell in QUICK.values() if isinstance(cell, StepRace)} == {
        Work.CHAINED,
        Work.DEDUPLICATE,
        Work.INTERVAL_JOIN,
    }
