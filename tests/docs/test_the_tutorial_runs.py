"""The tutorial: its changes of `definitions.py` load one after another, its scripts and command lines run."""

import re
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from dagster_ckpt import CheckpointStore
from tests.docs import shop_store
from tests.docs.tutorial_page import PAGE, STEPS, TEMPLATE, block, load


def test_the_tutorial_has_ten_steps_and_shows_the_projects_first_stream() -> None:
    assert len(STEPS) == 11
    assert block(1, "def delay_by_carrier") in (TEMPLATE / "definitions.py").read_text()


@pytest.mark.parametrize(
    ("step", "streams"),
    [
        (1, {"delay_by_carrier", "late_carriers"}),
        (4, {"delay_by_carrier", "late_carriers", "all_flights"}),
        (5, {"delay_by_carrier", "late_carriers", "all_flights"}),
        (8, {"delay_by_carrier", "late_carriers", "all_flights", "dev/delay_by_carrier"}),
        (9, {"delay_by_carrier", "late_carriers", "all_flights", "dev/delay_by_carrier"}),
    ],
)
def test_the_location_loads_after_each_step(
    step: int, streams: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = load(step, tmp_path, monkeypatch)["defs"].get_repository_def()
    keys = {key.to_user_string() for key in location.asset_graph.materializable_asset_keys}
    assert keys == streams | {"departures", "delay_report"}
    checks = {key.name for key in location.asset_graph.asset_check_keys}
    assert ("delays_are_plausible" in checks) == (step >= 5)


def test_the_check_passes_with_delays_of_minutes_and_fails_with_the_wrong_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = load(5, tmp_path, monkeypatch)
    check = names["delays_are_plausible"]
    assert check(pd.DataFrame({"mean_delay": [8.0, 17.0]})).passed
    names["FOLDER"].mkdir(parents=True)
    exec(block(7, "wrong.parquet"), {})
    rows = pq.read_table(names["FOLDER"] / "wrong.parquet").to_pandas()
    assert set(rows.columns) == {"carrier", "dep_delay"}
    assert not check(rows.groupby("carrier", as_index=False).agg(mean_delay=("dep_delay", "mean"))).passed


def test_the_script_that_reads_a_stream_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    shop_store.make(tmp_path / "checkpoints")
    monkeypatch.chdir(tmp_path)
    exec(block(3, "CheckpointStore"), {})
    assert "'carrier': 'WN'" in capsys.readouterr().out


def test_the_command_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store: CheckpointStore = shop_store.make(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    lines = shop_store.lines_of(PAGE)
    assert len(lines) >= 12
    for line in lines:
        assert shop_store.run(line, store), line


def test_the_run_config_of_the_tutorial_fits_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [config] = re.findall(r"^```yaml\n(.*?)^```$", STEPS[9], re.DOTALL | re.MULTILINE)
    location = load(9, tmp_path, monkeypatch)["defs"].get_repository_def()
    assert dg.validate_run_config(location.get_job("delay_by_carrier_job"), yaml.safe_load(config))
