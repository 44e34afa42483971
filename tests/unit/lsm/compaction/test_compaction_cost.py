"""Simulated with numbers of rows alone (`tests.worlds.merge_costs`): a task of 90,000 distinct rows an epoch."""

from copy import deepcopy
from functools import cache
from statistics import mean, median

import pytest

from dagster_ckpt.lsm.compaction.compaction import CompactionLimits, limits_for
from tests.worlds.merge_costs import MERGE_MS, MERGED_ROW_MS, Costs

ROWS = 90_000


@cache
def _steady(times: int, epochs: int, tasks: int, rows: int) -> Costs:
    costs = Costs(keys=times * rows, rows=times * rows, tasks=tasks)
    for _ in range(epochs):
        costs.epoch(rows)
    return costs


def steady(times: int, epochs: int = 160, tasks: int = 1, rows: int = ROWS) -> Costs:
    """A state of `times` times the rows of an epoch, all in one file at first, after many epochs."""
    return deepcopy(_steady(times, epochs, tasks, rows))


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]


@pytest.mark.parametrize("times", [1, 2, 5, 20, 50, 500, 5000])
def test_no_epoch_merges_much_more_than_most(times: int) -> None:
    costs = steady(times).epochs
    for rows in (costs.read[-80:], costs.written[-80:]):
        assert max(rows) <= 1.5 * median(rows)
    assert max(costs.ms[-80:]) <= 1.2 * median(costs.ms[-80:])


def test_a_hundred_times_the_state_costs_ten_times_as_much() -> None:
    """Or less: the root of it. And no more runs than that."""
    one, hundred = (steady(times).epochs for times in (5, 500))
    assert median(hundred.ms[-80:]) <= 8 * median(one.ms[-80:])
    assert max(hundred.deepest[-80:]) <= 8 * max(one.deepest[-80:])
    assert max(hundred.files[-80:]) <= 160


def test_also_the_first_pass_over_one_huge_file_is_flat() -> None:
    costs = steady(50, epochs=60).epochs
    first = next(at for at, slices in enumerate(costs.slices) if slices)
    assert first >= 10, "runs gather for a while"
    assert max(costs.read) <= 1.5 * median(costs.read[first:])


def test_a_growing_state_is_merged_evenly() -> None:
    """From nothing to fifty times an epoch, each row of a new key."""
    costs = Costs(keys=None)
    for _ in range(52):
        costs.epoch(ROWS)
    assert percentile(costs.epochs.written, 95) <= 2 * median(costs.epochs.written)
    assert max(costs.epochs.deepest) <= 30


@pytest.mark.parametrize("keys", [1_000_000, 10_000_000, 100_000_000])
def test_epochs_after_a_bulk_load_merge_evenly(keys: int) -> None:
    """As in `make bench ONLY=growth`: loaded in epochs ten times as large. A slice for as many rows was twice that."""
    costs = Costs(keys, tasks=2)
    for _ in range(max(1, keys // 2_000_000)):
        costs.epoch(min(keys, 2_000_000))
    loaded = len(costs.epochs.written)
    for _ in range(70):
        costs.epoch(200_000)
    written = costs.epochs.written[loaded + 10 :]
    assert max(written) <= 1.25 * median(written)
    assert written.count(0) <= 3


def test_small_epochs_do_not_rewrite_slices() -> None:
    """A thousand rows an epoch on ten million keys: hardly anything on average, and seldom more than a little."""
    costs = Costs(keys=10_000_000, rows=10_000_000)
    for _ in range(1000):
        costs.epoch(1000)
    done = costs.epochs
    recent = slice(700, None)
    assert max(done.written[recent]) <= 100_000
    assert mean(slices > 0 for slices in done.slices[recent]) <= 0.25
    assert mean(tiers > 0 for tiers in done.tiers[recent]) <= 0.25
    assert mean(done.ms[recent]) <= 3
    assert max(done.ms[recent]) <= 15
    assert max(done.deepest[recent]) <= 70


def test_a_small_state_is_merged_as_a_whole_now_and_then() -> None:
    """A merge costs something however few rows it is for, so each epoch's share would be dear."""
    costs = Costs(keys=5000, rows=5000)
    for _ in range(100):
        costs.epoch(5000)
    done = zip(costs.epochs.slices, costs.epochs.written, strict=True)
    merging = [slices * MERGE_MS + rows * MERGED_ROW_MS for slices, rows in done]
    assert mean(merging) <= 1
    assert max(merging) <= 5
    assert max(costs.epochs.deepest) <= 16


@pytest.mark.parametrize("times", [50, 500])
def test_a_burst_is_worked_off_smoothly(times: int) -> None:
    """An epoch that wrote twenty runs, of which there may be that many more."""
    costs = steady(times)
    usual = median(costs.epochs.read[-80:])
    costs.epoch(ROWS, flushes=20)
    for _ in range(100):
        costs.epoch(ROWS)
    after = costs.epochs.read[-100:]
    assert max(after) <= 1.55 * usual
    assert max(after[80:]) <= 1.1 * usual, "the debt is paid"
    assert costs.epochs.mean_depth[-1] <= 1.1 * costs.epochs.mean_depth[-103]


def test_intake_waits_where_upper_runs_are_far_too_many() -> None:
    """Twice the depth on average is what may be left: a state of few rows allows few upper runs."""
    costs = steady(5)
    costs.epoch(ROWS, flushes=40)
    costs.epoch(ROWS)
    assert costs.epochs.slices[-1] > 1
    assert costs.epochs.mean_depth[-1] <= 2 * 9
    assert max(costs.epochs.deepest[-40:]) <= 60


def test_epochs_that_always_write_several_runs_are_kept_up_with() -> None:
    costs = steady(50)
    for _ in range(100):
        costs.epoch(ROWS, flushes=3)
    after = costs.epochs
    assert max(after.read[-50:]) <= 1.5 * median(after.read[-50:])
    assert max(after.mean_depth[-50:]) <= 30


@pytest.mark.parametrize("tasks", [1, 3, 4])
def test_another_number_of_tasks_changes_nothing(tasks: int) -> None:
    """Nor does the restart: each shard is merged from where it was left."""
    costs = steady(50, tasks=2, rows=2 * ROWS)
    usual = median(costs.epochs.read[-80:])
    costs.tasks = tasks
    for _ in range(60):
        costs.epoch(2 * ROWS)
    assert max(costs.epochs.read[-60:]) <= 1.5 * usual
    assert 0.9 * usual <= median(costs.epochs.read[-60:]) <= 1.1 * usual


def test_with_many_shards_each_may_have_fewer_runs() -> None:
    limits = CompactionLimits()
    assert [limits_for(shards, limits).depth_max for shards in (1, 64, 128, 512, 4096)] == [64, 64, 32, 8, 8]
    costs = Costs(keys=500 * ROWS, rows=500 * ROWS, shards=64, limits=limits_for(512, limits))
    for _ in range(60):
        costs.epoch(ROWS)
    assert max(costs.epochs.deepest[-30:]) <= 12
