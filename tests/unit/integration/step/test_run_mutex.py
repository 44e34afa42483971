"""Streams of one Dagster run that have processes of their own work one after another."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dagster_ckpt.integration.step.turns import run_mutex
from tests.worlds.clock import StillClock

HOLDER = """
import sys, time
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.integration.step.turns import run_mutex
with run_mutex(sys.argv[1], SystemClock()):
    print("mine", flush=True)
    time.sleep(60)
"""


class BusyClock(StillClock):
    """Does something instead of sleeping."""

    def __init__(self, instead: Callable[[], object]) -> None:
        super().__init__()
        self.slept = 0
        self._instead = instead

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept += 1
        self._instead()


def test_a_turn_is_held_by_one_process_and_taken_back_from_a_dead_one() -> None:
    run_id = f"run of {Path(__file__).name}"
    with subprocess.Popen([sys.executable, "-c", HOLDER, run_id], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"

        def kill_it() -> None:
            other.kill()
            other.wait()

        clock = BusyClock(kill_it)
        with run_mutex(run_id, clock):
            assert clock.slept == 1


def test_another_dagster_run_has_a_turn_of_its_own() -> None:
    with run_mutex("one run", StillClock()), run_mutex("another run", StillClock()):
        pass
    with run_mutex("one run", StillClock()):
        pass
