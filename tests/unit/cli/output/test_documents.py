import json
from datetime import datetime
from typing import Any

import pyarrow as pa

from dagster_ckpt.cli.json_text import json_text
from dagster_ckpt.cli.output import documents
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.history import EpochInfo
from dagster_ckpt.history.swap import swap
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import stream_folder
from dagster_ckpt.storage.writer.opening import Opening
from tests.unit.cli.conftest import Command
from tests.unit.history.made_streams import MadeStream, departures
from tests.worlds.streams import a_holder

INFO = {
    "stream",
    "epoch",
    "version",
    "committed_at",
    "current",
    "abandoned",
    "rows_in",
    "rows_out",
    "late_rows",
    "epoch_ms",
    "change_bytes",
    "merged_rows",
    "stall_ms",
    "read_by",
    "state_rows",
    "state_bytes",
    "runs",
    "shards",
    "total_rows_in",
    "total_epochs",
    "watermark",
    "event_time",
    "table_rows",
    "nonce",
}
LAG = "event_time_lag_at_commit_seconds"


def document(command: Command, *words: str) -> Any:
    result = command(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_streams(command: Command, url: str) -> None:
    found = document(command, "streams")
    assert found.keys() == {"store", "streams"}
    assert found["store"] == url
    assert [one["stream"] for one in found["streams"]] == ["departures", "empty", "flights/delays"]
    assert all(one.keys() == {*INFO, LAG, "status", "writer"} for one in found["streams"])
    assert [(one["status"], one["table_rows"]) for one in found["streams"]] == [
        ("ended", 60),
        ("ended", 0),
        ("ended", 3),
    ]
    assert {one["writer"]["closed"] for one in found["streams"]} == {"the test is over"}


def test_epochs_have_raw_numbers_and_times_in_utc(command: Command) -> None:
    found = document(command, "epochs", "flights/delays")
    assert (found["stream"], [one["epoch"] for one in found["epochs"]]) == ("flights/delays", [3, 2])
    newest = found["epochs"][0]
    assert newest.keys() == {*INFO, LAG, "pins"}
    committed_at, event_time = (datetime.fromisoformat(newest[name]) for name in ("committed_at", "event_time"))
    assert newest[LAG] == (committed_at - event_time).total_seconds()
    assert (newest["rows_in"], newest["current"], newest["event_time"]) == (2, True, "1970-01-01T02:00:00+00:00")
    assert datetime.fromisoformat(newest["committed_at"]).utcoffset() is not None


def test_show_has_the_pipeline_the_state_and_the_sources(command: Command) -> None:
    found = document(command, "show", "flights/delays", "--epoch", "2")
    assert found.keys() > INFO
    assert found["epoch"] == 2
    assert found["owner"] == {"instance": "instance-1", "asset_key": "flights/delays", "location": "flights"}
    assert found["pipeline"]["keys"] == ["carrier"]
    assert found["pipeline"]["columns"][1] == {"name": "flights", "type": "int64", "nullable": False}
    assert found["state"][0]["table"] == "groups"
    assert found["state"][0]["rows"] == 2
    assert found["sources"][0]["files_seen"] == 1
    assert found["changes"]["rows"] == 2


def test_show_has_the_streams_that_were_rebuilt_without_their_columns(command: Command, url: str) -> None:
    beside = MadeStream(url, "flights/delays/~rebuild-1")
    for _ in range(2):
        beside.commit(departures({"UA": [1.0]}))
    beside.close()
    root, clock = open_store(url), SystemClock()
    live, rebuilt = (ManifestChain(stream_folder(root, name), clock) for name in ("flights/delays", beside.name))
    newest = live.newest()
    assert newest is not None
    opening = Opening(newest.stream, newest.owner, newest.pipeline, newest.shards, a_holder(), "rebuild")
    swap(root, live, rebuilt, opening)
    [ancestor] = json.loads(command("show", "flights/delays", "--json").stdout)["ancestors"]
    uuid = beside.writer.manifest.uuid
    assert ancestor == {"uuid": uuid, "stream": beside.name, "epoch": beside.writer.manifest.epoch, "swapped": True}


def test_read_has_all_rows_or_as_many_as_asked_for(command: Command) -> None:
    found = document(command, "read", "departures")
    assert (found["stream"], found["epoch"], found["rows"], len(found["data"])) == ("departures", 2, 60, 60)
    assert found["columns"][0] == {"name": "carrier", "type": "string", "nullable": True}
    assert found["data"][0] == {"carrier": "UA", "dep_delay": 1.0}
    found = document(command, "read", "departures", "--limit", "1")
    assert (found["rows"], len(found["data"])) == (60, 1)


def test_json_may_be_asked_for_before_the_command_too(command: Command) -> None:
    assert json.loads(command("--json", "streams").stdout) == document(command, "streams")


def test_what_json_has_no_type_for_is_text(command: Command) -> None:
    found = document(command, "read", "flights/delays", "--limit", "1")
    assert found["data"] == [{"carrier": "AA", "flights": 1, "mean_delay": "NaN"}]
    table = pa.table(
        {
            "time": pa.array([0], pa.timestamp("us", "UTC")),
            "date": pa.array([0], pa.date32()),
            "decimal": pa.array([1], pa.int64()).cast(pa.decimal128(21, 2)),
            "bytes": [b"\xff"],
            "least": [float("-inf")],
            "nested": [[{"a": float("inf")}]],
            "null": pa.nulls(1),
        }
    )
    figures: dict[str, Any] = {**dict.fromkeys(INFO, 0), "event_time": None}
    assert json.loads(json_text(documents.read(EpochInfo(**figures), table, None)))["data"] == [
        {
            "time": "1970-01-01T00:00:00+00:00",
            "date": "1970-01-01",
            "decimal": "1.00",
            "bytes": "/w==",
            "least": "-Infinity",
            "nested": [{"a": "Infinity"}],
            "null": None,
        }
    ]


def test_get_has_the_form_of_a_table(command: Command) -> None:
    found = document(command, "get", "flights/delays", "--key", "carrier=UA")
    assert found.keys() == document(command, "read", "flights/delays").keys()
    assert found["data"] == [{"carrier": "UA", "flights": 3, "mean_delay": 4.0}]


def test_changes_have_their_epoch_and_type(command: Command) -> None:
    found = document(command, "changes", "flights/delays", "--after", "2", "--limit", "1")
    assert (found["stream"], found["rows"], len(found["data"])) == ("flights/delays", 3, 1)
    assert [column["name"] for column in found["columns"]][-2:] == ["_epoch", "_change_type"]
    assert found["data"][0]["_epoch"] == 3
