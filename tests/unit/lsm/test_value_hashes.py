from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.value_hashes import is_hashable, value_hashes

NESTED = pa.struct(
    [("l", pa.list_(pa.struct([("s", pa.string()), ("f", pa.float64())]))), ("m", pa.map_(pa.string(), pa.int32()))]
)
DISTINCT: list[Any] = [
    None,
    {"l": None, "m": None},
    {"l": [], "m": None},
    {"l": [None], "m": None},
    {"l": [None, None], "m": None},
    {"l": [{"s": None, "f": None}], "m": None},
    {"l": [{"s": "a", "f": 1.0}], "m": [("k", 1)]},
    {"l": [{"s": "a", "f": 1.0}], "m": [("k", 2)]},
    {"l": [{"s": "a", "f": 1.0}], "m": [("k", 1), ("j", 1)]},
    {"l": [{"s": "a", "f": 1.0}, {"s": "b", "f": 2.0}], "m": [("k", 1)]},
    {"l": [{"s": "b", "f": 2.0}, {"s": "a", "f": 1.0}], "m": [("k", 1)]},
]


def hashes(column: pa.Array) -> list[int]:
    found: list[int] = value_hashes([column], np.full(len(column), 7, dtype=np.uint64)).tolist()
    return found


@pytest.mark.parametrize(
    ("column", "known"),
    [
        (pa.array(["", "ab\0"]), [0xA706DD2F4D197E6F, 0xB495ADD333670DEC]),
        (pa.array([-1, None], pa.int16()), [0xE4D971771B652C20, 0x48416938EF0DCF6F]),
        (pa.array([Decimal("1.10")]), [0xF448B417368F7CCA]),
    ],
)
def test_hashes_of_plain_values_never_change(column: pa.Array, known: list[int]) -> None:
    assert value_hashes([column], np.arange(len(column), dtype=np.uint64)).tolist() == known


def test_nested_values_that_differ_have_different_hashes() -> None:
    assert len(set(hashes(pa.array(DISTINCT, NESTED)))) == len(DISTINCT)


def test_equal_nested_values_have_equal_hashes_wherever_they_are_stored() -> None:
    column = pa.array(DISTINCT, NESTED)
    at = pa.array([9, 3, 0, 6])
    wanted = [hashes(column)[number] for number in at.to_pylist()]
    assert hashes(column.take(at)) == wanted
    assert hashes(pa.array([DISTINCT[0], *DISTINCT], NESTED)[1:]) == hashes(column)
    assert hashes(pa.array([DISTINCT[10]], NESTED)) == hashes(column[10:])


def test_lists_of_any_kind_are_hashed_by_their_values() -> None:
    lists = [[1.5, None], [], [-0.0, float("nan")]]
    assert hashes(pa.array(lists, pa.large_list(pa.float64()))) == hashes(pa.array(lists, pa.list_(pa.float64())))
    fixed = pa.array([[0, 1], [2, 3]], pa.list_(pa.int64(), 2))
    assert hashes(fixed[1:]) == hashes(pa.array([[2, 3]], pa.list_(pa.int64())))
    assert hashes(pa.array([[0.0, float("nan")]])) == hashes(pa.array([[-0.0, -float("nan")]]))


def test_a_column_of_nothing_but_nulls_has_hashes() -> None:
    assert len(set(hashes(pa.nulls(3)))) == 1


def test_what_has_no_hash_is_known() -> None:
    assert is_hashable(NESTED)
    assert not is_hashable(pa.struct([("x", pa.month_day_nano_interval())]))
    assert not is_hashable(pa.list_(pa.decimal256(50, 2)))
    assert not is_hashable(pa.dictionary(pa.int8(), pa.string()))
