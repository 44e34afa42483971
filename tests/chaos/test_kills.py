"""Kills that no other test plays, on a Dagster with two streams at work: no row is lost, none is doubled.

`make chaos` plays every kind on three streams, for hours. This is one round of it, with kills that do not wait for each
other.
"""

import random
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.lanes import INTERVAL_VARIABLE, LANES_VARIABLE
from tests.chaos.rounds import Outcome, Rounds
from tests.chaos.strikes import ON_SPARK, Kind

# The first hurts `swept`, which must be started again; meanwhile the next two find their target.
ORDER = [Kind.STEP, Kind.DAEMON, Kind.CODE_SERVER, Kind.EVERYTHING]
TESTED_ELSEWHERE = {Kind.WORKER, Kind.JVM, Kind.PYTHON, Kind.STOP}
"""In test_a_killed_worker.py and test_a_stopped_process_wakes_up.py, in the middle of an epoch; in tests/spark, a dead
JVM and a dead worker of Spark's."""

LANES = ("keyed", "swept")
"""One that the sensor brings back and one that is started on the asset's page: a third would start three more JVMs."""

SEED = 3775
"""One that kills no worker besides a service, and waits little between kills."""


@pytest.mark.timeout(1800)
def test_kills_a_drain_and_a_rollback_lose_and_double_no_row_and_no_event(tmp_path: Path) -> None:
    assert {*ORDER} == {*Kind} - TESTED_ELSEWHERE - ON_SPARK
    outcome = Outcome()
    # So seldom that two slow cores have room for what starts beside two streams; so often that manifests are retired.
    environment = {INTERVAL_VARIABLE: "500ms", LANES_VARIABLE: ",".join(LANES)}
    with Cluster(tmp_path, environment) as cluster, Feeder(tmp_path, files_per_second=2.0) as feeder:
        rounds = Rounds(cluster, feeder, random.Random(SEED), 1.0, LANES, sweep_pause_s=10.0, tell=print)
        rounds.begin()
        rounds.play(ORDER, outcome)
    assert not any(outcome.wrong.values()), outcome.wrong
    assert set(outcome.events) == {*LANES}, "the events of each add up to its totals"
    assert len(outcome.strikes) == len(ORDER)
    assert all(strike.is_over for strike in outcome.strikes)
