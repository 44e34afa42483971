"""The files of an append-only stream, merged: the same rows in the same order, checked on the way."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.ack import FilesMerged
from dagster_ckpt.protocol.manifest.manifest import ChangeRef
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.protocol.transitions.append_merges import FileMerge
from dagster_ckpt.state.committed import append_files, change_log
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.stores.object_store import ObjectStore
from tests.worlds.change_logs import rows_of_log
from tests.worlds.far_store import FarStore

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(38, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
LOG = pa.schema([*SCHEMA, ("_epoch", pa.int64()), ("_change_type", pa.string())])
NEW = FileId(Term(3), Epoch(90), Shard(0), 7)


def always() -> bool:
    return True


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "k": [None if number % 5 == 0 else f"key {number}" for number in numbers],
            "at": pa.array(numbers, pa.timestamp("us", "UTC")),
            "d": pa.array([Decimal(number) / 4 if number % 3 else None for number in numbers], pa.decimal128(38, 2)),
            "tags": [["x"] * (number % 3) for number in numbers],
        },
        schema=SCHEMA,
    )


def written(store: ObjectStore, tables: Sequence[pa.Table]) -> tuple[ChangeRef, ...]:
    refs = [
        change_log.write(store, FileId(Term(1), Epoch(epoch), Shard(1), 0), inserts(table).rows)
        for epoch, table in enumerate(tables, start=2)
    ]
    return tuple(ref for ref in refs if ref)


def merge(store: ObjectStore, files: tuple[ChangeRef, ...], chunk_bytes: int = 1 << 20) -> FilesMerged:
    merged = append_files.merge(store, NEW, FileMerge(files, 2), chunk_bytes, always)
    assert merged
    return merged


def spoil(store: MemoryObjectStore, name: str) -> None:
    data = bytearray(store.get(name))
    data[len(data) // 2] ^= 4
    store.put(name, bytes(data))


def test_the_new_file_has_all_rows_in_their_order_and_says_which_files_it_replaces() -> None:
    store = MemoryObjectStore("merged")
    files = written(store, [rows(1, 2), rows(5), rows(3, 4, 9)])
    before = rows_of_log(store, files, LOG)
    merged = merge(store, files)
    assert merged.replaced == tuple(file.path for file in files)
    assert rows_of_log(store, [merged.file], LOG).equals(before)
    assert before["_epoch"].to_pylist() == [2, 2, 3, 4, 4, 4], "each row's own epoch"
    assert (merged.file.path, merged.file.rows) == ("table/2/3-90-0-7.parquet", 6)
    assert (merged.file.epoch, merged.file.shard, merged.file.ancestor) == (4, 0, None)
    assert merged.file.bytes == store.size(merged.file.path)


def test_the_files_that_went_into_it_stay() -> None:
    store = MemoryObjectStore("stay")
    files = written(store, [rows(1, 2), rows(5)])
    merged = merge(store, files)
    assert sorted(store.list("")) == sorted([*(file.path for file in files), merged.file.path])


def test_a_file_that_was_merged_is_merged_again() -> None:
    store = MemoryObjectStore("again")
    one, two, three, four = written(store, [rows(1), rows(2), rows(3), rows(4)])
    first = merge(store, (one, two))
    other = append_files.merge(
        store, FileId(Term(3), Epoch(91), Shard(0), 7), FileMerge((three, four), 1), 1 << 20, always
    )
    assert other
    last = append_files.merge(
        store, FileId(Term(3), Epoch(92), Shard(0), 7), FileMerge((first.file, other.file), 3), 1 << 20, always
    )
    assert last
    assert rows_of_log(store, [last.file], SCHEMA).equals(rows(1, 2, 3, 4))


def test_it_is_written_as_the_other_files_are_in_row_groups_of_a_chunk() -> None:
    store = MemoryObjectStore("groups")
    random = np.random.default_rng(5)
    columns = {name: random.integers(0, 1 << 60, 50_000) for name in ("a", "b")}
    tables = [
        pa.table({name: values[at : at + 1000] for name, values in columns.items()}) for at in range(0, 50_000, 1000)
    ]
    files = written(store, tables)
    merged = merge(store, files, chunk_bytes=200_000)
    parquet = pq.ParquetFile(pa.BufferReader(store.get(merged.file.path)))
    groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    assert 5 <= len(groups) <= 12, "few, although there are fifty files"
    assert max(group.total_byte_size for group in groups) <= 220_000
    old = pq.ParquetFile(pa.BufferReader(store.get(files[0].path))).metadata.row_group(0)
    for at in range(4):
        mine, theirs = groups[0].column(at), old.column(at)
        assert (mine.compression, mine.encodings, mine.statistics) == (
            theirs.compression,
            theirs.encodings,
            theirs.statistics,
        )
    assert rows_of_log(store, [merged.file], pa.schema([("a", pa.int64())]))["a"].to_pylist() == [
        *columns["a"].tolist()
    ]


def test_a_large_file_is_read_piece_by_piece() -> None:
    store = MemoryObjectStore("pieces")
    tables = [pa.table({"a": np.arange(40_000)}), pa.table({"a": np.arange(10)})]
    merged = merge(store, written(store, tables), chunk_bytes=50_000)
    parquet = pq.ParquetFile(pa.BufferReader(store.get(merged.file.path)))
    assert parquet.num_row_groups >= 7
    assert parquet.read(columns=["a"])["a"].to_pylist() == [*range(40_000), *range(10)]


def test_no_value_of_a_column_that_was_dropped_or_came_later_is_lost() -> None:
    store = MemoryObjectStore("columns")
    tables = [rows(1), rows(2).drop_columns(["d"]), rows(3).append_column("new", pa.array([7], pa.int32()))]
    files = written(store, tables)
    every = pa.schema([*LOG, ("new", pa.int32())])
    before = rows_of_log(store, files, every)
    merged = merge(store, files)
    assert rows_of_log(store, [merged.file], every).equals(before)
    assert before["new"].to_pylist() == [None, None, 7]
    names = pq.ParquetFile(pa.BufferReader(store.get(merged.file.path))).schema_arrow.names
    assert names == [*SCHEMA.names, "new", "_epoch", "_change_type"]


def test_a_column_that_promised_a_value_in_each_row_may_be_absent_in_older_files() -> None:
    store = MemoryObjectStore("not null")
    there = pa.table(
        {"a": [1], "b": [2]}, schema=pa.schema([("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)])
    )
    files = written(store, [pa.table({"a": [0]}), there])
    merged = merge(store, files)
    wanted = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert rows_of_log(store, [merged.file], wanted).to_pydict() == {"a": [0, 1], "b": [None, 2]}


def test_files_in_which_a_column_has_another_type_are_no_neighbours() -> None:
    store = MemoryObjectStore("types")
    number, text = pa.table({"a": [1]}), pa.table({"a": ["x"]})
    files = written(store, [text, number, number, number, text])
    merged = merge(store, files)
    assert merged.replaced == tuple(file.path for file in files[1:4])
    assert append_files.merge(store, NEW, FileMerge(files[:2], 1), 1 << 20, always) is None


@pytest.mark.parametrize("at", [0, 1, 2])
def test_damage_and_absence_are_found_before_anything_is_written(at: int) -> None:
    store = MemoryObjectStore("damage")
    files = written(store, [rows(1, 2), rows(5), rows(3)])
    spoil(store, files[at].path)
    with pytest.raises(CorruptStateError, match=f"damaged.*file={files[at].path}"):
        merge(store, files)
    store.delete(files[at].path)
    with pytest.raises(CorruptStateError, match=f"missing.*file={files[at].path}"):
        merge(store, files)
    assert not list(store.list("table"))


def test_files_of_a_far_store_are_read_several_at_once() -> None:
    inner = MemoryObjectStore("far merge")
    files = written(inner, [rows(number) for number in range(1, 20)])
    store = FarStore(inner, latency_s=0.01)
    merged = merge(store, files)
    assert store.at_once_max > 1
    assert rows_of_log(inner, [merged.file], SCHEMA).equals(rows(*range(1, 20)))
    assert len(store.requests) == len(files), "each file once"


@pytest.mark.parametrize("looks", range(4))
def test_where_time_runs_out_nothing_is_merged_and_nothing_written(
    looks: int, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryObjectStore("no time")
    files = written(store, [rows(number) for number in range(20)])
    left = iter([True] * looks + [False])
    assert append_files.merge(store, NEW, FileMerge(files, 1), 1, lambda: next(left)) is None
    assert next(left, None) is None
    assert not list(store.list("table"))
    assert f"first={files[0].path}, files=20" in caplog.text


def test_a_column_is_read_under_its_name_in_the_table_and_no_other() -> None:
    """A new column `k` is not what older files have under that name: it has another one in files."""
    store = MemoryObjectStore("renamed")
    files = written(store, [rows(1, 2), rows(5)])
    merged = append_files.merge(store, NEW, FileMerge(files, 2), 1 << 20, always)
    assert merged
    log = pa.schema([("key", pa.string()), ("k", pa.string()), (SCHEMA.names[1], SCHEMA.types[1])])
    for refs in (files, [merged.file]):
        found = pa.Table.from_batches(change_log.batches(store, refs, log, {"key": "k", "k": "k (2)"}), log)
        assert found.select(["key", "k"]).to_pylist() == [{"key": key, "k": None} for key in ("key 1", "key 2", None)]
        assert found.column(2).null_count == 3, "an epoch without the column has none of its values"
