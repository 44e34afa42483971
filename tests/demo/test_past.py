"""What is said of a rollback and of a fork is what readers see."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from dagster_ckpt import CheckpointStore
from demo.past import fork, roll_back, tell_forward
from demo.report import Report
from tests.unit.history.made_streams import MadeStream, departures


@pytest.fixture
def stream(tmp_path: Path) -> MadeStream:
    """Epoch 2 has two flights of one carrier, epoch 3 a third, of another."""
    made = MadeStream(tmp_path.as_uri(), "delays")
    made.commit(departures({"UA": [1.0, 5.0]}))
    made.commit(departures({"AA": [2.0]}))
    made.close()
    return made


@pytest.fixture
def store(stream: MadeStream) -> CheckpointStore:
    return CheckpointStore(stream.url)


@pytest.fixture
def screen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def report(screen: io.StringIO) -> Report:
    return Report(Console(file=screen, width=200))


def test_a_rollback_says_what_readers_see_and_saw(
    stream: MadeStream, store: CheckpointStore, report: Report, screen: io.StringIO
) -> None:
    roll_back("delays", store, report)
    assert "delays from epoch 3 to 2" in screen.getvalue()
    assert "see 2 flights of 1 carriers; before that 3 flights of 2 carriers" in screen.getvalue()
    assert store.stream("delays").latest().epoch == 2
    stream.open()
    stream.commit(departures({"AA": [2.0]}))
    tell_forward("delays", store, report)
    newest = store.stream("delays").latest().epoch
    assert f"is at epoch {newest}: 3 flights of 2 carriers" in screen.getvalue()


def test_a_fork_begins_with_an_older_epoch_and_leaves_its_origin_alone(
    store: CheckpointStore, report: Report, screen: io.StringIO
) -> None:
    fork("delays", "dev/delays", store, report)
    assert "delays as of epoch 2 is dev/delays too" in screen.getvalue()
    assert "see 2 flights of 1 carriers; those of delays 3 flights of 2 carriers" in screen.getvalue()
    assert store.streams() == ["delays", "dev/delays"]
