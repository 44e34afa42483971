"""`show` of a stream of several steps: each with what it reads, its key and its state."""

from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.cli.output import documents, text_tables
from dagster_ckpt.history.info.epoch_info import EpochInfo, info_of
from dagster_ckpt.ids import Shard
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained, ShardTime, StepWork
from tests.worlds.manifests import PIPELINE
from tests.worlds.several_steps import sales_joined, shops_counted, with_runs


def info(manifest: Manifest) -> EpochInfo:
    return info_of(Retained(manifest.epoch, manifest.version, manifest.time_ms), manifest, manifest)


def shown(manifest: Manifest, capsys: pytest.CaptureFixture[str]) -> list[str]:
    text_tables.show(info(manifest), manifest, None)
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_each_step_is_listed_with_its_inputs_key_and_state(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(with_runs(shops_counted()), capsys)
    first = lines.index("step 0 deduplicate keep=first late=drop")
    assert lines[first : first + 12] == [
        "step 0 deduplicate keep=first late=drop",
        "reads parquet file:///data/orders",
        "key order",
        "in rows 20 rows, 2.0 kB in 2 files, at most 1 in a shard",
        "step 1 aggregate total=sum(amount)",
        "reads step 0",
        "key shop",
        "in groups 40 rows, 4.0 kB in 2 files, at most 1 in a shard",
        "step 2 aggregate shops=count() updating=true",
        "reads step 1",
        "key total",
        "in groups 60 rows, 6.0 kB in 2 files, at most 1 in a shard",
    ]
    assert not [line for line in lines if line.startswith("operator")], "that of which step?"


def test_each_step_has_its_rows_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    work = (StepWork(1200, 900, 3, 1400), StepWork(900, 60, 0, 20), StepWork(60, 4, 0, 8))
    slowest = (ShardTime(Shard(1), "worker-7", 1400, 800), ShardTime(Shard(1), "worker-7", 20, 500, step=1))
    manifest = replace(with_runs(shops_counted()), steps=work, slowest_shards=slowest)
    lines = shown(manifest, capsys)
    assert lines[lines.index("key order") + 1 :][:2] == ["rows 1,200 in, 900 changes out, 3 too late", "took 1.4 s"]
    assert lines[lines.index("key shop") + 1 :][:2] == ["rows 900 in, 60 changes out", "took 20 ms"]
    assert "shard 1 of step 1 20 ms on worker-7, 500 rows in" in lines
    found: Any = documents.show(info(manifest), manifest, None)
    assert found["steps"][1]["work"] == {"rows_in": 900, "rows_out": 60, "late_rows": 0, "milliseconds": 20}
    assert [each["step"] for each in found["slowest_shards"]] == [0, 1]


def test_steps_without_a_record_of_their_work_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    before = with_runs(shops_counted())
    of_another_pipeline = replace(before, steps=(StepWork(1, 1, 0, 1),))
    for manifest in (before, of_another_pipeline):
        found: Any = documents.show(info(manifest), manifest, None)
        assert [each["work"] for each in found["steps"]] == [None, None, None]
        assert "took 1 ms" not in shown(manifest, capsys)


def test_a_step_reads_sources_beside_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(with_runs(sales_joined()), capsys)
    assert "reads step 0, parquet file:///data/visits" in lines


def test_one_step_has_its_operator_and_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    manifest = with_runs(PIPELINE)
    lines = shown(manifest, capsys)
    assert [line.split()[0] for line in lines if line.startswith(("operator", "key", "step", "in total"))] == [
        "operator",
        "key",
        "in",
    ]
    assert "steps" not in documents.show(info(manifest), manifest, None)


def test_json_has_the_steps_and_the_state_of_all() -> None:
    manifest = with_runs(sales_joined())
    found: Any = documents.show(info(manifest), manifest, None)
    steps = found["steps"]
    assert [(each["step"], each["operator"], each["keys"]) for each in steps] == [
        (0, "window", ["shop"]),
        (1, "window_join", ["shop"]),
    ]
    assert [each["step"] for each in steps[1]["inputs"]] == [0, None]
    assert steps[1]["inputs"][1]["sources"][0]["address"] == "file:///data/visits"
    first, last = (each["state"] for each in steps)
    assert [(each["table"], each["rows"], each["bytes"]) for each in first] == [
        ("0.windows", 20, 2000),
        ("0.ends", 40, 4000),
        ("0._late_0", 60, 6000),
    ]
    assert [each["table"] for each in last] == ["left", "right", "_late_0", "_late_1"]
    assert found["state"] == [*first, *last]
