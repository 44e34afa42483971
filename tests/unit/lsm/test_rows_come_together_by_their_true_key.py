from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.lsm.columns import equal
from dagster_ckpt.lsm.key_order import key_codes, key_order

KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))


@given(st.lists(st.tuples(st.integers(0, 2), KEYS)))
def test_each_key_is_one_stretch_in_the_order_of_its_rows(
    rows: list[tuple[int, tuple[str | None, int | None]]],
) -> None:
    # The same key always has the same hash; different ones often share it.
    hash_of_key = {key: hash_ for hash_, key in rows}
    hashes = np.array([hash_of_key[key] for _, key in rows], dtype=np.uint64)
    keys = pa.table(
        {
            "k": pa.array([key[0] for _, key in rows], pa.string()),
            "n": pa.array([key[1] for _, key in rows], pa.int32()),
        }
    )
    groups = key_order(hashes, keys)
    assert sorted(groups.order) == list(range(len(rows)))
    stretches = [list(stretch) for stretch in np.split(groups.order, groups.starts[1:])] if rows else []
    assert [len(stretch) for stretch in stretches] == list(groups.sizes)
    for stretch in stretches:
        assert stretch == sorted(stretch)
        assert len({rows[row][1] for row in stretch}) == 1
    assert len(stretches) == len(hash_of_key)
    assert list(hashes[groups.order]) == sorted(hashes)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.string(), ["a", "", None, "a"]),
        (pa.binary(), [b"a", b"", None, b"a"]),
        (pa.bool_(), [True, False, None, True]),
        (pa.date32(), [0, 1, None, 0]),
        (pa.timestamp("us", "UTC"), [0, 1, None, 0]),
        (pa.decimal128(20, 2), [Decimal("1.10"), Decimal(0), None, Decimal("1.10")]),
        (pa.int8(), [1, 0, None, 1]),
    ],
)
def test_keys_of_every_type_are_numbered_and_compared(type_: pa.DataType, values: list[object]) -> None:
    column = pa.array(values, type_)
    codes = key_codes(pa.table({"k": column}))
    assert codes[0] == codes[3]
    assert len(set(codes)) == 3
    assert equal(column, column[::-1]).tolist() == [True, False, False, True]
    assert equal(column.slice(1, 2), column.slice(2, 2)).tolist() == [False, False]


def test_nan_equals_nan_and_null_equals_only_null() -> None:
    left = pa.array([float("nan"), 1.0, None, None])
    right = pa.array([float("nan"), 1.0, None, 1.0])
    assert equal(left, right).tolist() == [True, True, True, False]
