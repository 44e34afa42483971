import io
from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import gather
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.blocks import BLOCK_BYTES
from dagster_ckpt.lsm.file.run_file import FileLayout, decode, encode
from dagster_ckpt.lsm.runs.deltas import read_before_images, with_before_images
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.protocol.manifest.manifest import TimeRange
from tests.unit.lsm.finding import positions
from tests.worlds.signed_runs import resigned

NAME = "state/groups/file.arrow"
ROWS = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int32()),
        "s": pa.array(["a", None, "long enough to lie anywhere"]),
        "b": pa.array([b"", b"\xff", None]),
        "t": pa.array([True, None, False]),
        "d": pa.array([Decimal("1.50"), None, Decimal(10**30)], pa.decimal128(38, 2)),
        "at": pa.array([0, None, 2], pa.timestamp("us", "UTC")),
        "day": pa.array([0, None, 2], pa.date32()),
        "l": pa.array([[1], None, []], pa.list_(pa.int64())),
        "n": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int8())])),
    }
)
HASHES = np.array([2**64 - 1, 0, 5], dtype=np.uint64)


def read_all(run: Run) -> None:
    run.columns()
    run.read_index()
    assert len(run.hashes) == len(run)
    assert run.tombstones is None or len(run.tombstones) == len(run)


def test_a_run_of_every_type_is_the_same_after_it_was_written() -> None:
    run = build_run(HASHES, ROWS, np.array([False, True, False]))
    file = encode(run)
    again = decode(NAME, file.data, file.checksum, ROWS.schema)
    assert again.columns().equals(ROWS.take([1, 2, 0]))
    assert again.hashes.tolist() == [0, 5, 2**64 - 1]
    assert again.tombstones is not None
    assert again.tombstones.tolist() == [True, False, False]
    assert again.directory.first.tolist() == run.directory.first.tolist()
    assert (again.directory.least, again.directory.shift) == (run.directory.least, run.directory.shift)


def test_a_key_may_have_the_name_of_a_column_that_the_file_adds() -> None:
    rows = pa.table({"_tombstone": ["a", "b", "c"], "_hash": [1, 2, 3]})
    file = encode(build_run(np.arange(3, dtype=np.uint64), rows))
    again = decode(NAME, file.data, file.checksum, rows.schema)
    assert again.columns().equals(rows)
    assert positions(again, again.hashes, rows.select(["_hash", "_tombstone"])).tolist() == [0, 1, 2]


def test_a_run_made_of_slices_is_written_whole() -> None:
    run = build_run(HASHES[1:], ROWS.slice(1))
    file = encode(run)
    assert decode(NAME, file.data, file.checksum, ROWS.schema).columns().equals(ROWS.slice(1))


def test_the_same_run_has_the_same_bytes() -> None:
    assert encode(build_run(HASHES, ROWS)).data.equals(encode(build_run(HASHES, ROWS)).data)


def test_a_file_has_the_bounds_of_its_rows() -> None:
    file = encode(build_run(HASHES, ROWS), FileLayout(time="at"))
    run = decode(NAME, file.data, file.checksum, ROWS.schema)
    assert run.times == TimeRange(0, 2)
    assert run.range == HashRange(0, 2**64 - 1)
    nothing = encode(
        build_run(HASHES, ROWS.set_column(5, "at", pa.nulls(3, pa.timestamp("us", "UTC")))), FileLayout(time="at")
    )
    assert decode(NAME, nothing.data, nothing.checksum, ROWS.schema).times is None
    untold = encode(build_run(HASHES, ROWS))
    assert decode(NAME, untold.data, untold.checksum, ROWS.schema).times is None


def test_any_reader_of_arrow_files_reads_it() -> None:
    file = encode(build_run(HASHES, ROWS))
    table = pa.ipc.open_file(file.data).read_all()
    assert table.column_names == ["_hash", "_tombstone", *ROWS.column_names]
    assert (
        pl.read_ipc(io.BytesIO(file.data), columns=["_hash", "s"])["s"].to_list()
        == ROWS["s"].take([1, 2, 0]).to_pylist()
    )


