from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.task.row_intake import NULL_ROWS, Intake, check_text, cut_chunks, rows_by_input
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, columns_of_input


def batches_of(*rows: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"x": np.arange(each)}) for each in rows]


def test_batches_are_put_together_up_to_the_limit() -> None:
    assert [chunk.num_rows for chunk in cut_chunks(batches_of(10, 0, 10, 10, 5), 160)] == [20, 15]
    assert [chunk.num_rows for chunk in cut_chunks(batches_of(10, 0, 10, 10, 5), 100)] == [10, 10, 10, 5]
    assert list(cut_chunks([], 1)) == []


def test_a_batch_above_the_limit_is_cut() -> None:
    assert [chunk.num_rows for chunk in cut_chunks(batches_of(25), 80)] == [9, 9, 7]
    assert [chunk.num_rows for chunk in cut_chunks(batches_of(3), 1)] == [1, 1, 1]


def test_a_single_row_above_the_limit_is_one_chunk() -> None:
    texts = pa.record_batch({"x": ["a", "b" * 1000, "c", "d"]})
    assert [chunk["x"].to_pylist()[0][0] for chunk in cut_chunks([texts], 100)] == ["a", "b", "c"]


@given(rows=st.lists(st.integers(0, 50), max_size=6), bytes_max=st.integers(1, 500))
def test_no_row_is_lost_and_no_chunk_is_empty_or_too_large(rows: list[int], bytes_max: int) -> None:
    chunks = list(cut_chunks(batches_of(*rows), bytes_max))
    assert [value for chunk in chunks for value in chunk["x"].to_pylist()] == [x for each in rows for x in range(each)]
    assert all(chunk.num_rows == 1 or 0 < chunk.nbytes <= bytes_max for chunk in chunks)


class Ticking:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


def test_the_wait_for_rows_is_no_work() -> None:
    clock = Ticking()

    def coming() -> Iterator[pa.Table]:
        for _ in range(3):
            clock.ms += 100
            yield pa.table({"at": pa.array([5, 7, None], pa.timestamp("us"))})
        clock.ms += 100

    intake = Intake(("at",), clock)  # type: ignore[arg-type]
    for chunk in intake.chunks(coming()):
        intake.see(0, chunk)
        clock.ms += 3
    assert (intake.rows, intake.event_times_us, intake.busy_ms) == (9, (7,), 9)


def test_rows_without_an_event_time_show_none() -> None:
    intake = Intake(("at", None), Ticking())  # type: ignore[arg-type]
    for chunk in intake.chunks([pa.table({"at": pa.nulls(2, pa.timestamp("us"))})]):
        intake.see(0, chunk)
        intake.see(1, chunk)
    assert intake.event_times_us == (None, None)


def test_event_times_out_of_range_do_not_move_the_watermark() -> None:
    intake = Intake(("at", "at"), Ticking())  # type: ignore[arg-type]
    times = [-(2**63), 2**61, 2**63 - 1, 2**61 + 1, None]
    intake.see(0, pa.table({"at": pa.array(times, pa.timestamp("us"))}))
    intake.see(1, pa.table({"at": pa.array([-(2**63), 2**63 - 1, -(2**61) - 1], pa.timestamp("us"))}))
    assert intake.event_times_us == (2**61, None)


def test_rows_of_several_inputs_are_separated() -> None:
    schemas = [pa.schema([("a.b", pa.int64()), ("t", pa.string())]), pa.schema([("x", pa.float64())])]
    left, right = pa.struct(schemas[0]), pa.struct(schemas[1])
    chunk = pa.table(
        {
            INPUT: pa.array([0, 1, 0], pa.int32()),
            HASH: pa.array([1, -1, 3], pa.int64()),
            columns_of_input(0): pa.array([{"a.b": 5, "t": None}, None, {"a.b": None, "t": "z"}], left),
            columns_of_input(1): pa.array([None, {"x": 0.5}, None], right),
        }
    )
    [first, second] = rows_by_input(chunk, schemas)
    assert (first[0], first[1].tolist()) == (0, [1, 3])
    assert first[2].to_pylist() == [{"a.b": 5, "t": None}, {"a.b": None, "t": "z"}]
    assert (second[0], second[1].tolist(), second[2].to_pylist()) == (1, [2**64 - 1], [{"x": 0.5}])
    assert [found[2].schema for found in (first, second)] == schemas


def strings(*values: bytes | None) -> pa.Array:
    """An array as Spark makes it of bytes that are cast to strings: nothing is checked."""
    validity, offsets, data = pa.array(values, pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), len(values), [validity, offsets, data])


def within(array: pa.Array) -> list[pa.Array]:
    """The array, and columns that have its values in a struct, a list and a map."""
    offsets = pa.array(range(len(array) + 1), pa.int32())
    return [
        array,
        pa.StructArray.from_arrays([pa.array(range(len(array))), array], ["n", "s"]),
        pa.ListArray.from_arrays(offsets, array),
        pa.MapArray.from_arrays(offsets, pa.array(range(len(array))), array),
    ]


@pytest.mark.parametrize("nesting", range(4))
def test_text_that_is_not_utf8_is_refused_at_any_depth_and_all_other_text_is_not(nesting: int) -> None:
    good = strings(b"Oslo", "Zürich".encode(), None, b"", "北京".encode())
    check_text(pa.table({"at": pa.nulls(5, pa.int64()), "city": within(good)[nesting]}))
    bad = strings(b"Oslo", b"Z\xfcrich", "Zürich".encode())
    shown = r"b'Z\\xfcrich'" if nesting == 0 else "within a nested value"
    with pytest.raises(InvalidPipelineError, match=rf"make_valid_utf8.*column=city, value={shown}$"):
        check_text(pa.table({"at": pa.nulls(3, pa.int64()), "city": within(bad)[nesting]}))


def test_text_behind_a_slice_that_is_good_does_no_harm() -> None:
    bad = strings(b"Oslo", b"Z\xfcrich", b"Bern")
    check_text(pa.table({"city": bad.slice(2)}))
    with pytest.raises(InvalidPipelineError, match="value="):
        check_text(pa.table({"city": bad.slice(1)}))


def test_rows_with_nothing_but_nulls_are_counted() -> None:
    intake = Intake((None,), Ticking())  # type: ignore[arg-type]
    intake.see(0, pa.table({"k": ["a", None], "v": [1, 2]}))
    assert not intake.counters
    intake.see(0, pa.table({"k": ["a", None, None, None], "v": [None, None, 2, None]}))
    assert dict(intake.counters) == {NULL_ROWS: 2}
