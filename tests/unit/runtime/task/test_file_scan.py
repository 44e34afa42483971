"""Each row group of each file is read by one task, whatever the ranges; and of what a file lacks there are nulls."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.runtime.task import file_scan
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.file_scan import FileRange, FileScan
from dagster_ckpt.runtime.task.packed_rows import PackedRows
from dagster_ckpt.runtime.task.scan import ScanOrder, decode_scan, encode_scan, scan_tasks, spread
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from tests.worlds.examples import examples

COLUMNS = pa.schema({"a": pa.int64(), "more": pa.string()})


def reading(columns: pa.Schema) -> FileScan:
    return FileScan(columns, ArrowWork((), ()))


FILES = reading(COLUMNS)


def spread_files(files: Sequence[FileRange], slots: int) -> ScanOrder:
    packed = PackedRows(FILES.work, (COLUMNS,), 0, ("a",), ShardAssignment.keyed(8, 2))
    order, in_place = spread({0: [(FILES, packed)]}, files, slots)
    assert not in_place, "files have rows of any keys"
    return order


def whole(path: str, size: int) -> FileRange:
    return FileRange(0, 0, path, 0, size, size)


def write_file(folder: Path, name: str, numbers: Sequence[int], rows: int) -> FileRange:
    path = folder / name
    pq.write_table(pa.table({"a": pa.array(numbers, pa.int64())}), path, row_group_size=rows)
    return whole(str(path), path.stat().st_size)


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(1, 100),
    st.integers(300, 4000),
)
@examples(30)
def test_each_row_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], tasks: int, rows: int, piece: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    files = [
        write_file(folder, f"{place}.parquet", range(place * 1000, place * 1000 + size), rows)
        for place, size in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_scan, "_RANGE_BYTES", piece)
        order = spread_files(files, tasks)
    assert len(order) == tasks
    text = encode_scan(order)
    read = [
        row["a"] for task in range(tasks) for batch in FILES.read(decode_scan(text, task)) for row in batch.to_pylist()
    ]
    assert sorted(read) == [place * 1000 + number for place, size in enumerate(sizes) for number in range(size)]


def test_a_row_group_beyond_the_end_of_its_file_is_in_the_last_range(tmp_path: Path) -> None:
    """Readers need no total size to find the pages of a column, and a writer may say any."""
    file = write_file(tmp_path, "one.parquet", range(10), 10)
    short = replace(file, size=10, length=5)
    read = [batch.num_rows for each in (short, replace(short, start=5)) for batch in FILES.read([each])]
    assert read == [10]


def test_tasks_get_about_as_many_bytes() -> None:
    files = [whole(str(place), size) for place, size in enumerate([100, 10, 50, 40, 1, 99])]
    loads = [sum(each.length for each in ranges) for ranges in spread_files(files, 3)]
    assert sum(loads) == 300
    assert max(loads) <= 110


def test_there_are_as_many_tasks_as_can_run_or_a_multiple() -> None:
    def tasks(size: int) -> int:
        return scan_tasks([whole("", size)], 4)

    assert (tasks(1), tasks(1 << 30), tasks((1 << 30) + 1), tasks(1 << 32)) == (4, 4, 8, 16)


def test_a_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    file = write_file(tmp_path, "one.parquet", [1, 2], 10)
    [batch] = FILES.read([file])
    assert batch.to_pylist() == [{"a": 1, "more": None}, {"a": 2, "more": None}]
    [batch] = reading(pa.schema({"more": pa.string()})).read([file])
    assert batch.to_pylist() == [{"more": None}] * 2


def test_rows_without_columns_are_counted(tmp_path: Path) -> None:
    [batch] = reading(pa.schema([])).read([write_file(tmp_path, "one.parquet", [1, 2, 3], 10)])
    assert batch.num_rows == 3


def test_the_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    for path in (tmp_path / "bad.parquet", tmp_path / "gone.parquet"):
        with pytest.raises(LeftToSparkError, match=f"file={path}$"):
            FILES.check(whole(str(path), 4))
