import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder, order_columns

NAN = float("nan")
SCHEMA = pa.schema([("f", pa.float64()), ("a desc", pa.string()), ("a`", pa.int8()), ("l", pa.list_(pa.int64()))])


def in_order(values: list[object], type_: pa.DataType, by: str) -> list[object]:
    rows = pa.table({"v": pa.array(values, type_)})
    order = RowOrder(order_columns("top", by, rows.schema), ("v",)).sort(np.zeros(len(rows), dtype=np.int64), rows)
    found: list[object] = rows.column("v").take(pa.array(order)).to_pylist()
    return found


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("v asc", [None, -1.5, -0.0, 0.0, 2.5, NAN]),
        ("v desc", [NAN, 2.5, -0.0, 0.0, -1.5, None]),
        ("v asc nulls last", [-1.5, -0.0, 0.0, 2.5, NAN, None]),
        (" v  DESC NULLS FIRST ", [None, NAN, 2.5, -0.0, 0.0, -1.5]),
        ("`v` desc", [NAN, 2.5, -0.0, 0.0, -1.5, None]),
    ],
)
def test_nulls_and_nan_are_where_sql_has_them(by: str, wanted: list[object]) -> None:
    assert repr(in_order([0.0, None, NAN, -1.5, 2.5, -0.0], pa.float64(), by)) == repr(wanted)


def test_the_least_number_descends_too() -> None:
    values: list[object] = [-(2**63), 0, 2**63 - 1]
    assert in_order(values, pa.int64(), "v desc") == values[::-1]
    assert in_order(["b", "", "a"], pa.string(), "v desc nulls first") == ["b", "a", ""]


def test_ties_are_broken_by_the_next_column_within_each_group() -> None:
    rows = pa.table({"a": [1, 1, 1, 0, 1, 1], "b": [None, 2, 1, 9, 1, 5], "c": ["z", "z", "y", "z", "x", "z"]})
    order = RowOrder(order_columns("top", ["a desc", "b asc nulls last"], rows.schema), ("a", "b", "c"))
    assert order.sort(np.array([0, 0, 0, 0, 0, 1]), rows).tolist() == [4, 2, 1, 0, 3, 5]


def test_what_is_spelled_is_read_again() -> None:
    columns = order_columns("top", ["`a desc` desc", "f asc", "`a``` asc nulls last"], SCHEMA)
    assert [(each.name, each.descending, each.nulls_first) for each in columns] == [
        ("a desc", True, False),
        ("f", False, True),
        ("a`", False, False),
    ]
    assert order_columns("top", [each.spelling() for each in columns], SCHEMA) == columns


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("f", "give a direction to each column that top orders by"),
        ("f downwards", "give a direction to each column"),
        ([3], "give a direction to each column"),
        ([], "at least one column, each once"),
        (["f asc", "f desc"], "at least one column, each once"),
        ("g desc", r"no such column.*column=g, use=top by="),
        ("l desc", r"values that have an order.*column=l"),
    ],
)
def test_an_order_that_cannot_be_is_refused(by: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        order_columns("top", by, SCHEMA)
