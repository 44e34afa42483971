"""The linear fit of measured costs, and its estimates for larger clusters."""

import io
import re

import pytest
from rich.console import Console

from benchmarks.on_executors import Cost, fitted, report

COSTS = [
    Cost(executors, tasks, wall_ms=100 + tasks, driver_ms=50 + 2 * tasks + 3 * executors, executors_ms=20 + 5 * tasks)
    for executors in (1, 2, 4)
    for tasks in (2, 8, 32)
]


def test_costs_that_lie_in_a_plane_are_found_again() -> None:
    fit = fitted(COSTS, [cost.driver_ms for cost in COSTS])
    assert (fit.alone, fit.task, fit.executor) == pytest.approx((50, 2, 3))
    assert fit.off == pytest.approx(0, abs=1e-9)
    assert fit.at(64, 8) == pytest.approx(50 + 128 + 24)


def test_costs_beside_the_plane_say_how_far_they_are_off() -> None:
    values = [cost.driver_ms + (10 if number % 2 else -10) for number, cost in enumerate(COSTS)]
    assert 5 < fitted(COSTS, values).off < 15


def test_the_model_adds_the_drivers_share_to_the_least_epoch() -> None:
    text = io.StringIO()
    report(COSTS, Console(file=text, width=120))
    # The least epoch, of 2 tasks on one executor, takes 102 ms, of which the driver works 57.
    [row] = re.findall(r"│ 64 +│ 8 +│ (\d+) ms +│ (\d+) ms", text.getvalue())
    assert row == ("202", str(102 + 202 - 57))
