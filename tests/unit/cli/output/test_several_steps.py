"""`show` of a stream of several steps: each with what it reads, its key and its state."""

from typing import Any

import pytest

from dagster_ckpt.cli.output import documents, text_tables
from dagster_ckpt.history.info.epoch_info import EpochInfo, info_of
from dagster_ckpt.protocol.manifest.manifest import Manifest, Retained
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
        "step 2 aggregate shops=count()",
        "reads step 1",
        "key total",
        "in groups 60 rows, 6.0 kB in 2 files, at most 1 in a shard",
    ]
    assert not [line for line in lines if line.startswith("operator")], "that of which step?"


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
