"""The code location is what a new user copies: it loads, from anywhere, with a job for each stream."""

import subprocess
import sys
from pathlib import Path

import pytest

from demo.story import IN_TIME

ROOT = Path(__file__).parents[2]
STREAMS = [
    "aircraft_rotations",
    "busiest_aircraft",
    "delay_by_carrier",
    "delay_by_route",
    "delays_by_hour",
    "departures",
    "departures_with_weather",
    "late_carriers",
    "punctuality_by_day",
    "slow_routes",
    "top_aircraft",
    "worst_routes",
]
REPORTS = ["carrier_report"]

LOADED = """
import definitions
from dagster import DefaultSensorStatus
repository = definitions.defs.get_repository_def()
print(*sorted(key.to_user_string() for key in repository.assets_defs_by_key))
print(*sorted(job for job in repository.job_names if not job.startswith("__")))
print(*sorted(
    f"{parent.to_user_string()}->{key.to_user_string()}"
    for key, asset in repository.assets_defs_by_key.items() for parent in asset.asset_deps[key]
))
print(*sorted(node.name for node in repository.get_job("flights_in_time_job").nodes))
print(*(sensor.name for sensor in repository.sensor_defs if sensor.default_status is DefaultSensorStatus.RUNNING))
"""


@pytest.mark.dagster
def test_it_loads_with_a_job_for_each_stream_and_the_recovery_sensor_on(tmp_path: Path) -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=ROOT,
        env={"DAGSTER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assets, jobs, edges, in_one_run, sensors = loaded.stdout.splitlines()
    assert assets.split() == sorted([*STREAMS, *REPORTS])
    assert jobs.split() == sorted(["flights_in_time_job", *(f"{name}_job" for name in [*STREAMS, *REPORTS])])
    assert edges.split() == [
        "busiest_aircraft->top_aircraft",
        "delay_by_carrier->carrier_report",
        "delay_by_carrier->late_carriers",
        "delay_by_carrier->slow_routes",
        "delay_by_route->slow_routes",
        "departures->punctuality_by_day",
        "late_carriers->carrier_report",
    ]
    assert in_one_run.split() == sorted(IN_TIME), "the demo waits for these in one Dagster run"
    assert len(sensors.split()) == 1


@pytest.mark.dagster
def test_its_workspace_loads_from_any_folder(tmp_path: Path) -> None:
    """Paths in it are relative to the file, not to where `dagster dev` was started."""
    checked = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "--workspace", str(ROOT / "workspace.yaml")],
        cwd=tmp_path,
        env={"DAGSTER_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.long
@pytest.mark.dagster
@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("DAGSTER_CKPT_INPUT", "INPUT"),
        ("DAGSTER_CKPT_WEATHER", "WEATHER"),
        ("DAGSTER_CKPT_STORE", "STORE"),
        ("DAGSTER_CKPT_REPORT", "REPORT"),
    ],
)
def test_the_environment_can_move_input_and_store(variable: str, name: str) -> None:
    printed = subprocess.run(
        [sys.executable, "-c", f"from resources.places import {name}; print({name})"],
        cwd=ROOT,
        env={variable: "file:///elsewhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.strip() == "file:///elsewhere"
