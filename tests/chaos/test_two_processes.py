"""Two processes, each with a Spark and a Dagster of its own, write one stream at the same time."""

from pathlib import Path

import pandas as pd
import pytest

from tests.chaos.world import Feed, until
from tests.chaos.writers import STREAM, bring_into_the_middle, term, writer


@pytest.mark.timeout(1200)
def test_of_two_processes_in_the_middle_of_an_epoch_the_older_is_fenced_and_no_row_is_doubled(tmp_path: Path) -> None:
    feed = Feed(tmp_path, STREAM)
    feed.drop(2)
    older = writer(tmp_path, "older", "home of the older", {"mode": "continuous"})
    try:
        bring_into_the_middle(feed)
        before = term(tmp_path)
        newer = writer(tmp_path, "newer", "home of the newer", {"mode": "available_now", "take_over": True})
        try:
            until("the newer one has opened the stream", lambda: term(tmp_path) > before)
            (feed.folder / "inside").unlink()
            until("both stand before the gate", lambda: feed.inside)
            # Now both hold the same rows, and both go on to commit them.
            feed.open_gate()
            assert newer.wait(360) == 0, (tmp_path / "newer.log").read_text()
        finally:
            newer.kill()
        assert older.wait(360) == 1
        assert "FencedError: another writer took over the stream" in (tmp_path / "older.log").read_text()
    finally:
        older.kill()
    pd.testing.assert_frame_equal(feed.table(), feed.batch())
