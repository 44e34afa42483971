"""A project as `create-dagster` makes it, with streams in YAML: made, checked and run by `dg`, with the wheel."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hatchling.builders.wheel import WheelBuilder

from dagster_ckpt import CheckpointStore
from dagster_ckpt.cli import project as init

pytest.importorskip("create_dagster", reason="a project of dg needs dagster-ckpt[dg]")
pytest.importorskip("dagster_dg_cli", reason="a project of dg needs dagster-ckpt[dg]")

pytestmark = [pytest.mark.spark, pytest.mark.reads_streams, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COMPONENT = "dagster_ckpt.StreamingComponent"
DELIVERY = "dagster_ckpt.DeliveryComponent"
DELAYS = """
type: dagster_ckpt.StreamingComponent
attributes:
  asset:
    key: delay_by_carrier
  shards: 2
  source:
    format: parquet
    path: "{{ context.project_root }}/data"
    schema: carrier string, dep_delay double
    options: {maxFilesPerTrigger: 1}
  steps:
    - where: dep_delay IS NOT NULL
    - with_columns: {late: CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END}
    - key_by: [carrier]
    - aggregate:
        flights: count()
        late: {sum: late}
        mean_delay: {avg: dep_delay}
  checkpoints:
    url: "file://{{ context.project_root }}/checkpoints"
  spark:
    spark.master: local[2]
    spark.ui.enabled: false
    spark.driver.extraJavaOptions: -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""
LATE = """
type: dagster_ckpt.StreamingComponent
attributes:
  asset:
    key: late_carriers
  shards: 2
  upstream: delay_by_carrier
  steps:
    - where: mean_delay > 15
"""
LATE_IN_FILES = """
type: dagster_ckpt.DeliveryComponent
attributes:
  stream: late_carriers
  name: late_in_files
  to:
    parquet_folder:
      url: "file://{{ context.project_root }}/delivered"
  mode: append
"""
# Else each step is a process of its own, with its own Spark.
IN_PROCESS = json.dumps({"execution": {"config": {"in_process": {}}}})
RUN = """
import json, sys
from {command} import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["dg", *words]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""
Dg = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("components") / "shop"


@pytest.fixture(scope="module")
def dg(project: Path) -> Dg:
    """Runs commands of `dg` in the project, which does not see the checkout, in one process: its start takes long."""
    folder = project.parent
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    (folder / "home").mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "installed"), str(project / "src")]),
        "DAGSTER_HOME": str(folder / "home"),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",  # it would ask the package index
        "NO_COLOR": "1",
    }

    def run(*commands: Sequence[str], command: str = "dagster_dg_cli.cli") -> subprocess.CompletedProcess[str]:
        there = project if project.exists() else folder
        return subprocess.run(
            [sys.executable, "-c", RUN.format(command=command), json.dumps(commands)],
            cwd=there,
            env=environment,
            timeout=600,
            capture_output=True,
            text=True,
            check=False,
        )

    made = run(["project", project.name, "--no-uv-sync"], command="create_dagster.cli")
    assert made.returncode == 0, made.stdout + made.stderr
    return run


def done(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.long
def test_a_project_is_scaffolded_checked_and_run_to_a_committed_epoch(dg: Dg, project: Path) -> None:
    scaffolds = (["scaffold", "defs", COMPONENT, "made_up"], ["scaffold", "defs", DELIVERY, "in_files"])
    listed, _ = json.JSONDecoder().raw_decode(done(dg(["list", "components", "--json"], *scaffolds)))
    assert {COMPONENT, DELIVERY} <= {each["key"] for each in listed["items"]}
    delays = project / "src" / "shop" / "defs" / "delay_by_carrier" / "defs.yaml"
    delays.parent.mkdir()
    delays.write_text(DELAYS.replace("aggregate", "agregate"))
    made_up = project / "src" / "shop" / "defs" / "made_up" / "defs.yaml"
    _, _, spark = DELAYS.partition("  spark:\n")
    made_up.write_text(made_up.read_text().replace("    spark.master: local[2]\n", spark))
    delivery = project / "src" / "shop" / "defs" / "late_in_files" / "defs.yaml"
    delivery.parent.mkdir()
    delivery.write_text(LATE_IN_FILES.replace("url:", "uri:"))
    wrong = dg(["check", "yaml", str(delays.parent), str(delivery.parent)])
    assert wrong.returncode == 1
    assert "delay_by_carrier/defs.yaml:16" in wrong.stdout
    assert "('agregate' was unexpected)" in wrong.stdout
    assert "late_in_files/defs.yaml:8" in wrong.stdout
    delivery.write_text(LATE_IN_FILES)
    delays.write_text(f"{DELAYS}---{LATE}")
    (project / "data").mkdir()
    for number, delay in enumerate([10.0, 20.0]):
        rows = pa.table({"carrier": ["UA", "AA", "UA"], "dep_delay": [delay, None, 30.0]})
        pq.write_table(rows, project / "data" / f"{number}.parquet")
    assets = "delay_by_carrier,late_carriers,late_in_files,made_up"
    ran = done(dg(["check", "defs"], ["launch", "--assets", assets, "--config-json", IN_PROCESS]))
    assert "All definitions loaded successfully" in ran
    store = CheckpointStore((project / "checkpoints").as_uri())
    of_ua = {"carrier": "UA", "flights": 4, "late": 3, "mean_delay": 22.5}
    assert store.stream("delay_by_carrier").read().to_pylist() == [of_ua]
    assert store.stream("late_carriers").read().to_pylist() == [of_ua]
    [newest] = json.loads(max((project / "delivered" / "_manifest").iterdir()).read_text())["files"]
    [delivered] = pq.read_table(project / "delivered" / newest["path"]).to_pylist()
    assert delivered.items() >= {**of_ua, "_change_type": "insert"}.items()
    made = store.stream("made_up").read()
    assert made.column_names == ["key", "rows", "largest"]
    assert made.column("rows").to_pylist() == [10] * 10


@pytest.mark.long
def test_what_init_lays_out_is_a_project_of_dg_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "_make_first_data", lambda _folder: None)
    init.create(tmp_path / "shop")
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path / "shop" / init.HOME)}
    for verbs in (["check", "defs"], ["scaffold", "defs", COMPONENT, "flights"]):
        done = subprocess.run(
            [Path(sys.executable).with_name("dg"), *verbs],
            cwd=tmp_path / "shop",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "shop" / "defs" / "flights" / "defs.yaml").is_file()
