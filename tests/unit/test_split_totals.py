import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from dagster_ckpt.protocol.transitions.later_columns import later
from dagster_ckpt.split_totals import HALF, HALF_BITS, full_total_for, half_names, half_of, total_name

HIGH, LOW = half_names("x")
EDGES = sorted({sign * 2**bits + more for bits in (0, 31, 32, 33, 63) for sign in (1, -1) for more in (-1, 0, 1)})
INT64 = [edge for edge in EDGES if -(2**63) <= edge < 2**63]


@given(some.lists(some.none() | some.sampled_from(INT64) | some.integers(-(2**63), 2**63 - 1)))
@example([])
def test_the_halves_are_the_total(totals: list[int | None]) -> None:
    high, low = (half_of(name, pa.array(totals, pa.int64())).to_pylist() for name in (HIGH, LOW))
    assert [
        None if each is None else (each << HALF_BITS) + rest for each, rest in zip(high, low, strict=True)
    ] == totals
    assert all(rest is None or 0 <= rest <= HALF for rest in low)


def test_a_total_in_a_file_may_be_narrow() -> None:
    narrow = pa.array([-3, None, 100], pa.int8())
    assert half_of(HIGH, narrow).equals(pa.array([-1, None, 0], pa.int64()))
    assert half_of(LOW, narrow).equals(pa.array([2**32 - 3, None, 100], pa.int64()))


@pytest.mark.parametrize("name", [HIGH, LOW])
def test_a_half_is_made_of_the_total_of_its_column_that_began_when_it_did(name: str) -> None:
    names = [total_name("x"), total_name("y"), later(total_name("x"), 41)]
    there = {each: pa.field(each, pa.int64()) for each in names}
    assert full_total_for(name, there) is there["_sum(x)"]
    assert full_total_for(later(name, 41), there) is there["_sum(x) since 41"]
    assert full_total_for(later(name, 4), there) is None
    assert full_total_for(name, {"_sum(x)": pa.field("_sum(x)", pa.int8())}) is not None, "narrow in its file"


@pytest.mark.parametrize("type_", [pa.float64(), pa.decimal128(20, 0), pa.string()], ids=str)
def test_a_half_is_made_of_no_other_type(type_: pa.DataType) -> None:
    assert full_total_for(HIGH, {"_sum(x)": pa.field("_sum(x)", type_)}) is None


@pytest.mark.parametrize("name", ["_sum(x)", "_n(x)", "_max(x)", "_sum_high", "x"])
def test_no_other_column_is_made(name: str) -> None:
    assert full_total_for(name, {"_sum(x)": pa.field("_sum(x)", pa.int64())}) is None
