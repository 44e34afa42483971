from pathlib import Path

import pytest

from benchmarks.report.figures import Figures
from benchmarks.report.page import filled
from benchmarks.report.words import count, duration, size, times
from tests.unit.benchmarks.made_figures import (
    CODE,
    a_graph,
    a_query,
    a_race,
    a_reading,
    a_step,
    a_table,
    a_task,
    figures_of,
    grown,
    measured,
    spread,
)

PAGE = (Path(__file__).parents[3] / "docs/benchmarks.md").read_text()
FIGURES = figures_of(
    native__1M_uniform=a_race(200_000, OURS=0.4, NATIVE=1.2, NOTHING=0.3),
    python__10k_uniform=a_race(20_000, OURS=0.2, PROCESS=0.4, PANDAS=6.0, ROWS=2.0, APPLY=4.0),
    steps__interval_join=a_step(0.5, 5.0, state=60_000_000, live=50_000_000),
    steps__session=a_step(0.4, 1.0),
    graph__200k=a_graph(ONE=0.4, TWO=0.6, THREE=0.8, CHAIN=1.6),
    tables__top_1M=a_table(0.4, 0.1),
    tables__top_10M=a_table(0.5, 0.15),
    nexmark__q4_1M=a_query(0.2, 2.0),
    nexmark__q4_10M=a_query(0.25, 20.0),
    nexmark__q17_1M=a_query(0.1, 1.0, sparks=0.4),
    tpch__07=a_query(0.3, 6.0),
    growth__1M=grown(0.4, merged=0),
    growth__10M=grown(0.5, slow=0.9, merged=70_000),
    engine__1M=a_task(150_000_000),
    engine__100M={"seconds": [0.45] * 20, "merged_rows": [70_000] * 20, "state_bytes": 2_200_000_000},
    commit__512x8={"seconds": [0.0324] * 20},
    tasks__1k=spread(0.1, 0.11, 0.15, 0.2, 0.4, 0.8),
    reading__10M=a_reading(ours=0.3, parquet=0.2, sparks=1.0),
)


def line(page: str, beginning: str) -> str:
    [found] = [line for line in page.splitlines() if line.startswith(beginning)]
    return found


def test_what_people_wrote_stays_and_old_figures_go() -> None:
    page = "before\n<!-- figures: goals -->\nold\n<!-- end -->\nafter\n"
    new = filled(page, FIGURES)
    assert new.startswith("before\n<!-- figures: goals -->\n| work |")
    assert new.endswith("|\n<!-- end -->\nafter\n")
    assert "old" not in new


def test_filling_twice_is_filling_once() -> None:
    once = filled(PAGE, FIGURES)
    assert filled(once, FIGURES) == once


def test_an_unknown_table_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        filled("<!-- figures: weather -->\n<!-- end -->", FIGURES)


def test_each_step_is_a_line_and_a_join_takes_rows_of_both_inputs() -> None:
    page = filled("<!-- figures: steps -->\n<!-- end -->", FIGURES)
    assert line(page, "| interval join") == (
        "| interval join | 1M | 200k | 400k | 500 ms | 500 ms | 40k | 5.00 s | 5.00 s | 10 x | 60 MB | 1.20 x |"
    )
    assert line(page, "| session window").startswith("| session window | 100k | 200k | 500k |")


def test_each_shape_of_a_graph_is_a_line() -> None:
    page = filled("<!-- figures: graph -->\n<!-- end -->", FIGURES)
    assert line(page, "| 200k | one step") == "| 200k | one step | 500k | 400 ms | 400 ms |  |"
    assert line(page, "| 200k | a chain") == "| 200k | a chain of three streams | 125k | 1.60 s | 1.60 s | 4.00 x |"


def test_each_number_of_shards_and_tasks_is_a_line() -> None:
    page = filled("<!-- figures: tasks -->\n<!-- end -->", FIGURES)
    assert line(page, "| 1k | 8 | 2") == "| 1k | 8 | 2 | 100 ms | 100 ms | 1.00 x |"
    assert line(page, "| 1k | 64 | 64") == "| 1k | 64 | 64 | 800 ms | 800 ms | 8.00 x |"


def test_each_way_to_read_is_a_line() -> None:
    page = filled("<!-- figures: reading -->\n<!-- end -->", FIGURES)
    assert line(page, "| 10M | 1,000 keys") == "| 10M | 1,000 keys, `get` | 300 ms | 200 ms | 1.50 x |  |"
    assert line(page, "| 10M | all rows, `SparkReader`").endswith("| 300 ms | 200 ms | 1.50 x | 1.00 s |")


def test_each_size_of_a_table_is_a_line() -> None:
    page = filled("<!-- figures: tables -->\n<!-- end -->", FIGURES)
    assert line(page, "| top 3 | 1M") == "| top 3 | 1M | 120 MB | 50k | 400 ms | 400 ms | 1.00 x | 100 ms | 1.00 x |"
    assert line(page, "| top 3 | 10M") == "| top 3 | 10M | 120 MB | 50k | 500 ms | 500 ms | 1.25 x | 150 ms | 1.50 x |"


