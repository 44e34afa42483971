"""A stream under a freshness policy, judged by Dagster's own daemon, a process as in production: `make test-daemon`.

It takes minutes, because a freshness window has at least one. What decides is also tested without waiting, in
tests/unit/integration/events/test_quiet_stream_events.py.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dagster._core.definitions.freshness import FreshnessState

from dagster_ckpt import CheckpointStore, InvalidPipelineError
from demo.processes import kill_all
from tests.chaos.services import ROOT
from tests.chaos.world import until

LOCATION = Path(__file__).with_name("location.py")
DAEMON = str(Path(sys.executable).with_name("dagster-daemon"))
CLICKS = dg.AssetKey("clicks")
SELECTED = ("--select", "clicks")
WINDOW_S = 60.0
"""Of the policy in location.py."""

EVALUATED_S = 5
"""How often the daemon evaluates, instead of every 30 s."""

QUIET_S = 1.75 * WINDOW_S
INSTANCE = """
telemetry: {enabled: false}
nux: {enabled: false}
freshness: {enabled: true}
"""


@contextmanager
def running(place: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, below `place`; nothing of it is left in the end."""
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(place / "home"),
        "DAGSTER_CKPT_TEST_PLACE": str(place),
        "FRESHNESS_DAEMON_INTERVAL_SECONDS": str(EVALUATED_S),
    }
    with (place / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 (one thread)
        )
    try:
        yield process
    finally:
        kill_all(process.pid)
        process.wait()


def state(instance: dg.DagsterInstance) -> FreshnessState | None:
    """What the daemon found last; None before it has found anything."""
    found = instance.get_freshness_state_records([CLICKS]).get(CLICKS)
    return None if found is None else found.freshness_state


def epoch(place: Path) -> int:
    try:
        return CheckpointStore((place / "checkpoints").as_uri()).stream("clicks").latest().epoch
    except InvalidPipelineError:
        return 0


@pytest.mark.timeout(900)
def test_dagsters_daemon_finds_a_quiet_stream_fresh_and_a_dead_one_late(tmp_path: Path) -> None:
    home, inbox, workspace = tmp_path / "home", tmp_path / "inbox", tmp_path / "workspace.yaml"
    home.mkdir()
    inbox.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE)
    workspace.write_text(f"load_from:\n  - python_file: {LOCATION}\n")
    pq.write_table(pa.table({"page": ["start", "shop", "start"]}), inbox / "0.parquet")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        daemon = running(tmp_path, "daemon", DAEMON, "run", "--workspace", str(workspace))
        stream = running(tmp_path, "stream", "-m", "dagster", "asset", "materialize", "-f", str(LOCATION), *SELECTED)
        with daemon as judge, stream as writer:
            until("the daemon finds the stream fresh", lambda: state(instance) is FreshnessState.PASS)
            quiet_at, quiet_from_s = epoch(tmp_path), time.monotonic()
            assert quiet_at > 0

            found = set()
            while time.monotonic() - quiet_from_s < QUIET_S:
                assert writer.poll() is None, (tmp_path / "stream.log").read_text()
                assert judge.poll() is None, (tmp_path / "daemon.log").read_text()
                found.add(state(instance))
                time.sleep(1)
            assert found == {FreshnessState.PASS}
            assert epoch(tmp_path) == quiet_at, "it was quiet"
            assert instance.get_daemon_heartbeats()["FRESHNESS_DAEMON"].errors == [], "what the daemon could not do"

            kill_all(writer.pid)
            died_s = time.monotonic()
            # Its last materialization is at most half a window old when it dies.
            until("the daemon finds it late", lambda: state(instance) is not FreshnessState.PASS, 2 * WINDOW_S)
            assert state(instance) is FreshnessState.FAIL
            assert WINDOW_S / 3 < time.monotonic() - died_s < WINDOW_S + 3 * EVALUATED_S
