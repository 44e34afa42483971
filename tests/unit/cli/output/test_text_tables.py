import json
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from dagster_ckpt.cli import main
from dagster_ckpt.cli.output import amounts, text_layout, text_tables
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import EpochInfo
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream, departures
from tests.unit.history.reading_streams import MadeStreams


def lines(command: Command, *words: str) -> list[list[str]]:
    result = command(*words)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_streams_has_a_line_for_each_with_its_current_epoch(command: Command) -> None:
    header, *rows = lines(command, "streams")
    assert header[:3] == ["stream", "status", "epoch"]
    assert [row[:3] for row in rows] == [
        ["departures", "ended", "2"],
        ["empty", "ended", "0"],
        ["flights/delays", "ended", "3"],
    ]


def test_streams_tells_a_live_stream_from_one_whose_writer_is_silent(
    command: Command, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = MadeStream(url, "live")
    elsewhere.commit(departures({"UA": [1.0, 5.0], "AA": [2.0]}))
    [shown] = [line for line in lines(command, "streams") if line[0] == "live"]
    assert shown[:3] == ["live", "live", "2"]
    assert shown[3:6] == ["just", "now", "2"], "rows of the table"
    assert "epoch 2  current, live" in command("show", "live").stdout
    seconds = SystemClock().now_ms() / 1_000 + 3 * 3_600
    monkeypatch.setattr(amounts, "now", lambda: datetime.fromtimestamp(seconds, UTC))
    [shown] = [line for line in lines(command, "streams") if line[0] == "live"]
    assert shown[1:5] == ["silent", "for", "3", "h"]
    assert "silent: its last heartbeat was 3 h ago" in command("show", "live").stdout
    elsewhere.close()
    assert "epoch 2  current, ended" in command("show", "live").stdout


def test_show_has_the_rows_of_the_table_and_the_lag_of_event_time(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amounts, "now", lambda: datetime(1970, 1, 1, 3, 5, tzinfo=UTC))
    shown = lines(command, "show", "flights/delays")
    assert ["table", "rows", "3"] in shown
    [lag] = [line for line in shown if line[:1] == ["lag"]]
    assert lag[-6:] == ["commit,", "1", "h", "5", "min", "now"]
    assert ["table", "rows", "60"] in lines(command, "show", "departures")
    [older] = [line for line in lines(command, "show", "flights/delays", "--epoch", "2") if line[:1] == ["lag"]]
    assert older[-1] == "commit"


def test_show_has_the_lag_behind_each_stream_that_is_read(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    upstream = streams.source("departures", epochs=1)
    reader = streams.reader("reader", upstream)
    reader.read(upstream)
    show = ["--store", streams.url, "show", "reader"]
    assert "lag none: all of it is read" in " ".join(CliRunner().invoke(main, show).stdout.split())
    streams.commit(upstream, 2)
    shown = CliRunner().invoke(main, show).stdout
    assert "2 epochs, 2 rows of its change log; its newest is epoch 4" in shown
    [found] = json.loads(CliRunner().invoke(main, [*show, "--json"]).stdout)["upstreams"]
    assert (found["stream"], found["read"], found["newest"], found["epochs"], found["rows"]) == (
        "departures",
        2,
        4,
        2,
        2,
    )
    streams.close()


def test_a_store_without_streams_says_so(tmp_path_factory: object) -> None:
    result = CliRunner().invoke(main, ["--store", "file:///nowhere/at/all", "streams"])
    assert result.exit_code == 0
    assert result.stdout == "No streams in file:///nowhere/at/all yet.\n"


def test_epochs_has_the_newest_first_and_marks_the_current_one(command: Command) -> None:
    _, newest, oldest, closing = lines(command, "epochs", "flights/delays")
    assert (newest[0], newest[-1]) == ("3", "current")
    assert (oldest[0], oldest[-1]) == ("2", "kB")
    assert closing == ["2", "epochs", "of", "flights/delays", "can", "be", "read."]


def test_a_stream_without_an_epoch_says_so(command: Command) -> None:
    assert command("epochs", "empty").stdout == "empty has no epoch yet.\n"


def test_show_has_the_manifest_that_shows_the_epoch(command: Command) -> None:
    assert command("rollback", "flights/delays", "--epoch", "2", "--yes").exit_code == 0
    [manifest] = [line for line in command("show", "flights/delays").stdout.splitlines() if "manifest" in line]
    assert manifest.split(maxsplit=1)[1] == "version 4, of kind rollback, in term 4"


def test_show_has_the_pipeline_the_state_and_the_sources(command: Command) -> None:
    shown = command("show", "flights/delays").stdout
    for fact in (
        "aggregate flights=count(), mean_delay=avg(dep_delay)",
        "carrier string, flights int64, mean_delay double",
        "event time",
        "1970-01-01 01:00:00 UTC",
        "parquet file:///data/departures, 2 files seen",
        "Dagster instance instance-1, code location flights",
    ):
        assert fact in shown


def test_show_lists_the_slowest_shards_with_their_host_and_the_interval(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "flights/delays", host="worker-7", milliseconds=1_400, interval_ms=10_000)
    stream.commit(departures({"UA": [1.0, 5.0]}))
    stream.close()
    shown = CliRunner().invoke(main, ["--store", tmp_path.as_uri(), "show", "flights/delays"]).stdout.splitlines()
    [slowest] = [line.split(maxsplit=2)[2] for line in shown if " 2 rows in" in line and "shard" in line]
    assert slowest == "1.4 s on worker-7, 2 rows in"
    assert [line.split() for line in shown if line.startswith("interval")] == [["interval", "10", "s"]]
    words = ["--store", tmp_path.as_uri(), "--json", "show", "flights/delays"]
    found = json.loads(CliRunner().invoke(main, words).stdout)
    assert found["checkpoint_interval_ms"] == 10_000
    assert found["slowest_shards"][0]["rows_in"] == 2
    assert {(each["host"], each["milliseconds"]) for each in found["slowest_shards"]} == {("worker-7", 1_400)}


def test_show_of_an_older_epoch_shows_that_one(command: Command) -> None:
    assert "flights/delays epoch 2" in command("show", "flights/delays", "--epoch", "2").stdout


def test_read_prints_the_table_in_the_order_of_its_key(command: Command) -> None:
    assert lines(command, "read", "flights/delays") == [
        ["carrier", "flights", "mean_delay"],
        ["AA", "1", "nan"],
        ["UA", "3", "4"],
        ["null", "1", "3"],
        ["3", "rows", "of", "flights/delays", "at", "epoch", "3."],
    ]


def test_read_of_an_older_epoch_and_of_some_columns(command: Command) -> None:
    read = lines(command, "read", "flights/delays", "--epoch", "2", "--columns", "flights, carrier")
    assert read[:3] == [["flights", "carrier"], ["2", "UA"], ["1", "null"]]


def test_a_long_table_is_cut_to_a_screenful_and_says_so(command: Command) -> None:
    read = lines(command, "read", "departures")
    assert len(read) == 1 + 50 + 1
    assert read[-1] == [
        "50",
        "of",
        "60",
        "rows",
        "of",
        "departures",
        "at",
        "epoch",
        "2.",
        "--limit",
        "N",
        "prints",
        "more.",
    ]
    assert len(lines(command, "read", "departures", "--limit", "60")) == 1 + 60 + 1


def test_no_cell_is_cut_where_the_output_is_a_pipe(command: Command) -> None:
    for words in (["streams"], ["epochs", "flights/delays"], ["show", "flights/delays"]):
        assert "…" not in command(*words).stdout


def test_get_prints_the_rows_of_some_keys(command: Command) -> None:
    assert lines(
        command, "get", "flights/delays", "--key", "carrier=UA", "--key", "carrier", "--key", "carrier=XX"
    ) == [
        ["carrier", "flights", "mean_delay"],
        ["UA", "3", "4"],
        ["null", "1", "3"],
        ["2", "rows", "of", "flights/delays", "at", "epoch", "3."],
    ]
    assert lines(command, "get", "flights/delays", "--key", "carrier=UA", "--epoch", "2", "--columns", "flights")[
        1
    ] == ["2"]


def test_changes_prints_epoch_after_epoch(command: Command) -> None:
    told = lines(command, "changes", "flights/delays", "--after", "2", "--columns", "carrier")
    assert told[0] == ["carrier", "_epoch", "_change_type"]
    assert told[1:-1] == [
        ["AA", "3", "insert"],
        ["UA", "3", "update_preimage"],
        ["UA", "3", "update_postimage"],
    ]
    assert told[-1] == ["3", "rows", "of", "the", "change", "log", "of", "flights/delays."]
    assert len(lines(command, "changes", "flights/delays", "--after", "0", "--limit", "2")) == 4


@pytest.mark.parametrize(
    ("width", "headers", "left_out"),
    [
        (120, "stream status epoch committed table rows rows read state rows state event time (UTC)", None),
        (
            85,
            "stream status epoch committed table rows rows read state rows state",
            "Too narrow for: event time (UTC).",
        ),
        (
            60,
            "stream status epoch committed table rows",
            "Too narrow for: rows read, state rows, state, event time (UTC).",
        ),
        (
            10,
            "stream status epoch committed table rows",
            "Too narrow for: rows read, state rows, state, event time (UTC).",
        ),
    ],
)
def test_a_terminal_that_is_too_narrow_gets_fewer_columns_and_a_note(
    command: Command, monkeypatch: pytest.MonkeyPatch, width: int, headers: str, left_out: str | None
) -> None:
    monkeypatch.setattr(text_layout, "Console", partial(Console, width=width, force_terminal=True, color_system=None))
    first, *_, last = command("streams").stdout.splitlines()
    assert first.split() == headers.split()
    assert ("Too narrow" in last) == (left_out is not None)
    assert left_out is None or left_out in last


def test_no_cell_is_cut_where_columns_were_left_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_layout, "Console", partial(Console, width=60, force_terminal=True, color_system=None))
    assert command("rollback", "flights/delays", "--epoch", "2", "--yes").exit_code == 0
    told = command("epochs", "flights/delays").stdout
    assert "Too narrow for" in told
    assert "abandoned" in told
    assert "…" not in told


def test_a_pipe_gets_every_column(command: Command) -> None:
    assert "event time (UTC)" in command("streams").stdout


def test_a_column_may_have_any_name(capsys: pytest.CaptureFixture[str]) -> None:
    figures: dict[str, Any] = {**dict.fromkeys((each.name for each in fields(EpochInfo)), 0), "stream": "any"}
    text_tables.read(EpochInfo(**figures), pa.table({">a": ["x"], "~b": ["y"], "[red]": [1]}), None)
    assert capsys.readouterr().out.splitlines()[0].split() == [">a", "~b", "[red]"]
