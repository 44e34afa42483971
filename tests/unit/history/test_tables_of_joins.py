"""What readers find in the table of a join whose inputs change: rows that may be equal, or rows with a key."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from dagster_ckpt.delivery.delivery_rows import delivered_table
from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.joins import RegularJoin
from dagster_ckpt.operators.step import OperatorStep
from tests.unit.operators.changing_streams import Row, bag_of, sum_of
from tests.worlds.task_stream import TaskStream, input_of

KIND = StructField("_change_type", StringType(), nullable=False)
LEFT = StructType([StructField("k", LongType()), StructField("x", LongType()), KIND])
RIGHT = StructType([StructField("m", LongType()), StructField("y", StringType()), KIND])


def stream(folder: Path, how: str, row_keys: Any = (None, None)) -> TaskStream:
    join = RegularJoin.build([input_of(LEFT), input_of(RIGHT)], (("k",), ("m",)), how, row_keys)
    return TaskStream(folder, OperatorStep.of(join).with_table(), [LEFT, RIGHT], (None, None))


def left(k: int | None, x: int, kind: str = "insert") -> tuple[int, list[Row]]:
    return 0, [{"k": k, "x": x, "_change_type": kind}]


def right(m: int | None, y: str, kind: str = "insert") -> tuple[int, list[Row]]:
    return 1, [{"m": m, "y": y, "_change_type": kind}]


def row(k: int | None, x: int | None, m: int | None, y: str | None) -> Row:
    return {"k": k, "x": x, "m": m, "y": y}


def bag(table: pa.Table) -> Any:
    return bag_of({name: each[name] for name in each if not name.startswith("_")} for each in table.to_pylist())


def test_equal_rows_are_read_as_often_as_they_are_there_at_any_epoch(tmp_path: Path) -> None:
    one = stream(tmp_path, "full")
    first = one.epoch(left(1, 5), left(1, 5), right(1, "a"), right(2, "b")).epoch
    second = one.epoch(left(1, 5, "delete"), right(1, "a"), right(None, "c")).epoch
    third = one.epoch(right(1, "a", "delete"), right(1, "a", "delete")).epoch
    wanted = {
        first: [row(1, 5, 1, "a")] * 2 + [row(None, None, 2, "b")],
        second: [row(1, 5, 1, "a")] * 2 + [row(None, None, 2, "b"), row(None, None, None, "c")],
        third: [row(1, 5, None, None), row(None, None, 2, "b"), row(None, None, None, "c")],
    }
    for epoch, rows in wanted.items():
        assert bag(one.history.read(epoch)) == bag_of(rows)


def test_the_changes_of_several_epochs_are_net_by_whole_rows(tmp_path: Path) -> None:
    one = stream(tmp_path, "inner")
    first = one.epoch(left(1, 5), right(1, "a")).epoch
    one.epoch(left(1, 5), left(1, 6))
    one.epoch(left(1, 5, "delete"), left(1, 5, "delete"))
    changes = one.history.changes(first).to_pylist()
    plain = [{name: each[name] for name in each if name != "_epoch"} for each in changes]
    assert sum_of(plain) == sum_of(
        [{**row(1, 6, 1, "a"), "_change_type": "insert"}, {**row(1, 5, 1, "a"), "_change_type": "delete"}]
    )


def test_a_table_of_rows_that_may_be_equal_has_no_key(tmp_path: Path) -> None:
    one = stream(tmp_path, "inner")
    one.epoch(left(1, 5), right(1, "a"))
    with pytest.raises(InvalidPipelineError, match="no key to find rows by: read its table, and filter it"):
        one.history.get({"k": [1]})
    with pytest.raises(InvalidPipelineError, match="mode='append'"):
        delivered_table("s", one.operator.pipeline, DeliveryMode.UPSERT)
    assert delivered_table("s", one.operator.pipeline, DeliveryMode.APPEND).columns.names[:4] == ["k", "x", "m", "y"]


@pytest.mark.parametrize("how", ["inner", "left", "right"])
def test_a_row_is_found_by_the_keys_of_both_inputs(how: str, tmp_path: Path) -> None:
    one = stream(tmp_path, how, (("x",), ("y",)))
    assert isinstance(one.operator, OperatorStep)
    key = delivered_table("s", one.operator.pipeline, DeliveryMode.UPSERT).key
    assert key == (("k", "m", "x", "y") if how == "right" else ("k", "x", "y"))
    one.epoch(left(1, 5), left(3, 6), right(1, "a"), right(1, "b"), right(2, "c"), right(None, "d"))
    rows: list[Row] = one.history.read().to_pylist()
    assert len(rows) == {"inner": 2, "left": 3, "right": 4}[how]
    for each in rows:
        found = one.history.get({name: [each[name]] for name in key})
        assert found.to_pylist() == [each]
    with pytest.raises(InvalidPipelineError, match="give values of these columns too"):
        one.history.get({"k": [1]})
