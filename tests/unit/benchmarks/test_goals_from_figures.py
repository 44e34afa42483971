import pytest

from benchmarks.report.figures import Figures
from benchmarks.report.goals import GOALS, Goal, Verdict
from tests.unit.benchmarks.made_figures import (
    CODE,
    a_graph,
    a_race,
    a_reading,
    a_step,
    a_table,
    a_task,
    figures_of,
    grown,
)


def goal(beginning: str) -> Goal:
    [found] = [goal for goal in GOALS if goal.work.startswith(beginning)]
    return found


def test_without_figures_every_goal_is_not_measured() -> None:
    assert {goal.verdict(Figures({}, CODE)) for goal in GOALS} == {Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("native", "verdict"), [(2.9, Verdict.MISSED), (3.0, Verdict.MUST), (3.9, Verdict.MUST), (4.0, Verdict.AIM)]
)
def test_a_rate_must_be_at_least_its_bounds(native: float, verdict: Verdict) -> None:
    figures = figures_of(native__1M_uniform=a_race(1_000_000, OURS=0.5, NATIVE=native))
    assert goal("1M keys, batches of 1M rows").verdict(figures) == verdict


@pytest.mark.parametrize(("ours", "verdict"), [(0.15, Verdict.AIM), (0.2, Verdict.MUST), (0.21, Verdict.MISSED)])
def test_a_time_must_be_at_most_its_bounds(ours: float, verdict: Verdict) -> None:
    figures = figures_of(native__1M_uniform=a_race(1_000, OURS=ours, NATIVE=0.2, NOTHING=0.08))
    assert goal("1M keys: the time of a trigger of 1k rows").verdict(figures) == verdict


def test_our_own_share_is_what_doing_nothing_does_not_take() -> None:
    share = goal("our own share of a trigger of 1k rows")
    near = figures_of(native__1M_uniform=a_race(1_000, OURS=0.095, NATIVE=0.2, NOTHING=0.08))
    far = figures_of(native__1M_uniform=a_race(1_000, OURS=0.16, NATIVE=0.2, NOTHING=0.08))
    assert share.value(near) == pytest.approx(15)
    assert (share.verdict(near), share.verdict(far)) == (Verdict.AIM, Verdict.MISSED)


def test_the_worst_cell_and_the_mean_of_all_are_judged() -> None:
    figures = figures_of(
        native__1M_uniform=a_race(1_000, OURS=0.1, NATIVE=0.2), native__10k_zipf=a_race(1_000_000, OURS=0.1, NATIVE=0.8)
    )
    assert goal("rows a second against groupBy().agg() on RocksDB, the worst").value(figures) == pytest.approx(2)
    assert goal("the same, the geometric mean").value(figures) == pytest.approx(4)
    assert goal("10k keys, batches of 1M rows").value(figures) == pytest.approx(8)


def test_reading_is_compared_with_one_file() -> None:
    figures = figures_of(reading__10M=a_reading(ours=0.3, parquet=0.2, sparks=1.0))
    assert goal("10M keys, 1,000 keys").value(figures) == pytest.approx(1.5)
    assert goal("10M keys, all rows, `SparkReader`").verdict(figures) == Verdict.MUST


def test_memory_is_compared_with_a_million_keys() -> None:
    few, many = (a_task(peak) for peak in (100_000_000, 160_000_000))
    assert goal("the most memory").value(figures_of(engine__1M=few, engine__100M=many)) == pytest.approx(1.6)
    assert goal("the most memory").value(figures_of(engine__1M=few)) is None


def test_doing_nothing_is_the_most_that_can_be_reached() -> None:
    figures = figures_of(native__1M_uniform=a_race(200_000, OURS=0.25, NATIVE=1.0, NOTHING=0.2))
    assert goal("1M keys, batches of 200k rows: of").value(figures) == pytest.approx(80)


def test_growth_is_compared_with_a_million_keys() -> None:
    figures = figures_of(growth__1M=grown(0.4), growth__10M=grown(0.5), growth__100M=grown(0.8))
    assert goal("a trigger of 200k rows at 10M").value(figures) == pytest.approx(1.25)
    assert goal("a trigger of 200k rows at 100M").value(figures) == pytest.approx(2)


def test_the_size_with_the_most_uneven_triggers_counts() -> None:
    figures = figures_of(growth__1M=grown(0.4), growth__10M=grown(0.4, slow=1.0))
    assert goal("p95 of a trigger").value(figures) == pytest.approx(2.5)


def test_rows_merged_are_unknown_where_a_release_did_not_report_them() -> None:
    merged = goal("the most rows merged")
    assert merged.value(figures_of(growth__1M=grown(0.4))) is None
    assert merged.value(figures_of(growth__1M=grown(0.4, merged=70_000))) == 1


def test_recovery_is_what_an_empty_stream_does_not_need() -> None:
    assert goal("recovery at 10M").value(figures_of(growth__10M=grown(0.4, recovery=0.7))) == pytest.approx(0.7)


def test_commits_are_judged_by_the_slow_ones() -> None:
    figures = figures_of(commit__512x8={"seconds": [0.02] * 90 + [0.07] * 10})
    assert goal("commit").value(figures) == pytest.approx(70)


@pytest.mark.parametrize(("ours", "verdict"), [(0.1, Verdict.MUST), (0.13, Verdict.MISSED)])
def test_a_step_is_compared_with_sparks(ours: float, verdict: Verdict) -> None:
    figures = figures_of(steps__interval_join=a_step(ours, 1.0))
    assert goal("interval join").verdict(figures) == verdict


def test_the_step_that_leaves_most_behind_counts() -> None:
    figures = figures_of(steps__interval_join=a_step(1, 8), steps__session=a_step(1, 2, state=1_700))
    left = goal("bytes of a step's state")
    assert left.value(figures) == pytest.approx(1.7)
    assert left.verdict(figures) == Verdict.MISSED


def test_a_second_step_is_compared_with_the_first() -> None:
    figures = figures_of(
        graph__200k=a_graph(ONE=0.4, TWO=0.6, THREE=0.8, CHAIN=2.4),
        graph__1k=a_graph(ONE=0.1, TWO=0.17, THREE=1, CHAIN=1),
    )
    assert goal("a second step: a trigger of 200k").value(figures) == pytest.approx(1.5)
    assert goal("a second step: what it adds").value(figures) == pytest.approx(70)
    assert goal("three steps in one stream").value(figures) == pytest.approx(3)


def test_a_table_is_compared_with_the_same_at_a_million_keys() -> None:
    figures = figures_of(
        tables__join_1M=a_table(0.4, 0.2), tables__join_10M=a_table(0.5, 0.3), tables__top_10M=a_table(9, 9)
    )
    assert goal("join over a changing table").value(figures) == pytest.approx(1.25)
    assert goal("top 3 over a changing table").verdict(figures) == Verdict.UNKNOWN
