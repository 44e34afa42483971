"""`pin`, `unpin`, `pins` and `gc`, for people and for programs."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagster_ckpt.cli import main
from dagster_ckpt.history import Collected, StreamHistory
from dagster_ckpt.storage.operations.collector import MAX_LAG
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream, departures


def test_a_pinned_epoch_is_listed_until_it_is_unpinned(command: Command) -> None:
    assert command("pins", "departures").stdout == "departures has no pins.\n"
    assert command("pin", "departures", "v1 [old]", "--epoch", "2").stdout == (
        "Epoch 2 of departures is pinned as 'v1 [old]'.\n"
    )
    header, pin = command("pins", "departures").stdout.splitlines()
    assert header.split()[:2] == ["pin", "epoch"]
    assert pin.startswith("v1 [old]      2")
    [found] = json.loads(command("pins", "departures", "--json").stdout)["pins"]
    assert (found["name"], found["epoch"]) == ("v1 [old]", 2)
    assert found.keys() == {"name", "epoch", "pinned_at", "committed_at", "fork", "orphan"}
    assert command("unpin", "departures", "v1 [old]", "--yes").stdout == "'v1 [old]' of departures is unpinned.\n"
    assert json.loads(command("pins", "departures", "--json").stdout)["pins"] == []


def test_without_an_epoch_the_current_one_is_pinned_and_a_time_may_say_which(command: Command) -> None:
    assert command("pin", "flights/delays", "now").stdout == "Epoch 3 of flights/delays is pinned as 'now'.\n"
    _, oldest = json.loads(command("epochs", "flights/delays", "--json").stdout)["epochs"]
    assert command("pin", "flights/delays", "then", "--as-of", oldest["committed_at"]).stdout.startswith("Epoch 2 ")
    _, newest, older, _ = command("epochs", "flights/delays").stdout.splitlines()
    assert newest.endswith("current, pinned as 'now'")
    assert older.rstrip().endswith("pinned as 'then'")
    pins = [one["pins"] for one in json.loads(command("epochs", "flights/delays", "--json").stdout)["epochs"]]
    assert pins == [["now"], ["then"]]


def test_pin_and_unpin_answer_programs_too(command: Command) -> None:
    pinned = json.loads(command("pin", "departures", "v1", "--epoch", "2", "--json").stdout)
    assert (pinned["stream"], pinned["name"], pinned["epoch"]) == ("departures", "v1", 2)
    unpinned = json.loads(command("unpin", "departures", "v1", "--yes", "--json").stdout)
    assert unpinned == {"stream": "departures", "unpinned": "v1"}


def test_unpin_asks_first(command: Command, url: str) -> None:
    command("pin", "departures", "v1", "--epoch", "2")
    no = CliRunner().invoke(main, ["--store", url, "unpin", "departures", "v1"], input="n\n")
    assert no.exit_code == 1
    assert "it cannot be restored" in no.stderr
    unknown = CliRunner().invoke(main, ["--store", url, "unpin", "departures", "v2"])
    assert (unknown.exit_code, "[y/N]" in unknown.stderr) == (1, False)
    assert "there is no such pin" in unknown.stderr
    assert "v1" in command("pins", "departures").stdout


def test_gc_asks_and_lists_what_it_removed_by_kind(tmp_path: Path) -> None:
    made = MadeStream(tmp_path.as_uri(), "delays", retained=1)
    for delay in range(18):
        made.commit(departures({"UA": [float(delay)]}))
    made.close()
    words = ["--store", made.url, "gc", "--grace-period", "1ms"]
    no = CliRunner().invoke(main, words, input="n\n")
    assert no.exit_code == 1
    assert "all 1 stream?" in no.stderr
    whole = [path for path in tmp_path.rglob("*") if path.is_file()]
    time.sleep(1.2)  # by then all of it has been there for a grace period
    yes = CliRunner().invoke(main, [*words, "--yes", "--json"])
    [removed] = json.loads(yes.stdout)["streams"]
    assert removed.keys() == {"stream", "manifests", "files", "leases", "leftovers", "cut_off", "gone"}
    assert removed["manifests"] == 3
    gone = [path for path in whole if not path.exists()]
    assert len(gone) == removed["manifests"] + removed["files"]
    again = CliRunner().invoke(main, ["--store", made.url, "gc", "delays", "--yes"])
    assert again.stdout.splitlines()[0].split() == ["stream", "manifests", "files", "leases", "leftovers"]
    assert again.stdout.splitlines()[-1] == f"0 objects removed from {made.url}."


def test_gc_of_a_damaged_stream_goes_on_with_the_others(command: Command, tmp_path: Path) -> None:
    (tmp_path / "departures/manifest/00000000000000000002.json").write_bytes(b"not gzip")
    result = command("gc", "--yes", "--json")
    assert result.exit_code == 1
    assert [one["stream"] for one in json.loads(result.stdout)["streams"]] == ["empty", "flights/delays"]
    assert "departures:" in result.stderr


def test_gc_cuts_off_by_the_given_lag(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    lags: list[int] = []

    def collect(_history: StreamHistory, _grace_period: str, max_lag: int) -> Collected:
        lags.append(max_lag)
        return Collected()

    monkeypatch.setattr(StreamHistory, "collect_garbage", collect)
    assert command("gc", "departures", "--yes").exit_code == 0
    assert command("gc", "departures", "--yes", "--max-lag", "50000").exit_code == 0
    assert lags == [MAX_LAG, 50_000]
    assert command("gc", "departures", "--yes", "--max-lag", "0").exit_code == 2


def test_gc_lists_subscribers_that_were_cut_off_and_missing_ones(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Collected(cut_off=("slow",), gone=("removed",))
    monkeypatch.setattr(StreamHistory, "collect_garbage", lambda *_: found)
    told = command("gc", "departures", "--yes").stdout
    assert "slow lags too far behind departures: the change log is no longer kept for it" in told
    assert "removed reads departures and is not in the store: the change log is still kept for it" in told
    [removed] = json.loads(command("gc", "departures", "--yes", "--json").stdout)["streams"]
    assert (removed["cut_off"], removed["gone"]) == (["slow"], ["removed"])
