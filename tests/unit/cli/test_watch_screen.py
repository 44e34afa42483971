"""`show` has the writer and the progress of the next epoch; `show --watch` follows them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch
from dagster_ckpt.protocol.lease import EpochProgress
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream, departures

WORK = EpochProgress(Epoch(3), 12_000, 37, 200, "host-3 (task 12) works shards 4, 5", 9_000)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[MadeStream]:
    """A stream that is written: epoch 2 is there, of epoch 3 37 of 200 tasks are done."""
    made = MadeStream(tmp_path.as_uri(), "live")
    made.commit(departures({"UA": [1.0]}))
    made.writer.heartbeat.works(WORK)
    made.writer.heartbeat.beat()
    yield made
    made.close()


def test_show_has_the_writer_and_the_progress_of_the_next_epoch(command: Command, live: MadeStream) -> None:
    shown = command("show", "live").stdout
    assert "Dagster run dagster-run-1 on " in shown
    assert "epoch 3: 37 of 200 tasks done in 12 s; slowest: host-3 (task 12) works shards 4, 5, 9.0 s" in shown
    writer = json.loads(command("show", "live", "--json").stdout)["writer"]
    assert (writer["life"], writer["epoch"]) == ("beating", 2)
    assert writer["work"] == {
        "epoch": 3,
        "elapsed_ms": 12_000,
        "tasks_done": 37,
        "tasks": 200,
        "slowest": "host-3 (task 12) works shards 4, 5",
        "slowest_ms": 9_000,
    }
    live.commit(departures({"UA": [1.0]}))
    assert json.loads(command("show", "live", "--epoch", "2", "--json").stdout)["writer"] is None


def test_watch_follows_until_the_writer_has_ended(
    command: Command, live: MadeStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([lambda: live.commit(departures({"UA": [1.0]})), live.close])
    monkeypatch.setattr(SystemClock, "sleep_ms", lambda _, __: next(steps)())
    result = command("show", "live", "--watch")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["stream", "live"] in lines
    assert ["so", "far", "2", "rows", "in", "2", "epochs"] in lines
    assert "ended: the test is over" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_ctrl_c_ends_it_without_an_error(command: Command, live: MadeStream, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep_ms", interrupted)
    result = command("show", "live", "--watch")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "37 of 200 tasks, 12 s" in result.stdout
    assert "host-3 (task 12) works shards 4, 5, for 9.0 s" in result.stdout


def test_a_stream_without_a_writer_is_shown_once(command: Command) -> None:
    result = command("show", "departures", "--watch")
    assert result.exit_code == 0
    assert "ended: the test is over" in result.stdout


@pytest.mark.parametrize("words", [["--epoch", "2"], ["--as-of", "2013-01-01"], ["--json"]])
def test_only_the_current_epoch_can_be_watched_and_only_by_people(command: Command, words: list[str]) -> None:
    assert command("show", "departures", "--watch", *words).exit_code == 2
