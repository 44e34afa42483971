import mmap
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import (
    Column,
    equal,
    flat,
    from_plain,
    gather,
    plain,
    row_codes,
    stretches,
    take_array,
    value_codes,
)

NAN = float("nan")
COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, -1, 0, 1]),
    (pa.uint16(), [1, 2, 0, 1]),
    (pa.float32(), [1.5, NAN, 0.0, 1.5]),
    (pa.float64(), [NAN, 0.0, -0.0, NAN]),
    (pa.bool_(), [True, False, None, True]),
    (pa.date32(), [0, 1, 2, 0]),
    (pa.timestamp("us", "UTC"), [0, 1, 2**40, 0]),
    (pa.time64("us"), [0, 1, 2, 0]),
    (pa.duration("ms"), [0, 1, 2, 0]),
    (pa.decimal128(38, 2), [Decimal("1.50"), Decimal(10**30), Decimal(0), Decimal("1.50")]),
    (pa.decimal256(60, 2), [Decimal("1.50"), Decimal(10**50), Decimal(0), Decimal("1.50")]),
    (pa.binary(3), [b"abc", b"abd", b"\0\0\0", b"abc"]),
    (pa.string(), ["a", "", "long enough", "a"]),
    (pa.large_binary(), [b"a", b"", b"\xff", b"a"]),
    (pa.null(), [None, None, None, None]),
    (pa.list_(pa.int64()), [[1, None], [], [1], [1, None]]),
    (pa.large_list(pa.string()), [["a", "b"], ["ab"], ["a"], ["a", "b"]]),
    (pa.list_(pa.int16(), 2), [[1, 2], [2, 1], [None, 2], [1, 2]]),
    (
        pa.struct([("x", pa.int8()), ("y", pa.string())]),
        [{"x": 1}, {"x": None, "y": "1"}, {"y": "1", "x": 1}, {"x": 1}],
    ),
    (pa.map_(pa.string(), pa.float64()), [[("a", NAN)], [], [("a", None)], [("a", NAN)]]),
    (pa.list_(pa.struct([("l", pa.list_(pa.int8()))])), [[{"l": [1]}], [{"l": None}], [None], [{"l": [1]}]]),
]
IDS = [str(type_) for type_, _ in COLUMNS]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=IDS)
def test_a_column_of_every_type_is_compared_by_its_values(type_: pa.DataType, values: list[Any]) -> None:
    """Equal are the first and the fourth, and what is null; the second and third are neither."""
    column = pa.array([*values, None, None], type_)
    codes = value_codes(column)
    same = {(a, b) for a in range(6) for b in range(6) if codes[a] == codes[b]}
    if pa.types.is_null(type_):
        assert len(same) == 36
    else:
        groups = [{0, 3}, {1}, {2, 4, 5} if values[2] is None else {2}, {4, 5}]
        assert same == {(a, b) for group in groups for a in group for b in group}
    shifted = [(number + shift) % 6 for shift in range(6) for number in range(6)]
    numbers = list(range(6)) * 6
    expected = [(a, b) in same for a, b in zip(numbers, shifted, strict=True)]
    assert equal(column.take(pa.array(numbers)), column.take(pa.array(shifted))).tolist() == expected


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=IDS)
@pytest.mark.parametrize("nulls", [[], [None]], ids=["without nulls", "with nulls"])
def test_a_column_of_every_type_is_taken_from_slices_of_several(
    type_: pa.DataType, values: list[Any], nulls: list[None]
) -> None:
    one = pa.array([*values, *nulls], type_).slice(1)
    other = pa.array([*nulls, *values[::-1]], type_)
    at = np.array([2, 0, 0]), np.array([], dtype=np.int64), np.array([1, 3])
    columns = [Column(each, each.type) for each in (one, one, other)]
    expected = pa.concat_arrays([one.take(pa.array(at[0])), other.take(pa.array(at[2]))])
    assert bits(gather(columns, at)) == bits(expected)
    assert bits(gather(columns[:1], at[:1])) == bits(one.take(pa.array(at[0])))
    assert bits(take_array(other, at[2])) == bits(other.take(pa.array(at[2])))
    assert len(take_array(other.slice(0, 0), at[1])) == 0


def bits(column: pa.Array) -> list[str]:
    """Values that stay distinct even where NaN is not equal to itself."""
    return [repr(value) for value in column.to_pylist()]


@pytest.mark.parametrize(("type_", "values"), COLUMNS, ids=IDS)
def test_plain_values_are_the_column_s_own_and_make_it_again(type_: pa.DataType, values: list[Any]) -> None:
    column = pa.array(values, type_)
    assert plain(pa.array([*values, None], type_)) is None
    if (numbers := plain(column.slice(1, 2))) is not None:
        assert bits(from_plain(numbers, type_)) == bits(column.slice(1, 2))
        assert numbers.__array_interface__["data"][0] == column.buffers()[1].address + numbers.itemsize
    fixed = (pa.types.is_primitive(type_) and type_ != pa.bool_()) or pa.types.is_decimal(type_)
    assert (numbers is not None) == (fixed or type_ == pa.binary(3))


def test_codes_of_rows_are_equal_where_all_columns_are() -> None:
    columns = [pa.array([1, 1, 2, None, None]), pa.array(["a", "b", "a", None, None])]
    assert len(set(row_codes(columns).tolist())) == 4
    assert row_codes(columns)[3] == row_codes(columns)[4]
    assert value_codes(pa.array([], pa.list_(pa.string()))).tolist() == []


def test_stretches_are_all_positions_of_ranges() -> None:
    assert stretches(np.array([3, 7, 0]), np.array([5, 7, 2])).tolist() == [3, 4, 0, 1]
    assert stretches(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).tolist() == []


def test_strings_that_overflow_offsets_are_refused_with_advice() -> None:
    """Two strings of 1.5 GiB that are never touched, so that no memory is used."""
    size = 3 << 29
    nothing = pa.py_buffer(mmap.mmap(-1, size))
    huge = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, size], dtype=np.int32)), nothing])
    with pytest.raises(InvalidPipelineError, match=r"more than 2 GiB.*type=string, rows=2"):
        flat(pa.chunked_array([huge, huge]))
