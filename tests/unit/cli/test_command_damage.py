"""`verify` and `rollback`, for people and for programs."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main, progress
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream, departures
from tests.unit.history.reading_streams import MadeStreams

MANIFEST = "manifest/00000000000000000003.json"
VERIFIED = {
    "whole",
    "stream",
    "epoch",
    "good_epoch",
    "manifests",
    "runs",
    "changes",
    "index_objects",
    "pins",
    "bytes",
    "findings",
    "command",
}


def damage(tmp_path: Path) -> None:
    path = tmp_path / "flights.delays" / MANIFEST
    path.write_bytes(path.read_bytes()[:-3])


def test_a_whole_store_is_whole(command: Command) -> None:
    result = command("verify")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    assert [(row[0], row[1], row[-1]) for row in rows[1:]] == [
        ("departures", "2", "whole"),
        ("empty", "0", "whole"),
        ("flights/delays", "3", "whole"),
    ]


def test_programs_get_every_finding(command: Command, tmp_path: Path) -> None:
    found = json.loads(command("verify", "departures", "--json").stdout)
    assert found.keys() == {"store", "streams"}
    [one] = found["streams"]
    assert one.keys() == VERIFIED
    assert (one["whole"], one["findings"], one["command"]) == (True, [], None)
    damage(tmp_path)
    result = command("verify", "flights/delays", "--json")
    assert result.exit_code == 1
    [one] = json.loads(result.stdout)["streams"]
    [finding] = one["findings"]
    assert finding.keys() == {"object", "wrong", "epochs", "pins", "step"}
    assert (one["epoch"], one["good_epoch"], finding["object"]) == (None, 2, MANIFEST)


def test_damage_ends_with_1_and_the_command_that_goes_back_works(command: Command, tmp_path: Path) -> None:
    damage(tmp_path)
    result = command("verify")
    assert result.exit_code == 1
    assert MANIFEST in result.stdout
    assert "The newest epoch that is whole is 2. To roll back to it:" in result.stdout
    assert command("read", "flights/delays").exit_code == 1
    program, *words = shlex.split(result.stdout.splitlines()[-1])
    assert program == "dagster-ckpt"
    back = CliRunner().invoke(main, [*words, "--yes"])
    assert back.exit_code == 0, back.output
    assert "flights/delays shows epoch 2" in back.stdout
    assert command("verify").exit_code == 0
    assert command("read", "flights/delays").exit_code == 0


def test_damage_that_the_current_epoch_does_without(command: Command, tmp_path: Path) -> None:
    (tmp_path / "flights.delays/manifest/00000000000000000002.json").write_bytes(b"")
    result = command("verify", "flights/delays")
    assert result.exit_code == 1
    assert "epoch 2" in result.stdout
    assert "The current epoch, 3, is whole." in result.stdout


def test_where_no_epoch_is_whole_it_says_how_to_start_from_the_beginning(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path / "departures/changes").iterdir():
        path.unlink()
    result = command("verify", "departures")
    assert result.exit_code == 1
    assert "No retained epoch is whole" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("rollback departures --epoch 0")


def test_verify_of_an_empty_store_and_of_an_unknown_stream(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = tmp_path_factory.mktemp("nothing").as_uri()
    result = CliRunner().invoke(main, ["--store", url, "verify"])
    assert (result.exit_code, result.stdout) == (0, f"No streams in {url} yet.\n")
    assert "no such stream" in CliRunner().invoke(main, ["--store", url, "verify", "delays"]).stderr


def test_a_rollback_asks_first_and_no_changes_nothing(command: Command, url: str) -> None:
    asked = ["--store", url, "rollback", "flights/delays", "--epoch", "2"]
    refused = CliRunner().invoke(main, asked, input="n\n")
    assert refused.exit_code == 1
    assert "Roll back to epoch 2 of flights/delays, committed " in refused.stderr
    assert refused.stdout == ""
    assert CliRunner().invoke(main, asked, input="").exit_code == 1
    assert json.loads(command("show", "flights/delays", "--json").stdout)["epoch"] == 3
    assert CliRunner().invoke(main, asked, input="y\n").exit_code == 0
    assert json.loads(command("show", "flights/delays", "--json").stdout)["epoch"] == 2
    assert "Empty flights/delays?" in CliRunner().invoke(main, [*asked[:-1], "0"], input="n\n").stderr


def test_the_question_before_a_rollback_names_the_streams_that_stop(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    up = streams.source("up", epochs=2)
    down = streams.reader("down", up)
    down.read(up)
    subscribe(
        ManifestChain(up.writer.store, SystemClock()),
        Subscriber("down", down.writer.manifest.uuid, up.writer.manifest.epoch),
    )
    streams.close()
    asked = ["--store", tmp_path.as_uri(), "rollback", "up", "--epoch"]
    told = CliRunner().invoke(main, [*asked, "2"], input="n\n").stderr
    assert "Streams that have read them stop until you roll them back too: down." in told
    assert "stop until" not in CliRunner().invoke(main, [*asked, "3"], input="n\n").stderr
    subscribers = ["--store", tmp_path.as_uri(), "subscribers", "up"]
    assert "abandoned" not in CliRunner().invoke(main, subscribers).stdout
    assert CliRunner().invoke(main, [*asked, "2", "--yes"]).exit_code == 0
    assert "has read abandoned epochs: roll it back too" in CliRunner().invoke(main, subscribers).stdout


def test_a_rollback_may_be_to_a_time(command: Command) -> None:
    newest, oldest = json.loads(command("epochs", "flights/delays", "--json").stdout)["epochs"]
    assert oldest["committed_at"] < newest["committed_at"]
    shown = command("rollback", "flights/delays", "--as-of", oldest["committed_at"], "--yes", "--json")
    assert json.loads(shown.stdout)["epoch"] == oldest["epoch"]


def test_a_rollback_reports_to_programs_what_the_stream_shows(command: Command) -> None:
    shown = json.loads(command("rollback", "flights/delays", "--epoch", "2", "--yes", "--json").stdout)
    assert (shown["epoch"], shown["current"]) == (2, True)


@pytest.mark.parametrize(("epoch", "told"), [("1", "retained=2-3"), ("9", "retained=2-3")])
def test_a_rollback_to_what_is_not_there_is_refused(command: Command, epoch: str, told: str) -> None:
    for yes in ([], ["--yes"]):
        result = command("rollback", "flights/delays", "--epoch", epoch, *yes)
        assert result.exit_code == 1
        assert told in result.stderr
        assert "[y/N]" not in result.stderr


def test_a_rollback_to_an_abandoned_epoch_is_refused_before_the_question(tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), "delays", retained=2)
    for delay in range(4):
        made.commit(departures({"UA": [float(delay)]}))
        if delay == 0:
            CheckpointStore(made.url).stream("delays").pin(2, "kept")
    made.close()
    words = ["--store", made.url, "rollback", "delays", "--epoch"]
    assert CliRunner().invoke(main, [*words, "4", "--yes"]).exit_code == 0
    for yes in ([], ["--yes"]):
        result = CliRunner().invoke(main, [*words, "5", *yes])
        assert result.exit_code == 1
        assert "One that can still be read can be forked" in result.stderr
        assert "pinned=2" in result.stderr
        assert "[y/N]" not in result.stderr
    assert CliRunner().invoke(main, [*words, "2", "--yes"]).exit_code == 0
    forked = CliRunner().invoke(main, ["--store", made.url, "fork", "delays", "dev", "--epoch", "5", "--yes"])
    assert forked.exit_code == 0, forked.output


def test_a_rollback_needs_to_know_where_to(command: Command) -> None:
    assert command("rollback", "flights/delays").exit_code == 2


def test_the_bar_is_for_terminals(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.shown_progress() as bar_of:
        bar_of("delays")(1, 2)
    assert capsys.readouterr() == ("", "")
