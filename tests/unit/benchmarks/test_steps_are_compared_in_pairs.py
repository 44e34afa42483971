from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.paired import Pairs, report
from benchmarks.step_kinds import KINDS
from benchmarks.step_worker import KindAtWork


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_step_has_rows_and_changes_in_each_epoch(name: str, tmp_path: Path) -> None:
    stream = KindAtWork(replace(KINDS[name], rows=200, keys=1_000), tmp_path, fill=2)
    assert [stream.epoch()["rows_out"] > 0 for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    ("cpu_ms", "same_rows", "verdict"),
    [
        ([(103.5, 100.0)] * 5, True, "**slower**"),
        ([(102.5, 100.0)] * 5, True, ""),
        ([(104.0, 100.0)] * 3 + [(90.0, 100.0)] * 2, True, ""),
        ([(90.0, 100.0)] * 5, False, "**other rows**"),
    ],
    ids=["clearly", "within 3 %", "half the epochs", "other work"],
)
def test_a_kind_is_slower_if_most_of_its_epochs_are(
    cpu_ms: list[tuple[float, float]], same_rows: bool, verdict: str
) -> None:
    pairs = Pairs(cpu_ms, cpu_ms, same_rows)
    assert pairs.verdict == verdict
    assert verdict in report("0123abc", {"top": pairs}).splitlines()[-1]
