"""Two processes, each with a Spark and a Dagster of its own, write one stream at the same time."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from dagster_ckpt import CheckpointStore
from tests.chaos.world import Feed, until

ROOT = Path(__file__).parents[2]


def _contender(place: Path, name: str, config: Mapping[str, object]) -> subprocess.Popen[bytes]:
    home = place / name
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.contender", "contested", json.dumps(config)],
            cwd=ROOT,
            env={**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_CKPT_TEST_PLACE": str(place)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


@pytest.mark.timeout(400)
def test_of_two_processes_in_the_middle_of_an_epoch_the_older_is_fenced_and_no_row_is_doubled(tmp_path: Path) -> None:
    feed = Feed(tmp_path, "contested")
    stream = CheckpointStore((tmp_path / "checkpoints").as_uri()).stream
    feed.drop(2)
    older = _contender(tmp_path, "older", {"mode": "continuous"})
    try:
        until("the older one works its first files", feed.is_through)
        feed.close_gate()
        feed.drop(2)
        until("the older one is in the middle of an epoch", lambda: feed.inside)
        term = stream("contested").manifest().term
        newer = _contender(tmp_path, "newer", {"mode": "available_now", "take_over": True})
        try:
            until("the newer one has opened the stream", lambda: stream("contested").manifest().term > term)
            (feed.folder / "inside").unlink()
            until("both stand before the gate", lambda: feed.inside)
            # Now both hold the same rows, and both go on to commit them.
            feed.open_gate()
            assert newer.wait(120) == 0, (tmp_path / "newer.log").read_text()
        finally:
            newer.kill()
        assert older.wait(120) == 1
        assert "FencedError: another writer took over the stream" in (tmp_path / "older.log").read_text()
    finally:
        older.kill()
    pd.testing.assert_frame_equal(feed.table(), feed.batch())
