import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.run_file import decode, encode
from dagster_ckpt.lsm.runs.deltas import read_before_images, with_before_images
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found

SCHEMA = pa.schema(
    [pa.field("v", pa.int64(), nullable=False), ("k", pa.string()), ("l", pa.list_(pa.int8())), ("w", pa.float64())]
)
KEYS = ("k",)
NOW = pa.table([[1, 2, 3], ["a", None, "c"], [[1], None, []], [0.5, None, 1.5]], schema=SCHEMA)
BEFORE = pa.table([[7, 8, 9], ["a", None, "c"], [[9, None], [], None], [None, 4.5, None]], schema=SCHEMA)
HASHES = np.array([5, 6, 2**64 - 1], dtype=np.uint64)


def logged(*present: bool) -> tuple[Run, Found]:
    before = Found(np.array(present), BEFORE.filter(pa.array(present)))
    return with_before_images(build_run(HASHES, NOW), before, KEYS), before


def written(run: Run) -> Run:
    file = encode(run)
    return decode("run", file.data, file.checksum, run.table.schema)


@pytest.mark.parametrize("present", [(True, True, True), (False, True, False), (False, False, False)])
def test_it_is_what_it_was_in_memory_in_a_file_and_in_a_slice(present: tuple[bool, bool, bool]) -> None:
    run, before = logged(*present)
    for each in (run, written(run)):
        assert each.columns().equals(NOW)
        images = read_before_images(each, KEYS, SCHEMA)
        assert images.present.tolist() == list(present)
        assert images.rows.equals(before.rows)
        part = read_before_images(each.slice(1, 3), KEYS, SCHEMA)
        assert part.present.tolist() == list(present[1:])
        assert part.rows.equals(BEFORE.slice(1).filter(pa.array(present[1:])))


def test_a_row_with_nothing_but_nulls_is_not_taken_for_no_row() -> None:
    keys = pa.table({"k": [1, 2], "v": pa.array([1, 2], pa.int8())})
    before = Found(np.array([False, True]), keys.slice(1).set_column(1, "v", pa.array([None], pa.int8())))
    run = written(with_before_images(build_run(HASHES[:2], keys), before, KEYS))
    images = read_before_images(run, KEYS, keys.schema)
    assert images.present.tolist() == [False, True]
    assert images.rows.to_pylist() == [{"k": 2, "v": None}]


def test_a_table_may_have_nothing_but_keys() -> None:
    keys = pa.table({"k": [1, 2, 3]})
    run = written(
        with_before_images(build_run(HASHES, keys), Found(np.array([True, False, True]), keys.take([0, 2])), KEYS)
    )
    images = read_before_images(run, KEYS, keys.schema)
    assert images.present.tolist() == [True, False, True]
    assert images.rows.equals(keys.take([0, 2]))


def test_who_only_wants_the_rows_does_not_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "BLOCK_BYTES", 8)
    run, _ = logged(True, True, True)
    file = encode(run)
    place = pa.ipc.open_file(file.data).get_batch(0).column("_before").field("w").buffers()[1].address
    damaged = bytearray(file.data)
    damaged[place - file.data.address + 8] ^= 1
    read = decode("run", pa.py_buffer(bytes(damaged)), file.checksum, SCHEMA)
    assert View(read).between().before is None
    assert View(read).between().columns().equals(NOW)
    assert View(read).between(6).columns().equals(NOW.slice(1))
    with pytest.raises(CorruptStateError, match="file=run"):
        read_before_images(read, KEYS, SCHEMA)


def test_a_run_without_it_is_no_logged_run() -> None:
    assert written(build_run(HASHES, NOW)).before is None
    with pytest.raises(AssertionError, match="not a logged one"):
        read_before_images(build_run(HASHES, NOW), KEYS, SCHEMA)
