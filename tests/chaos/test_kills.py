"""Kills that no other test plays, on a Dagster with three streams at work: no row is lost, none is doubled.

`make chaos` plays every kind, for hours. This is one round of it, with strikes that do not wait for each other.
"""

import random
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import INTERVAL_VARIABLE
from tests.chaos.rounds import Outcome, Rounds
from tests.chaos.strikes import Kind

# The first two hurt a stream each, which must be started again; meanwhile the third strike finds its target.
ORDER = [Kind.STEP, Kind.STOP, Kind.CODE_SERVER, Kind.EVERYTHING]
TESTED_ELSEWHERE = {Kind.WORKER, Kind.JVM, Kind.PYTHON, Kind.DAEMON}
"""In test_a_killed_worker.py, in the middle of an epoch; in tests/spark, a dead JVM and a dead worker of Spark's. The
daemon dies here with everything."""

SEED = 13528
"""One that stops a whole run, kills no worker besides a service, and waits little between strikes."""


@pytest.mark.timeout(1800)
def test_kills_lose_and_double_no_row(tmp_path: Path) -> None:
    assert {*ORDER} == {*Kind} - TESTED_ELSEWHERE
    outcome = Outcome()
    # So seldom and so few that two slow cores have room for what starts beside three streams, and for what has waited.
    with Cluster(tmp_path, {INTERVAL_VARIABLE: "1s"}) as cluster, Feeder(tmp_path, files_per_second=1.0) as feeder:
        rounds = Rounds(cluster, feeder, random.Random(SEED), overlap=1.0, sweep_pause_s=40.0, tell=print)
        rounds.begin()
        rounds.play(ORDER, outcome)
    assert not any(outcome.wrong.values()), outcome.wrong
    assert len(outcome.strikes) == len(ORDER)
    assert all(strike.is_over for strike in outcome.strikes)
    zombies = [strike.zombie for strike in outcome.strikes if strike.zombie is not None]
    assert [zombie.was_fenced for zombie in zombies] == [True]
