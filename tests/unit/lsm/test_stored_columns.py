import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch
from dagster_ckpt.lsm.columns import Column, gather
from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs
from dagster_ckpt.lsm.file.run_file import decode, encode
from dagster_ckpt.lsm.runs.deltas import read_before_images, with_before_images
from dagster_ckpt.lsm.runs.hash_pieces import rows_in
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.stored_columns import may_be_narrow, narrow, row_bytes, widen
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.protocol.manifest.manifest import RunRef

NAME = "state/groups/file.arrow"
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("at", pa.timestamp("us"))])
TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.timestamp("us", "UTC"), pa.duration("ms"), pa.time64("us"), pa.date64()),
]
OTHERS = [pa.float64(), pa.string(), pa.decimal128(20, 2), pa.bool_(), pa.date32(), pa.null(), pa.list_(pa.int64())]
EDGES = sorted(
    {sign * 2**bits + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1) for more in (-1, 0)}
)


def column_of(type_: pa.DataType, numbers: list[int | None]) -> pa.Array:
    """Those of the numbers that the type can hold; of times of the day and whole days, what they hold."""
    integer = type_ if pa.types.is_integer(type_) else pa.int64()
    reach = np.iinfo(integer.to_pandas_dtype())
    held = [number for number in numbers if number is None or reach.min <= number <= reach.max]
    return pa.array(held, integer).view(type_)


@given(some.sampled_from(TYPES), some.lists(some.none() | some.sampled_from(EDGES) | some.integers(-300, 300)))
@example(pa.uint64(), [2**64 - 1, None])
@example(pa.int64(), [-(2**63)])
def test_no_number_changes(type_: pa.DataType, numbers: list[int | None]) -> None:
    column = column_of(type_, numbers)
    small = narrow(column)
    assert may_be_narrow(small.type, type_)
    again = widen(small, type_)
    assert again.equals(column)
    widths = [8, 16, 32, 64]
    values = [number for number in numbers if number is not None]
    if column.null_count == len(numbers) - len(values) and len(column) == len(numbers):
        least = next(
            (bits for bits in widths if all(-(2 ** (bits - 1)) <= one < 2 ** (bits - 1) for one in values)), 64
        )
        assert small.type.bit_width == min(least, type_.bit_width), "the least that holds all of them"


@pytest.mark.parametrize("type_", OTHERS, ids=str)
def test_what_is_no_integer_is_left_alone(type_: pa.DataType) -> None:
    column = pa.nulls(3, type_)
    assert narrow(column) is column
    assert not may_be_narrow(pa.int8(), type_)


@given(some.lists(some.lists(some.none() | some.sampled_from(EDGES), min_size=1), min_size=1, max_size=4), some.data())
def test_values_of_several_widths_come_together(columns: list[list[int | None]], data: some.DataObject) -> None:
    wide = [pa.array([one for one in each if one is None or abs(one) < 2**63] or [0], pa.int64()) for each in columns]
    at = [np.array(data.draw(some.lists(some.integers(0, len(each) - 1))), dtype=np.int64) for each in wide]
    expected = pa.concat_arrays([each.take(pa.array(mine)) for each, mine in zip(wide, at, strict=True)])
    assert gather([Column(narrow(each), pa.int64()) for each in wide], at).equals(expected)


def run_from(keys: list[int], values: list[int | None]) -> Run:
    rows = pa.table([keys, values, pa.nulls(len(keys), pa.timestamp("us"))], schema=SCHEMA)
    return build_run(np.array(keys, dtype=np.uint64), rows)


def stored(run: Run) -> Run:
    file = encode(run)
    return decode(NAME, file.data, file.checksum, SCHEMA)


def test_a_run_of_its_file_answers_as_it_did_in_memory() -> None:
    old = run_from(list(range(100)), [*range(-50, 49), None])
    new = run_from(list(range(0, 200, 2)), [2**40] * 100)
    images = with_before_images(new, Found(np.arange(100) < 50, old.columns().slice(0, 50)), ["k"])
    again = stored(images)
    assert stored(old).table.schema.types == [pa.int8(), pa.int8(), pa.int8()]
    assert again.table.schema.types == [pa.int16(), pa.int64(), pa.int8()]
    assert again.columns().equals(new.columns())
    assert again.slice(7, 50).columns(["at", "k"]).equals(new.columns(["at", "k"]).slice(7, 43))
    assert again.load().columns().equals(new.columns())
    for mine, theirs in ((again, images), (again.slice(3, 60), images.slice(3, 60))):
        had, should = read_before_images(mine, ["k"], SCHEMA), read_before_images(theirs, ["k"], SCHEMA)
        assert had.present.tolist() == should.present.tolist()
        assert had.rows.equals(should.rows)
    for mine, theirs in (
        (merge_runs([stored(new), stored(old)], ["k"]), merge_runs([new, old], ["k"])),
        (merge_into([stored(old)], stored(new), ["k"]), merge_into([old], new, ["k"])),
        (stored(stored(new)), new),
    ):
        assert mine.columns().equals(theirs.columns())
        assert mine.hashes.tolist() == theirs.hashes.tolist()


def test_a_column_wider_than_its_table_s_is_refused() -> None:
    file = encode(run_from([1], [2**40]))
    narrower = SCHEMA.set(1, pa.field("v", pa.int32()))
    with pytest.raises(CorruptStateError, match="other columns"):
        decode(NAME, file.data, file.checksum, narrower)


def test_a_piece_has_as_many_rows_as_fit_into_memory_once_they_are_wide() -> None:
    assert row_bytes(SCHEMA) == 32
    assert row_bytes(pa.schema([("s", pa.string()), ("t", pa.bool_())])) == 25
    narrow, wide = (RunRef("r", 100, size, "", Epoch(1), hashes=HashRange()) for size in (1_000, 10_000))
    assert rows_in(3200, [narrow], SCHEMA) == 100
    assert rows_in(3200, [wide], SCHEMA) == 32
    assert rows_in(1, [], SCHEMA) == 1
