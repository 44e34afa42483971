"""SIGSTOP of a writer in the middle of an epoch, for longer than its lease; another takes over; then SIGCONT."""

import signal
from pathlib import Path

import dagster as dg
import pandas as pd
import pytest

from dagster_ckpt import CheckpointStore
from tests.chaos.world import Feed, until
from tests.chaos.writers import STREAM, bring_into_the_middle, term, writer


def _told(place: Path) -> list[int]:
    """The epochs that Dagster was told of, oldest first."""
    with dg.DagsterInstance.from_config(str(place / "home")) as instance:
        records = instance.fetch_materializations(dg.AssetKey("contested"), limit=1000).records
    events = [record.asset_materialization for record in reversed(records)]
    return [int(str(event.metadata["epoch"].value)) for event in events if event is not None]


@pytest.mark.timeout(1200)
def test_a_process_that_was_stopped_for_longer_than_its_lease_wakes_up_and_changes_nothing(tmp_path: Path) -> None:
    feed = Feed(tmp_path, STREAM)
    store = CheckpointStore((tmp_path / "checkpoints").as_uri())
    feed.drop(2)
    # Both use one Dagster instance, so the second need not take over. The sleeper holds the event of its newest epoch
    # back while it is stopped, and would tell it when it wakes up: an interval of a second would let it be stopped
    # between its look at the term and Dagster's log, where nobody could hold it back.
    sleeper = writer(tmp_path, "sleeper", "home", {"mode": "continuous"}, event_interval="15s")
    try:
        bring_into_the_middle(feed)
        before = term(tmp_path)
        sleeper.send_signal(signal.SIGSTOP)
        # Nobody allows this one to fence: it watches a lease that does not move any more.
        successor = writer(tmp_path, "successor", "home", {"mode": "available_now"})
        try:
            until("the successor has opened the stream", lambda: term(tmp_path) > before)
            feed.open_gate()
            assert successor.wait(360) == 0, (tmp_path / "successor.log").read_text()
        finally:
            successor.kill()
        pd.testing.assert_frame_equal(feed.table(), feed.batch())
        newest, told = store.stream(STREAM).manifest(), _told(tmp_path)

        # Its task stood before the same gate and has long gone through: it has all it needs to commit.
        sleeper.send_signal(signal.SIGCONT)
        assert sleeper.wait(360) == 1
        assert "FencedError: another writer took over the stream" in (tmp_path / "sleeper.log").read_text()
    finally:
        sleeper.kill()
    assert store.stream(STREAM).manifest() == newest
    pd.testing.assert_frame_equal(feed.table(), feed.batch())
    assert _told(tmp_path) == told == sorted(told)
    assert told[-1] == newest.epoch
