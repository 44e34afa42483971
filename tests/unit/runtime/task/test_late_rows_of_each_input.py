"""Late rows are counted for each input of a join: in the tasks' ACKs, in the manifest, in Dagster's events."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql.types import StructType

from dagster_ckpt.integration.reading.late_rows_asset import LateRows
from dagster_ckpt.operators.joins.interval_join import IntervalJoin
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.transitions.manifest_rules import statistics_add_up
from tests.worlds.task_stream import Row, TaskStream, input_of

LEFT = StructType().add("k", "string").add("at", "timestamp")
RIGHT = StructType().add("rk", "string").add("bt", "timestamp")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def left(minute: int) -> Row:
    return {"k": "a", "at": NOON + timedelta(minutes=minute)}


def right(minute: int) -> Row:
    return {"rk": "a", "bt": NOON + timedelta(minutes=minute)}


@pytest.fixture
def stream(tmp_path: Path) -> TaskStream:
    """A join that keeps late rows; its watermark is at minute 30."""
    inputs = [input_of(LEFT), input_of(RIGHT)]
    join = IntervalJoin.build(inputs, (("k",), ("rk",)), ("at", "bt"), 0, 0, "inner", "keep")
    stream = TaskStream(tmp_path, join, [LEFT, RIGHT], ("at", "bt"))
    stream.epoch((0, [left(30)]), (1, [right(30)]))
    return stream


def counted(manifest: Manifest) -> list[int]:
    return [manifest.late_rows_of(number) for number in range(2)]


def test_the_late_rows_of_each_input_add_up_to_the_streams(stream: TaskStream) -> None:
    assert counted(stream.writer.manifest) == [0, 0]
    first = stream.epoch((0, [left(1), left(2), left(31)]), (1, [right(31)]))
    assert counted(first) == [2, 0]
    second = stream.epoch((0, [left(3)]), (1, [right(4)]))
    assert (counted(second), second.statistics.total_late_rows) == ([3, 1], 4)
    assert statistics_add_up(first, second)
    wrong = replace(second.statistics, late_rows_by_input=(3, 2))
    assert not statistics_add_up(first, replace(second, statistics=wrong))
    assert [stream.history.late_rows(number).num_rows for number in range(2)] == [3, 1]


def test_each_asset_has_the_late_rows_of_its_input(stream: TaskStream) -> None:
    shown = stream.epoch((0, [left(1), left(2)]), (1, [right(4)]))
    events = [late.materialization(0) for late in LateRows.of_stream(dg.AssetKey("s"), shown)]
    figures = [tuple(event.metadata[label].value for label in ("late_rows", "dagster/row_count")) for event in events]
    assert dict(zip([event.asset_key.path[0] for event in events], figures, strict=True)) == {
        "s_late_rows": (2, 2),
        "s_late_rows_1": (1, 1),
    }
