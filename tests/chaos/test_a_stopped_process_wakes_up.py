"""SIGSTOP of a writer in the middle of an epoch, for longer than its lease; another takes over; then SIGCONT."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from dagster_ckpt import CheckpointStore
from tests.chaos.world import Feed, until

ROOT = Path(__file__).parents[2]


def _writer(place: Path, name: str, mode: str) -> subprocess.Popen[bytes]:
    """A process that materializes the stream; all of them share one Dagster instance, so none needs to take over."""
    home = place / "home"
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.contender", "contested", json.dumps({"mode": mode})],
            cwd=ROOT,
            env={**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_CKPT_TEST_PLACE": str(place)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _told(place: Path) -> list[int]:
    """The epochs that Dagster was told of, oldest first."""
    with dg.DagsterInstance.from_config(str(place / "home")) as instance:
        records = instance.fetch_materializations(dg.AssetKey("contested"), limit=1000).records
    events = [record.asset_materialization for record in reversed(records)]
    return [int(str(event.metadata["epoch"].value)) for event in events if event is not None]


@pytest.mark.timeout(400)
def test_a_process_that_was_stopped_for_longer_than_its_lease_wakes_up_and_changes_nothing(tmp_path: Path) -> None:
    feed = Feed(tmp_path, "contested")
    stream = CheckpointStore((tmp_path / "checkpoints").as_uri()).stream
    feed.drop(2)
    sleeper = _writer(tmp_path, "sleeper", "continuous")
    try:
        until("the sleeper works its first files", feed.is_through)
        feed.close_gate()
        feed.drop(2)
        until("the sleeper is in the middle of an epoch", lambda: feed.inside)
        term = stream("contested").manifest().term
        sleeper.send_signal(signal.SIGSTOP)
        # Nobody allows this one to fence: it watches a lease that does not move any more.
        successor = _writer(tmp_path, "successor", "available_now")
        try:
            until("the successor has opened the stream", lambda: stream("contested").manifest().term > term)
            feed.open_gate()
            assert successor.wait(120) == 0, (tmp_path / "successor.log").read_text()
        finally:
            successor.kill()
        pd.testing.assert_frame_equal(feed.table(), feed.batch())
        newest, told = stream("contested").manifest(), _told(tmp_path)

        # Its task stood before the same gate and has long gone through: it has all it needs to commit.
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(120) == 1
        assert "FencedError: another writer took over the stream" in (tmp_path / "sleeper.log").read_text()
    finally:
        sleeper.kill()
    assert stream("contested").manifest() == newest
    pd.testing.assert_frame_equal(feed.table(), feed.batch())
    assert _told(tmp_path) == told == sorted(told)
    assert told[-1] == newest.epoch
