"""`drain`: for people and for programs."""

import json
from pathlib import Path

import pytest

from dagster_ckpt.history import drain
from dagster_ckpt.protocol.drain_request import DrainRequest
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.drain_requests import write_drain
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "_LOOK_MS", 5)


def test_without_a_writer_there_is_nothing_to_drain(command: Command) -> None:
    for words in (["drain", "departures"], ["drain", "departures", "--wait"]):
        result = command(*words)
        assert (result.exit_code, result.stdout) == (0, "departures has no live writer: there is nothing to drain.\n")
    assert json.loads(command("drain", "departures", "--json").stdout) == {
        "streams": [{"stream": "departures", "writer": None}]
    }


def test_a_live_writer_is_asked(command: Command, tmp_path: Path) -> None:
    live = MadeStream(tmp_path.as_uri(), "live")
    told = command("drain", "live", "departures").stdout.splitlines()
    assert told[0].startswith("live ends at its next epoch: Dagster run dagster-run-1 on ")
    assert told[1].startswith("departures has no live writer")
    [found] = json.loads(command("drain", "live", "--json").stdout)["streams"]
    assert (found["stream"], found["writer"]["dagster_run_id"], found["writer"]["life"]) == (
        "live",
        "dagster-run-1",
        "beating",
    )
    live.close()


def test_wait_returns_when_the_writer_has_ended(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = MadeStream(tmp_path.as_uri(), "live")
    live.commit()

    def honoured(store: ObjectStore, request: DrainRequest) -> None:
        write_drain(store, request)
        live.close()

    monkeypatch.setattr(drain, "write_drain", honoured)
    result = command("drain", "live", "--wait")
    assert result.exit_code == 0
    assert result.stdout.startswith("live has ended at epoch 2: Dagster run dagster-run-1 on ")
    assert result.stdout.endswith("ended: the test is over.\n")


def test_a_writer_that_dies_while_it_is_waited_for_is_status_1(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = MadeStream(tmp_path.as_uri(), "live")
    looks = iter([False])
    monkeypatch.setattr("dagster_ckpt.history.info.writer_info.is_gone", lambda _: next(looks, True))
    result = command("drain", "live", "--wait", "--json")
    assert result.exit_code == 1
    assert "live: the writer died" in result.stderr
    assert json.loads(result.stdout) == {"streams": []}
    live.close()


def test_an_unknown_stream_fails_before_any_drain_request(command: Command, tmp_path: Path) -> None:
    live = MadeStream(tmp_path.as_uri(), "live")
    assert command("drain", "live", "departure").exit_code == 1
    assert not (tmp_path / "live/requests").exists()
    live.close()
