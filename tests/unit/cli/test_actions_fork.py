"""`fork`, for people and for programs; what `pins` says of it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main
from tests.unit.cli.conftest import Command


def test_a_fork_is_made_and_reported(command: Command) -> None:
    made = command("fork", "flights/delays", "dev/delays", "--epoch", "2", "--yes")
    assert made.stdout == "dev/delays begins with epoch 2 of flights/delays, as its epoch 1.\n"
    shown = json.loads(command("read", "dev/delays", "--json").stdout)
    assert (shown["epoch"], shown["rows"]) == (1, 2)
    [ancestor] = json.loads(command("show", "dev/delays", "--json").stdout)["ancestors"]
    assert (ancestor["stream"], ancestor["epoch"]) == ("flights/delays", 2)
    again = json.loads(command("fork", "dev/delays", "dev/again", "--yes", "--json").stdout)
    assert (again["stream"], again["epoch"]) == ("dev/again", 1)
    assert again["forked_from"] == {"stream": "dev/delays", "epoch": 1}
    assert command("fork", "departures", "dev/none", "--epoch", "0", "--yes").stdout == "dev/none begins empty.\n"
    told = command("show", "dev/delays").stdout
    assert "none yet: the asset that opens it first" in told
    assert re.search(rf"^forked from +{ancestor['stream']}, epoch {ancestor['epoch']}$", told, re.MULTILINE)


def test_a_fork_asks_first_and_no_changes_nothing(command: Command, url: str) -> None:
    asked = ["--store", url, "fork", "flights/delays", "dev/delays"]
    no = CliRunner().invoke(main, asked, input="n\n")
    assert no.exit_code == 1
    assert "Create the stream dev/delays, which begins with epoch 3 of flights/delays" in no.stderr
    assert "dev/delays" not in command("streams").stdout
    assert json.loads(command("pins", "flights/delays", "--json").stdout)["pins"] == []


def test_a_fork_to_a_taken_name_is_refused_before_the_prompt(command: Command) -> None:
    result = command("fork", "flights/delays", "departures")
    assert result.exit_code == 1
    assert "a stream of this name already" in result.stderr
    assert "[y/N]" not in result.stderr


def test_a_forks_pin_says_for_whom_it_is_and_an_orphan_says_so(command: Command, tmp_path: Path) -> None:
    command("fork", "departures", "dev/d", "--yes")
    assert command("pins", "departures").stdout.rstrip().endswith("for the fork dev/d")
    [pin] = json.loads(command("pins", "departures", "--json").stdout)["pins"]
    for yes in ([], ["--yes"]):
        kept = command("unpin", "departures", pin["name"], *yes)
        assert (kept.exit_code, "keeps files of a fork" in kept.stderr, "[y/N]" in kept.stderr) == (1, True, False)
    shutil.rmtree(tmp_path / "dev.d")
    assert command("pins", "departures").stdout.rstrip().endswith("which does not exist: unpin it")
    assert command("unpin", "departures", pin["name"], "--yes").exit_code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["flights/delay", "dev/x"], "Did you mean 'flights/delays'?"),
        (["flights/delays", "departures"], "a stream of this name already"),
        (["flights/delays", "dev/x", "--epoch", "9"], "no such epoch"),
        (["flights/delays", "/"], "not a stream's name"),
    ],
)
def test_a_fork_that_cannot_be_made_is_refused(command: Command, words: list[str], told: str) -> None:
    result = command("fork", *words, "--yes")
    assert (result.exit_code, told in result.stderr) == (1, True)
    assert len(json.loads(command("streams", "--json").stdout)["streams"]) == 3
