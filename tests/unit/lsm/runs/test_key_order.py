from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.lsm.columns import equal
from dagster_ckpt.lsm.runs import key_order as key_order_module
from dagster_ckpt.lsm.runs.key_order import hash_order, key_codes, key_order

KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]))


@pytest.mark.parametrize("numbers", ["different", "alike"])
@given(rows=st.lists(st.tuples(st.integers(0, 2), KEYS)))
def test_each_key_is_one_stretch_in_the_order_of_its_rows(
    numbers: str, rows: list[tuple[int, tuple[str | None, int | None]]]
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
    with pytest.MonkeyPatch.context() as patch:
        if numbers == "alike":  # the cheap numbers of different keys, by bad luck
            patch.setattr(key_order_module, "row_numbers", lambda columns: np.zeros(len(columns[0]), dtype=np.uint64))
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


@given(st.lists(st.integers(0, 5) | st.integers(2**64 - 5, 2**64 - 1) | st.integers(2**63 - 3, 2**63 + 3)))
def test_rows_of_one_hash_stay_in_their_order(values: list[int]) -> None:
    hashes = np.array(values, dtype=np.uint64)
    assert hash_order(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()


@pytest.mark.parametrize("near", [0, 1, 30, 3000])
@pytest.mark.parametrize("seed", range(3))
def test_hashes_that_differ_in_low_bits_alone_are_in_order_too(near: int, seed: int) -> None:
    """A few of them are sorted in place; with many, all rows are sorted again."""
    chance = np.random.default_rng(seed)
    hashes = chance.integers(0, 2**64, 8000, dtype=np.uint64)
    hashes[:3] = 0, 2**64 - 1, 2**63
    low_bits = chance.integers(0, 512, near, dtype=np.uint64)
    hashes[4000 : 4000 + near] = (hashes[1000 : 1000 + near] >> np.uint64(9) << np.uint64(9)) + low_bits
    assert hash_order(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()


def test_nan_equals_nan_and_null_equals_only_null() -> None:
    left = pa.array([float("nan"), 1.0, None, None])
    right = pa.array([float("nan"), 1.0, None, 1.0])
    assert equal(left, right).tolist() == [True, True, True, False]
