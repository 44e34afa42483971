"""`dagster-ckpt explain`: what the steps of a stream in a store keep, and how much of it there is."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagster_ckpt.cli import main
from dagster_ckpt.cli.output import documents, explanation_text
from dagster_ckpt.history.info.epoch_info import info_of
from dagster_ckpt.operators.explained.explanation import explain_pipeline
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
from tests.unit.history.made_streams import HOUR_US, TIMED, MadeStream, by_hour
from tests.worlds.several_steps import sales_joined, with_runs

Command = Callable[..., Result]


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_stream_of_one_step_is_explained_at_an_epoch(command: Command) -> None:
    lines = words(command("explain", "flights/delays").output)
    assert lines[0] == "flights/delays epoch 3"
    assert lines[-6:-2] == [
        "reads parquet file:///data/departures, which appends",
        "key carrier",
        "keeps one row for each key: counts and sums",
        "bound the number of keys",
    ]
    assert lines[-2].endswith(", 100% of the state; 4 rows in 4 files of table groups")
    assert "aggregate flights=count(), mean_delay=avg(dep_delay)" in lines
    before = json.loads(command("explain", "flights/delays", "--epoch", "2", "--json").output)
    assert (before["epoch"], before["steps"][0]["state"][0]["rows"]) == (2, 2)


def test_a_stream_without_state_or_epoch_is_explained(command: Command) -> None:
    assert words(command("explain", "departures").output)[-3:] == [
        "reads parquet file:///data/departures, which appends",
        "keeps nothing between epochs",
        "emits rows that are never taken back",
    ]
    assert "size nothing yet in table groups" in words(command("explain", "empty").output)


def test_an_epoch_is_given_once(command: Command) -> None:
    asked = command("explain", "flights/delays", "--epoch", "1", "--as-of", "2013-01-05")
    assert (asked.exit_code, "not both" in asked.output) == (2, True)


def test_state_that_waits_for_the_watermark_says_where_that_stands(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "hours", by_hour())
    run = ["--store", tmp_path.as_uri(), "explain", "hours"]
    assert words(CliRunner().invoke(main, run).output)[2] == "watermark none yet: no state has gone"
    stream.commit(TIMED.empty_table(), hours=3)
    stream.close()
    lines = words(CliRunner().invoke(main, run).output)
    assert lines[2] == "watermark 1970-01-01 02:00:00 UTC, 1 h behind the newest event time"
    assert lines.count("bound windows whose end the watermark has not reached") == 2


def shown(manifest: Manifest, capsys: pytest.CaptureFixture[str]) -> list[str]:
    info = info_of(Retained(manifest.epoch, manifest.version, manifest.time_ms), manifest, manifest)
    explanation_text.show_explanation(info, manifest, explain_pipeline(manifest.pipeline))
    return words(capsys.readouterr().out)


def test_each_step_has_a_block_with_its_share_of_the_state(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = with_runs(sales_joined())
    lines = shown(manifest, capsys)
    assert [line for line in lines if line.startswith("step")] == [
        "step 0 window total=sum(amount) window=tumbling(size=10 min) event_time=at late=keep",
        "step 1 window_join keys=shop|shop event_times=ended|at window=tumbling(size=10 min) how=inner late=keep",
    ]
    second = lines[lines.index("reads step 0, which appends") :]
    assert second[1:6] == [
        "parquet file:///data/visits, which appends",
        "key shop",
        "keeps the rows of the left input in open windows",
        "bound windows whose end the watermark has not reached",
        "size 8.0 kB, 14% of the state; 80 rows in 2 files of table left",
    ]
    assert "keeps the rows of the right input that came too late" in second
    document = documents.explain(
        info_of(Retained(manifest.epoch, manifest.version, manifest.time_ms), manifest, manifest),
        manifest,
        explain_pipeline(manifest.pipeline),
    )
    assert [step["operator"] for step in json.loads(json.dumps(document["steps"]))] == ["window", "window_join"]
    state = [each for step in json.loads(json.dumps(document["steps"])) for each in step["state"]]
    assert [(each["table"], each["bound"], each["rows"]) for each in state] == [
        ("0.windows", "watermark", 20),
        ("0.ends", "watermark", 40),
        ("0._late_0", "rows", 60),
        ("left", "watermark", 80),
        ("right", "watermark", 100),
        ("_late_0", "rows", 120),
        ("_late_1", "rows", 140),
    ]
    assert sum(each["share"] for each in state) == pytest.approx(1.0)


def test_a_watermark_beyond_the_newest_row_has_no_distance(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = replace(with_runs(sales_joined()), watermark_us=2 * HOUR_US, event_times_us=(HOUR_US, None))
    assert "watermark 1970-01-01 02:00:00 UTC" in shown(manifest, capsys)
