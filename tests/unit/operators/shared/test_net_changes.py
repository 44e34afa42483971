import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.shared.net_changes import changes_between, inserts
from tests.unit.operators.streams import Streamed, build

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows(**values: int | None) -> pa.Table:
    return pa.Table.from_pylist([{"k": key, "v": value} for key, value in values.items()], schema=SCHEMA)


def test_a_new_key_is_an_insert_and_a_known_one_two_rows() -> None:
    streamed = Streamed(build(SCHEMA, ("k",), total=agg.sum("v")))
    assert streamed.epoch(rows(a=1)) == [{"k": "a", "total": 1, "_change_type": "insert"}]
    assert streamed.epoch(rows(a=2, b=3)) == [
        {"k": "a", "total": 1, "_change_type": "update_preimage"},
        {"k": "a", "total": 3, "_change_type": "update_postimage"},
        {"k": "b", "total": 3, "_change_type": "insert"},
    ]


def test_several_batches_of_an_epoch_are_one_change() -> None:
    streamed = Streamed(build(SCHEMA, ("k",), total=agg.sum("v")))
    assert streamed.epoch(rows(a=1), rows(a=2), rows(a=4)) == [{"k": "a", "total": 7, "_change_type": "insert"}]


def test_a_row_that_is_what_it_was_is_no_change() -> None:
    streamed = Streamed(build(SCHEMA, ("k",), greatest=agg.max("v")))
    streamed.epoch(rows(a=5, b=None))
    assert streamed.epoch(rows(a=4, b=None)) == []
    assert [change["k"] for change in streamed.epoch(rows(a=4, b=1))] == ["b", "b"]


def test_a_result_that_stays_nan_is_no_change() -> None:
    streamed = Streamed(build(pa.schema([("k", pa.string()), ("v", pa.float64())]), ("k",), total=agg.sum("v")))
    batch = pa.table({"k": ["a"], "v": [float("nan")]})
    streamed.epoch(batch)
    assert streamed.epoch(batch) == []


def test_an_epoch_without_rows_has_no_changes_but_their_columns() -> None:
    streamed = Streamed(build(SCHEMA, ("k",), total=agg.sum("v")))
    assert streamed.epoch() == []
    assert streamed.epoch(rows()) == []


def test_changes_of_nothing_still_have_their_columns() -> None:
    nothing = Found(np.zeros(0, np.bool_), rows())
    changes = changes_between(nothing, nothing, ("k",))
    assert (changes.count, changes.rows.column_names) == (0, ["k", "v", "_change_type"])


def test_an_epoch_may_come_in_pieces_and_counts_its_keys() -> None:
    streamed = Streamed(build(SCHEMA, ("k",), total=agg.sum("v")))
    (table,) = streamed.state.tables.values()
    table.piece = 2
    changes = streamed.epoch(rows(a=1, b=2, c=3), rows(a=1, d=1, e=1))
    assert {change["k"]: change["total"] for change in changes} == {"a": 2, "b": 2, "c": 3, "d": 1, "e": 1}
    assert [change["_change_type"] for change in changes] == ["insert"] * 5
    assert streamed.context.counters == {"keys_touched": 5}


def test_a_key_that_went_is_a_delete() -> None:
    before = Found(np.array([True, True, False]), rows(a=1, b=2))
    after = Found(np.array([False, True, False]), rows(b=3))
    changes = changes_between(before, after, ("k",))
    assert changes.count == 3
    assert changes.rows.to_pylist() == [
        {"k": "b", "v": 2, "_change_type": "update_preimage"},
        {"k": "b", "v": 3, "_change_type": "update_postimage"},
        {"k": "a", "v": 1, "_change_type": "delete"},
    ]


def test_appended_rows_are_inserts_and_keep_their_order() -> None:
    assert inserts(rows(b=1, a=2)).rows.to_pylist() == [
        {"k": "b", "v": 1, "_change_type": "insert"},
        {"k": "a", "v": 2, "_change_type": "insert"},
    ]