def test_each_query_is_a_line_whether_or_not_spark_runs_it() -> None:
    page = filled("<!-- figures: nexmark -->\n<!-- end -->", FIGURES)
    assert line(page, "| q4 | 1M") == (
        "| q4 | 1M | 50k | 200 ms | 200 ms | 120 MB | refuses it |  | 2.00 s | 10 x | 1.50 s | 500 ms |"
    )
    assert line(page, "| q17 |") == (
        "| q17 | 1M | 50k | 100 ms | 100 ms | 120 MB | 400 ms (update) | 4.0 x | 1.00 s | 10 x | 1.50 s | 500 ms |"
    )
    page = filled("<!-- figures: tpch -->\n<!-- end -->", FIGURES)
    assert line(page, "| Q7 |") == "| Q7 | 300 ms | 300 ms | 120 MB | 6.00 s | 20 x | 1.50 s | 500 ms |"
    goals = filled("<!-- figures: goals -->\n<!-- end -->", FIGURES)
    assert line(goals, "| to compile a query").endswith("| ≤ 2 s |  | 0.5 s | reached |")
    assert line(goals, "| Nexmark: a trigger").endswith("|  | ≤ 1.5 x | 1.25 x | aim reached |")


def test_each_race_is_a_line() -> None:
    page = filled("<!-- figures: native -->\n<!-- end -->\n<!-- figures: python -->\n<!-- end -->", FIGURES)
    assert line(page, "| 1M | uniform | 200k") == (
        "| 1M | uniform | 200k | 500k | 400 ms | 400 ms | 167k | 1.20 s | 1.20 s | 3.0 x |"
    )
    assert line(page, "| 10k | uniform | 20k") == (
        "| 10k | uniform | 20k | 100k | 200 ms | 50k | 3.33k (30 x) | 10k (10 x) | 5k (20 x) |"
    )


def test_our_own_share_is_what_doing_nothing_does_not_take() -> None:
    page = filled("<!-- figures: share -->\n<!-- end -->", FIGURES)
    assert line(page, "| 1M |") == "| 1M | uniform | 200k | 400 ms | 300 ms | 100 ms | 75 % |"


def test_each_size_is_a_line() -> None:
    page = filled(PAGE, FIGURES)
    assert line(page, "| 10M | 44 MB") == (
        "| 10M | 44 MB | 200k | 500 ms | 900 ms | 1.80 | 1.25 x | 70k | 1.00 | 0.50 s |"
    )
    assert line(page, "| 1M | 44 MB").endswith("| 0 |  | 0.50 s |")


def test_the_engine_alone_is_compared_with_the_smallest_state() -> None:
    page = filled(PAGE, FIGURES)
    assert line(page, "| 100M | 50M") == "| 100M | 50M | 2.2 GB | 100k | 450 ms | 450 ms | 4.50 x | 70k |  |"
    assert line(page, "| 1M | 500k").endswith("| 1.00 x | 0 | 150 MB |")
    assert line(page, "| the engine alone, at 100M").endswith("|  | ≤ 4 x | 4.5 x | **missed** |")


def test_a_missed_goal_stands_out() -> None:
    assert line(filled(PAGE, FIGURES), "| p95 of a trigger").endswith("| ≤ 2 x | ≤ 1.5 x | 1.8 x | reached |")
    assert line(filled(PAGE, FIGURES), "| commit of").endswith("| ≤ 40 ms | ≤ 25 ms | 32.4 ms | reached |")
    slow = figures_of(commit__512x8={"seconds": [0.0724] * 20})
    assert line(filled(PAGE, slow), "| commit of").endswith("| 72.4 ms | **missed** |")


def test_without_figures_the_page_says_so() -> None:
    page = filled(PAGE, Figures({}, CODE))
    assert page.count("Not measured yet.") == 14
    profile = page.partition("<!-- profile -->")[2].partition("<!-- end -->")[0]
    assert "![" not in page.replace(profile, ""), "the pictures of `make profile` are none of these figures"


def test_what_was_measured_with_other_code_is_marked_wherever_it_shows() -> None:
    old = measured("growth/10M", grown(0.5), code="another")
    page = filled(PAGE, Figures({**FIGURES.measured, "growth/10M": old}, CODE))
    assert line(page, "| 10M † | 44 MB")
    assert line(page, "| growth/10M † |")
    assert line(page, "| 1M | 44 MB")
    assert "| 1.25 x † |" in line(page, "| a trigger of 200k rows at 10M")
    assert "†" not in line(page, "| commit of")
    assert page.count("† Measured with other code") == 4
    assert "†" not in filled(PAGE, FIGURES)


@pytest.mark.parametrize(
    ("number", "text"),
    [(7.0, "7"), (950.0, "950"), (999.7, "1k"), (1_000, "1k"), (20_000, "20k"), (999_600, "1M"), (1_420_000, "1.42M")],
)
def test_counts_have_three_figures(number: float, text: str) -> None:
    assert count(number) == text


def test_other_numbers_read_well() -> None:
    assert [duration(0.0044), duration(0.9996), duration(12.34)] == ["4 ms", "1.00 s", "12.34 s"]
    assert [times(4.58), times(9.96), times(52.4)] == ["4.6 x", "10 x", "52 x"]
    assert [size(71_600_000), size(4_400_000_000)] == ["71.6 MB", "4.4 GB"]
