"""The README's first example, the project that `dagster-ckpt init` makes, run by Dagster with the installed wheel."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_example_is_the_projects() -> None:
    template = ROOT / "dagster_ckpt" / "cli" / "project" / "template"
    assert BLOCKS[0] == (template / "definitions.py").read_text()
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 36


@pytest.mark.dagster
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.reads_streams
@pytest.mark.timeout(600)
def test_the_project_from_the_wheel_makes_tables_that_the_second_example_reads(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    installed, project = tmp_path / "installed", tmp_path / "shop"

    def run(*words: str, folder: Path) -> str:
        environment = {**os.environ, "PYTHONPATH": str(installed), "DAGSTER_HOME": str(project / ".dagster")}
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            timeout=500,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", f"--target={installed}", wheel, folder=tmp_path)
    assert str(installed) in run("-c", "import dagster_ckpt; print(dagster_ckpt.__file__)", folder=tmp_path)
    assert "dagster dev" in run("-m", "dagster_ckpt.cli", "init", "shop", folder=tmp_path)
    streams = "delay_by_carrier,late_carriers,delay_report,worst_carriers"
    definitions = (project / "definitions.py").read_text()
    with_a_query = definitions.replace("@dg.asset\n", f"{BLOCKS[2]}\n\n@dg.asset\n")
    (project / "definitions.py").write_text(with_a_query.replace("late_carriers],", "late_carriers, worst_carriers],"))
    one_process = json.dumps({"execution": {"config": {"in_process": {}}}})  # one JVM for both streams
    launch = ("-m", "dagster", "asset", "materialize", "-m", "definitions", "--config-json", one_process)
    run(*launch, "--select", streams, folder=project)
    reading = (
        BLOCKS[1]
        .replace("\nCheckpointStore", "\ntable = CheckpointStore")
        .replace("file:///shop/checkpoints", (project / "checkpoints").as_uri())
    )
    (project / "reading.py").write_text(reading + "\nprint(sum(table['flights'].to_pylist()), table.num_rows)\n")
    assert run("reading.py", folder=project).split() == ["1000", "5"]
    store = (project / "checkpoints").as_uri()
    worst = run("-m", "dagster_ckpt.cli", "--store", store, "read", "worst_carriers", "--json", folder=project)
    assert json.loads(worst)["rows"] == 3
    assert "of late_carriers" in run(
        "-m", "dagster_ckpt.cli", "--store", store, "read", "late_carriers", folder=project
    )
