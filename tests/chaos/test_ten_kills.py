"""Ten real kills of every kind, on a Dagster with three streams at work: no row is lost, none is doubled.

`make chaos` does the same for hours. This is one round of it, with strikes that do not wait for each other.
"""

import random
from pathlib import Path

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.feeder import Feeder
from tests.chaos.rounds import Outcome, Rounds
from tests.chaos.strikes import Kind

ORDER = [
    Kind.PYTHON,
    Kind.STOP,
    Kind.STEP,
    Kind.DAEMON,
    Kind.JVM,
    Kind.EVERYTHING,
    Kind.PYTHON,
    Kind.WORKER,
    Kind.CODE_SERVER,
    Kind.JVM,
]


@pytest.mark.timeout(1500)
def test_ten_kills_of_every_kind_lose_and_double_no_row(tmp_path: Path) -> None:
    assert {*ORDER} == {*Kind}
    outcome = Outcome()
    with Cluster(tmp_path, {}) as cluster, Feeder(tmp_path) as feeder:
        rounds = Rounds(cluster, feeder, random.Random(5), overlap=0.8, sweep_pause_s=40.0, tell=print)
        rounds.begin()
        rounds.play(ORDER, outcome)
    assert not any(outcome.wrong.values()), outcome.wrong
    assert len(outcome.strikes) == len(ORDER)
    assert all(strike.is_over for strike in outcome.strikes)
    zombies = [strike.zombie for strike in outcome.strikes if strike.zombie is not None]
    assert [zombie.was_fenced for zombie in zombies] == [True]
