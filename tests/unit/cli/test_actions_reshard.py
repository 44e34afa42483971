"""`reshard`, for people and for programs."""

import json

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main
from tests.unit.cli.conftest import Command


def shards(command: Command) -> int:
    found: int = json.loads(command("show", "flights/delays", "--json").stdout)["shards"]
    return found


def test_it_asks_first_and_no_changes_nothing(command: Command, url: str) -> None:
    asked = ["--store", url, "reshard", "flights/delays", "--shards", "8"]
    refused = CliRunner().invoke(main, asked, input="n\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "Give flights/delays 8 shards? It has 2." in refused.stderr
    assert shards(command) == 2
    done = CliRunner().invoke(main, asked, input="y\n")
    assert (done.exit_code, shards(command)) == (0, 8)
    assert "flights/delays has 8 shards at epoch 3" in done.stdout
    assert "shards=8" in done.stdout.splitlines()[-1]


def test_programs_learn_what_the_stream_shows(command: Command) -> None:
    shown = json.loads(command("reshard", "flights/delays", "--shards", "1", "--yes", "--json").stdout)
    assert (shown["epoch"], shown["shards"], shown["current"]) == (3, 1, True)


@pytest.mark.parametrize(
    ("number", "status", "told"),
    [
        ("2", 1, "already has this number of shards; nothing changed"),
        ("3", 2, "a power of two"),
        ("8192", 2, "from 1 to 4096"),
    ],
)
def test_an_invalid_number_is_refused_before_the_question(
    command: Command, number: str, status: int, told: str
) -> None:
    result = command("reshard", "flights/delays", "--shards", number)
    assert (result.exit_code, shards(command)) == (status, 2)
    assert told in result.stderr
    assert "[y/N]" not in result.stderr


def test_an_unknown_stream_and_a_missing_number_are_errors(command: Command) -> None:
    assert "no such stream" in command("reshard", "flights/delay", "--shards", "4", "--yes").stderr
    assert command("reshard", "flights/delays").exit_code == 2
