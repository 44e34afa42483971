"""Steps without keys: one group of all rows, through tasks, state files, commits and readers; no Spark."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from dagster_ckpt import IncompatibleStateError, InvalidPipelineError, agg
from dagster_ckpt.operators import RunningAggregate, from_pipeline
from dagster_ckpt.operators.column_lineage import columns_read
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.rows.materializer import Materializer
from dagster_ckpt.operators.shared.window_kinds import Session, Tumbling
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.operators.windows.session_aggregate import SessionAggregate
from dagster_ckpt.operators.windows.window_aggregate import WindowAggregate
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.worlds.task_stream import TaskStream, input_of

MINUTE_US = 60_000_000
READINGS = StructType(
    [StructField("v", LongType()), StructField("w", StringType()), StructField("at", TimestampType())]
)
CHANGES = StructType([StructField("v", LongType()), StructField("_change_type", StringType())])
SUMS = {"n": agg.count(), "total": agg.sum("v"), "words": agg.count_distinct("w")}


def reading(v: int | None, w: str | None = None, minute: int = 0) -> dict[str, Any]:
    return {"v": v, "w": w, "at": datetime(2024, 1, 1, 0, minute, tzinfo=UTC)}


def a_stream(
    folder: Path, build: Callable[..., Operator], columns: StructType = READINGS, time: str | None = None
) -> TaskStream:
    operator = OperatorStep.of(one_group(input_of(columns), build))
    assert from_pipeline(operator.pipeline).pipeline == operator.pipeline
    return TaskStream(folder, operator, (columns,), (time,))


def sums(keys: tuple[str, ...], spec: Any) -> Operator:
    return RunningAggregate.build(keys, SUMS, spec)


def test_a_count_alone_reads_no_column_and_counts(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, lambda keys, spec: RunningAggregate.build(keys, {"n": agg.count()}, spec))
    stream.epoch((0, [reading(1), reading(2)]), (0, [reading(3)]))
    stream.epoch((0, [reading(None)]))
    assert stream.rows() == [{"n": 4}]


def test_the_table_is_empty_until_the_first_row_and_then_has_one(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, sums)
    stream.epoch()
    assert stream.rows() == []
    stream.epoch((0, [reading(1, "a"), reading(2, "b")]), (0, [reading(3, "a")]))
    assert stream.rows() == [{"n": 3, "total": 6, "words": 2}]
    stream.epoch((0, [reading(None, "c")]))
    assert stream.rows() == [{"n": 4, "total": 6, "words": 3}]
    assert stream.history.read().column_names == ["n", "total", "words"]
    changes = stream.history.changes(after=0).select(["n", "_change_type"]).to_pylist()
    assert [tuple(each.values()) for each in changes] == [
        (3, "insert"),
        (3, "update_preimage"),
        (4, "update_postimage"),
    ]


def test_a_lasting_group_has_its_row_from_the_first_epoch_on(tmp_path: Path) -> None:
    several = {**SUMS, "least": agg.min("v"), "mean": agg.avg("v"), "spread": agg.stddev("v")}
    stream = a_stream(tmp_path, lambda keys, spec: RunningAggregate.build(keys, several, spec).lasting())
    nothing = {"n": 0, "total": None, "words": 0, "least": None, "mean": None, "spread": None}
    stream.epoch()
    assert stream.rows() == [nothing]
    stream.epoch()
    assert stream.rows() == [nothing]
    stream.epoch((0, [reading(1, "a"), reading(2, "b"), reading(None)]))
    assert stream.rows() == [
        {"n": 3, "total": 3, "words": 2, "least": 1, "mean": 1.5, "spread": pytest.approx(0.5**0.5)}
    ]


def test_a_lasting_group_keeps_its_row_when_all_rows_are_retracted(tmp_path: Path) -> None:
    several = {"n": agg.count(), "total": agg.sum("v"), "least": agg.min("v"), "kinds": agg.count_distinct("v")}

    def build(keys: tuple[str, ...], spec: Any) -> Operator:
        return RunningAggregate.build(keys, several, spec, updating=True).lasting()

    def change(v: int | None, kind: str) -> dict[str, Any]:
        return {"v": v, "_change_type": kind}

    stream, nothing = a_stream(tmp_path, build, CHANGES), {"n": 0, "total": None, "least": None, "kinds": 0}
    stream.epoch((0, [change(5, "insert"), change(5, "delete")]))
    assert stream.rows() == [nothing]
    stream.epoch((0, [change(5, "insert"), change(7, "insert"), change(None, "insert")]))
    assert stream.rows() == [{"n": 3, "total": 12, "least": 5, "kinds": 2}]
    stream.epoch((0, [change(5, "delete"), change(7, "delete"), change(None, "delete")]))
    assert stream.rows() == [nothing]


def test_it_goes_on_with_another_number_of_shards(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, sums)
    stream.epoch((0, [reading(1, "a"), reading(2, "b")]))
    stream.history.reshard(8, fence=True)
    assert stream.rows() == [{"n": 2, "total": 3, "words": 2}]
    stream.history.verify()


def test_a_row_is_not_found_by_a_key(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, sums)
    stream.epoch((0, [reading(1)]))
    with pytest.raises(InvalidPipelineError, match="one row and no key: read the table"):
        stream.history.get({"n": [1]})


def test_a_key_is_no_compatible_change(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, sums)
    stream.epoch((0, [reading(1, "a")]))
    stream.writer.close("the test goes on")
    with pytest.raises(IncompatibleStateError, match="the key was none, now it is w"):
        stream.open(RunningAggregate.build(("w",), {"n": agg.count(), "total": agg.sum("v")}, input_of(READINGS)))


def test_rows_of_an_updating_table_are_retracted_until_none_is_left(tmp_path: Path) -> None:
    def of_changes(keys: tuple[str, ...], spec: Any) -> Operator:
        return RunningAggregate.build(keys, {"n": agg.count(), "total": agg.sum("v")}, spec, updating=True)

    stream = a_stream(tmp_path, of_changes, CHANGES)
    stream.epoch((0, [{"v": 1, "_change_type": "insert"}, {"v": 2, "_change_type": "insert"}]))
    stream.epoch((0, [{"v": 2, "_change_type": "update_preimage"}, {"v": 5, "_change_type": "update_postimage"}]))
    assert stream.rows() == [{"n": 2, "total": 6}]
    stream.epoch((0, [{"v": 1, "_change_type": "delete"}, {"v": 5, "_change_type": "delete"}]))
    assert stream.rows() == []


def test_a_table_of_one_row_is_followed_and_filtered(tmp_path: Path) -> None:
    stream = a_stream(tmp_path, lambda keys, spec: Materializer.build(keys, spec, "v > 1"), CHANGES)
    stream.epoch((0, [{"v": 3, "_change_type": "insert"}]))
    stream.epoch((0, [{"v": 3, "_change_type": "update_preimage"}, {"v": 7, "_change_type": "update_postimage"}]))
    assert stream.rows() == [{"v": 7}]
    assert row_key(stream.operator.pipeline) == ()
    stream.epoch((0, [{"v": 7, "_change_type": "update_preimage"}]))
    assert stream.rows() == []


WINDOWS: list[Any] = [(WindowAggregate, Tumbling(10 * MINUTE_US)), (SessionAggregate, Session(2 * MINUTE_US))]


@pytest.mark.parametrize(("kind", "window"), WINDOWS, ids=["tumbling", "session"])
def test_a_window_has_one_row_over_everything(tmp_path: Path, kind: Any, window: Any) -> None:
    def build(keys: tuple[str, ...], spec: Any) -> Operator:
        operator: Operator = kind.build(keys, {"n": agg.count()}, spec, "at", window, False, "keep")
        return operator

    stream = a_stream(tmp_path, build, time="at")
    stream.epoch((0, [reading(1, minute=0), reading(2, minute=1)]))
    stream.epoch((0, [reading(3, minute=20)]))
    stream.epoch()
    [row] = stream.rows()
    assert (row["n"], row["window_start"].minute) == (2, 0)
    stream.epoch((0, [reading(9, "late", minute=0)]))
    [late] = stream.history.late_rows().to_pylist()
    assert (late["v"], late["w"]) == (9, "late")
    assert set(columns_read(stream.operator.pipeline)) == {"window_start", "window_end", "n"}


@pytest.mark.parametrize(("kind", "window"), WINDOWS, ids=["tumbling", "session"])
def test_an_early_window_is_found_by_its_start(tmp_path: Path, kind: Any, window: Any) -> None:
    def build(keys: tuple[str, ...], spec: Any) -> Operator:
        operator: Operator = kind.build(keys, {"n": agg.count()}, spec, "at", window, True)
        return operator

    stream = a_stream(tmp_path, build, time="at")
    stream.epoch((0, [reading(1, minute=0), reading(2, minute=1), reading(3, minute=20)]))
    starts = [row["window_start"] for row in stream.rows()]
    assert row_key(stream.operator.pipeline) == ("window_start",)
    found = stream.history.get({"window_start": sorted(starts)}).to_pylist()
    assert [row["n"] for row in found] == [2, 1]


def test_a_column_with_the_name_of_the_hidden_key_is_refused() -> None:
    taken = input_of(StructType([StructField("_Group", LongType())]))
    with pytest.raises(InvalidPipelineError, match=r"rename yours\. column=_Group"):
        OperatorStep.of(one_group(taken, lambda keys, spec: RunningAggregate.build(keys, {"n": agg.count()}, spec)))
