import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
LIMIT_MIB = 32
BESIDE_MIB = 56
"""What libraries and threads take, however small the limit: in all 72 MiB are held of the 97 that may be.

A table that keeps a single number of every row holds 44 MiB more, and fails.
"""
GIVEN_BACK_AT_ONCE = {"MIMALLOC_PURGE_DELAY": "0", "MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "1000000"}
"""What the engine holds is measured, not what allocators keep of what it gave back."""


@pytest.mark.slow
@pytest.mark.memory
@pytest.mark.timeout(600)
def test_a_backlog_20_times_the_limit_takes_little_more_memory_than_that(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.state.backlog", str(tmp_path), str(LIMIT_MIB), "100"]
    environment = {**os.environ, **GIVEN_BACK_AT_ONCE}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["touched"] == figures["state_rows"] > 2_500_000
    assert figures["most"] - figures["before"] < 1.3 * (LIMIT_MIB << 20) + (BESIDE_MIB << 20)