@pytest.mark.parametrize("block_bytes", [BLOCK_BYTES, 8])
def test_a_flipped_bit_anywhere_is_found_before_it_is_believed(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    """With small blocks no two parts of the file share one: no other part's check can find the damage."""
    monkeypatch.setattr(run_file, "BLOCK_BYTES", block_bytes)
    rows = pa.table({"s": ["some", "strings", None], "v": [1, None, 3]})
    before = Found(np.array([True, False, True]), rows.take([2, 0]))
    whole = with_before_images(build_run(HASHES, rows, np.array([False, True, False])), before, ("s",))
    file = encode(whole, FileLayout(time=None, bloom=True))
    intact = bytes(file.data)
    bloom = decode(NAME, file.data, file.checksum, rows.schema).stored_bloom
    assert bloom is not None
    found = 0
    for at in range(len(intact)):
        damaged = bytearray(intact)
        damaged[at] ^= 1 << (at % 8)
        try:
            run = decode(NAME, pa.py_buffer(bytes(damaged)), file.checksum, rows.schema)
            run.read_index()
            same = run.columns().equals(whole.table) and run.hashes.tolist() == whole.hashes.tolist()
            same = same and run.tombstones is not None and run.tombstones.tolist() == [True, False, False]
            same = same and run.directory.first.tolist() == whole.directory.first.tolist()
            same = same and run.stored_bloom is not None and run.stored_bloom.words.tolist() == bloom.words.tolist()
            had, should = read_before_images(run, ["s"], rows.schema), read_before_images(whole, ["s"], rows.schema)
            same = same and had.present.tolist() == should.present.tolist() and had.rows.equals(should.rows)
        except CorruptStateError as error:
            found += f"file={NAME}" in str(error)
        else:
            assert same, f"a damaged byte was believed. byte={at}"
    assert found > 0.9 * len(intact), "all but the padding between two parts, which is never read"


def test_a_file_cut_off_anywhere_is_found() -> None:
    file = encode(build_run(HASHES, ROWS))
    for size in range(0, file.data.size, 7):
        with pytest.raises(CorruptStateError, match=f"file={NAME}"):
            read_all(decode(NAME, file.data.slice(0, size), file.checksum, ROWS.schema))


def test_damage_is_found_where_and_when_a_column_is_first_used() -> None:
    n = 100_000
    rows = pa.table({"k": np.arange(n), "v": np.arange(n)})
    file = encode(build_run(np.arange(n, dtype=np.uint64), rows))
    damaged = bytearray(file.data)
    place = pa.ipc.open_file(file.data).get_batch(0).column(3).buffers()[1].address - file.data.address
    damaged[place + 2 * n] ^= 1
    run = decode(NAME, pa.py_buffer(bytes(damaged)), file.checksum, rows.schema)
    some = np.arange(0, n, 1000)
    assert positions(run, run.hashes[some], rows.select(["k"]).take(some)).tolist() == some.tolist()
    with pytest.raises(CorruptStateError, match=r"block=\d+"):
        run.columns(["v"])


def test_a_file_of_other_columns_than_its_table_is_refused() -> None:
    file = encode(build_run(HASHES, ROWS))
    name = ROWS.schema.names[0]
    others = [
        ROWS.schema.append(pa.field("more", pa.int64(), nullable=False)),
        ROWS.schema.set(0, pa.field(name, pa.list_(pa.int64()))),
    ]
    for other in others:
        with pytest.raises(CorruptStateError, match="other columns"):
            decode(NAME, file.data, file.checksum, other)


def test_a_column_of_the_table_may_have_the_name_of_the_rows_before() -> None:
    rows = pa.table({"k": [1, 2], "_before": [3, 4]})
    hashes = np.arange(2, dtype=np.uint64)
    before = pa.StructArray.from_arrays([pa.array([5, 6])], names=["_before"])
    for images in (None, before):
        file = encode(replace(build_run(hashes, rows), before_column=images))
        run = decode(NAME, file.data, file.checksum, rows.schema)
        assert run.columns().equals(rows)
        assert (run.before is None) == (images is None)
        swapped = pa.schema([rows.schema.field("_before"), rows.schema.field("k")])
        assert decode(NAME, file.data, file.checksum, swapped).columns().equals(rows.select(["_before", "k"]))


def test_a_file_is_read_by_the_names_of_a_changed_table() -> None:
    old = pa.table({"k": [1, 2, 3], "dropped": ["a", "b", "c"], "x": pa.array([0.5, None, 1.5], pa.float32())})
    before = pa.StructArray.from_arrays([old["dropped"].chunk(0), old["x"].chunk(0)], names=["dropped", "x"])
    file = encode(replace(build_run(np.arange(3, dtype=np.uint64), old), before_column=before))
    now = pa.schema([("x", pa.float64()), ("k", pa.int64()), ("new", pa.int64()), ("text", pa.string())])
    run = decode(NAME, file.data, file.checksum, now)
    expected = pa.table({"x": [0.5, None, 1.5], "k": [1, 2, 3], "new": [None] * 3, "text": [None] * 3}, schema=now)
    assert run.columns().equals(expected)
    assert run.slice(1, 3).columns().equals(expected.slice(1))
    [new, text] = run.columns_at(["new", "text"], np.array([2, 0]))
    assert new.take(np.array([2, 0])).equals(pa.array([None, None], pa.int64()))
    assert gather([text, text], [np.array([1]), np.array([0])]).equals(pa.array([None, None], pa.string()))
    images = read_before_images(run, ["k"], now)
    assert images.rows.equals(expected)


def test_a_file_of_a_later_release_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "FORMAT", 2)
    file = encode(build_run(HASHES, ROWS))
    monkeypatch.undo()
    with pytest.raises(IncompatibleStateError, match="format=2"):
        decode(NAME, file.data, file.checksum, ROWS.schema)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 2**31},
        {"rows": 2},
        {"rows": -1},
        {"tombstones": 4},
        {"body_offset": 10**9},
        {"body_offset": 0},
        {"directory_offset": 10**9},
        {"directory_offset": -8},
        {"directory_cells": 2**40},
        {"directory_cells": 0},
        {"directory_shift": 64},
        {"directory_shift": 0},
        {"bloom_words": 2**40},
        {"bloom_offset": 2**40},
        {"bloom_shift": -1},
        {"block_bytes": 0},
        {"block_bytes": 1},
        {"block_bytes": 2**62},
        {"least": "f" * 1_000},
        {"least": "none"},
        {"times_us": [1]},
        {"rows": "3"},
    ],
)
def test_an_end_that_describes_what_the_file_cannot_hold_is_damage(change: dict[str, object]) -> None:
    file = encode(build_run(HASHES, ROWS, np.array([False, True, False])))
    data, checksum = resigned(bytes(file.data), change)
    with pytest.raises(CorruptStateError, match=f"file={NAME}, found="):
        decode(NAME, pa.py_buffer(data), checksum, ROWS.schema)


def test_an_end_that_was_signed_again_is_read() -> None:
    file = encode(build_run(HASHES, ROWS, np.array([False, True, False])))
    data, checksum = resigned(bytes(file.data), {})
    read_all(decode(NAME, pa.py_buffer(data), checksum, ROWS.schema))
