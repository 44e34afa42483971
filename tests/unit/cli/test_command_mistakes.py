"""Exit status 1: the command failed, and stderr gives the reason; 2: usage error. Never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main
from tests.unit.cli.conftest import Command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["read", "departure"], "Did you mean 'departures'?"),
        (["epochs", "nothing like it"], "no such stream"),
        (["read", "departures", "--epoch", "99"], "retained=2"),
        (["show", "departures", "--as-of", "1999-01-01"], "oldest=2"),
        (["read", "departures", "--columns", "carier"], "Did you mean 'carrier'?"),
        (["get", "flights/delays", "--key", "carier=UA"], "Did you mean 'carrier'?"),
        (["get", "departures", "--key", "carrier=UA"], "only appends"),
        (["get", "flights/delays", "--key", "UA"], "write --key carrier=UA"),
        (["changes", "flights/delays", "--after", "9"], "no such epoch yet"),
        (["changes", "flights/delays", "--after", "3", "--until", "2"], "current=3"),
        (["changes", "flights/delays", "--after-as-of", "1999-01-01"], "oldest=2"),
    ],
)
def test_what_cannot_be_done_ends_with_1_and_the_reason(command: Command, words: list[str], told: str) -> None:
    result = command(*words)
    assert result.exit_code == 1
    assert told in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["reed", "departures"], "Did you mean 'read'?"),
        (["read"], "Missing argument 'STREAM'"),
        (["read", "departures", "--epoch", "two"], "'--epoch': 'two' is not a whole number from 0 on."),
        (["read", "x", "--limit", "-1"], "'--limit': '-1' is not a whole number from 0 on."),
        (["show", "departures", "--as-of", "noon"], "2013-01-05T12:00:00"),
        (["read", "departures", "--epoch", "2", "--as-of", "2013-01-01"], "give --epoch or --as-of, not both."),
        (["changes", "flights/delays"], "after which epoch? Give --after or --after-as-of"),
        (["changes", "x", "--after", "1", "--after-as-of", "2013-01-01"], "give --after or --after-as-of, not both."),
        (["changes", "x", "--after", "1", "--until", "2", "--until-as-of", "2013-01-01"], "--until or --until-as-of"),
        (["rollback", "departures", "--yes"], "back to which epoch? Give --epoch, --as-of or --pin"),
        (["reshard", "departures", "--shards", "3", "--yes"], "'--shards': 3 is not a power of two from 1 to 4096."),
        (["gc", "--grace-period", "soon", "--yes"], "'--grace-period': 'soon' is not a length of time such as '30s'"),
    ],
)
def test_a_usage_error_ends_with_2_and_the_reason(command: Command, words: list[str], told: str) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_without_agreement_nothing_is_changed(command: Command, url: str) -> None:
    for answer in ("n\n", ""):
        asked = CliRunner().invoke(main, ["--store", url, "fork", "departures", "copy"], input=answer)
        assert asked.exit_code == 1
        assert asked.stderr.endswith("Nothing was changed. Pass --yes to skip the question.\n")


def test_without_a_store_it_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_CKPT_STORE", raising=False)
    result = CliRunner().invoke(main, ["streams"])
    assert result.exit_code == 2
    assert "DAGSTER_CKPT_STORE" in result.stderr


def test_the_store_may_come_from_the_environment_or_after_the_command(url: str) -> None:
    by_environment = CliRunner().invoke(main, ["streams", "--json"], env={"DAGSTER_CKPT_STORE": url})
    after = CliRunner().invoke(main, ["streams", "--store", url, "--json"], env={"DAGSTER_CKPT_STORE": "file:///other"})
    assert json.loads(by_environment.stdout) == json.loads(after.stdout)
    assert json.loads(after.stdout)["store"] == url


def test_a_secret_in_the_url_is_not_repeated() -> None:
    result = CliRunner().invoke(main, ["--store", "s3://key:hunter2@bucket/checkpoints", "streams"])
    assert result.exit_code == 1
    assert "hunter2" not in result.output


def test_a_damaged_stream_does_not_hide_the_others(command: Command, tmp_path: Path) -> None:
    (tmp_path / "departures/manifest/00000000000000000002.json").write_bytes(b"not gzip")
    result = command("streams", "--json")
    assert result.exit_code == 1
    assert [one["stream"] for one in json.loads(result.stdout)["streams"]] == ["empty", "flights/delays"]
    assert "departures:" in result.stderr
    assert "manifest/00000000000000000002.json" in result.stderr


def test_help_is_fast_because_nothing_heavy_is_loaded() -> None:
    look = "import sys\nfrom dagster_ckpt.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", look], check=True, timeout=60, capture_output=True, text=True)
    assert "Inspect and operate the checkpoints" in ran.stdout
    assert not {"pyarrow", "numpy", "rich", "dagster", "pyspark", "fsspec"} & set(ran.stdout.split())
