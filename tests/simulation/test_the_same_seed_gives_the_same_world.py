import os
import subprocess
import sys
from functools import cache

import pytest

from tests.simulation.world import World

SEEDS = range(6)
OTHERS = """
import sys
from tests.simulation.world import World
print(*(World(int(seed)).run().trace_hash for seed in sys.argv[1:]))
"""


@cache
def trace_of(seed: int) -> str:
    return World(seed).run().trace_hash


def test_the_same_seed_gives_the_same_trace() -> None:
    for seed in SEEDS:
        first, second = World(seed).run(), World(seed).run()
        assert first.steps == second.steps
        assert first.trace_hash == second.trace_hash
        assert len(first.steps) > 100


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_the_same_seed_gives_the_same_trace_in_another_process(hash_seed: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", OTHERS, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [trace_of(seed) for seed in SEEDS]


def test_other_seeds_give_other_traces() -> None:
    assert len({trace_of(seed) for seed in SEEDS}) == len(SEEDS)
