"""The README's code, taken from the README, run as a new user would: in a file, with Dagster's own command."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
CARRIERS = {"AA": [2.0], "UA": [1.0, 5.0, 6.0]}


def test_the_example_has_at_most_15_lines() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.dagster
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_makes_a_table_that_the_second_one_reads(tmp_path: Path) -> None:
    departures, checkpoints = tmp_path / "departures", (tmp_path / "checkpoints").as_uri()
    departures.mkdir()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    pairs = [(carrier, delay) for carrier, delays in CARRIERS.items() for delay in delays]
    carriers, delays = zip(*pairs, strict=True)
    pq.write_table(pa.table({"carrier": carriers, "dep_delay": delays}), departures / "day.parquet")

    def written(block: str, name: str) -> Path:
        for there, here in {"data/departures": str(departures), "file:///data/checkpoints": checkpoints}.items():
            block = block.replace(f'"{there}"', f'"{here}"')
        (tmp_path / name).write_text(block)
        return tmp_path / name

    def run(*words: str) -> str:
        environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "DAGSTER_CKPT_STORE": checkpoints}
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env=environment,
            timeout=500,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    example = written(BLOCKS[0], "example.py")
    run("-m", "dagster", "asset", "materialize", "-f", str(example), "--select", "delay_by_carrier")
    reading = written(BLOCKS[1].replace("\nCheckpointStore", "\ntable = CheckpointStore"), "reading.py")
    reading.write_text(reading.read_text() + "\nprint(sorted(table.to_pylist(), key=str))\n")
    expected = [{"carrier": "AA", "flights": 1, "mean_delay": 2.0}, {"carrier": "UA", "flights": 3, "mean_delay": 4.0}]
    assert run(str(reading)).strip() == str(expected)
    assert "2 rows of delay_by_carrier" in run("-m", "dagster_ckpt.cli", "read", "delay_by_carrier")
