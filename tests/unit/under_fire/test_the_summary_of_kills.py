from pathlib import Path
from typing import Any

from rich.console import Console

from tests.chaos.cluster import Standing
from tests.chaos.lanes import Wrong
from tests.chaos.results import append, lines_of, percentile, read, summary
from tests.chaos.rounds import Outcome
from tests.chaos.strikes import Kind, Strike


def _line(kind: str, seconds: float | None, *, lost: int = 0, of_round: int = 0) -> dict[str, Any]:
    return {
        "kind": kind,
        "seconds": seconds,
        "compared": seconds is not None,
        "lost": lost,
        "doubled": 0,
        "seed": 1,
        "round": of_round,
    }


def _shown(*lines: dict[str, Any]) -> list[list[str]]:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary(lines))
    return [line.split() for line in captured.get().splitlines() if line.strip()]


def test_each_kind_has_its_kills_and_seconds_and_all_come_last() -> None:
    shown = _shown(*(_line("jvm", seconds) for seconds in (10.0, 30.0, 20.0)), _line("python", 1.0))
    assert ["jvm", "3", "20.0", "30.0", "30.0", "0", "0", "0"] in shown
    assert shown[-1] == ["all", "4", "15.0", "30.0", "30.0", "0", "0", "0"]


def test_rows_that_a_round_lost_count_once_for_each_kind_of_it_and_once_in_all() -> None:
    shown = _shown(
        _line("jvm", 1.0, lost=5), _line("jvm", 1.0, lost=5), _line("step", 1.0, lost=5), _line("jvm", 1.0, of_round=1)
    )
    assert ["jvm", "3", "1.0", "1.0", "1.0", "0", "5", "0"] in shown
    assert shown[-1][-2:] == ["5", "0"]


def test_rounds_of_two_worlds_are_two_rounds_although_seed_and_number_are_the_same() -> None:
    shown = _shown({**_line("jvm", 1.0, lost=5), "world": "plain"}, {**_line("jvm", 1.0, lost=5), "world": "dynamic"})
    assert shown[-1][-2:] == ["10", "0"]


def test_a_kill_of_a_round_that_broke_is_reported_and_proves_nothing() -> None:
    assert ["stop", "1", "1", "0", "0"] in _shown(_line("stop", None))


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([4, 1, 3, 2], 0.95) == 4
    assert percentile([4, 1, 3, 2], 0.5) == 2
    assert percentile([7], 0.95) == 7


def test_every_kill_of_a_round_is_a_line_with_what_the_round_lost(tmp_path: Path) -> None:
    over = Strike(Kind.JVM, {"keyed": Standing(1, 2, 3)}, at_s=0.0, seconds=7.123)
    struck = Strike(Kind.DAEMON, {"keyed": Standing()}, at_s=0.0, also="worker")
    wrong = {"keyed": Wrong(lost=2, doubled=1), "appended": Wrong(lost=1, other=4)}
    for number in range(2):
        append(lines_of(Outcome([over, struck], wrong), {"seed": 9, "round": number}), tmp_path / "folder" / "results")
    lines = read(tmp_path / "folder" / "results")
    assert [(line["kind"], line["round"], line["seconds"], line["over"]) for line in lines] == [
        ("jvm", 0, 7.12, True),
        ("daemon+worker", 0, None, False),
        ("jvm", 1, 7.12, True),
        ("daemon+worker", 1, None, False),
    ]
    assert {(line["lost"], line["doubled"], line["seed"]) for line in lines} == {(7, 1, 9)}
    assert lines[0]["lanes"] == ["keyed"]
    assert lines[0]["compared"]
    assert not lines_of(Outcome([over]), {})[0]["compared"]
