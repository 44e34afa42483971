from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state import objects
from dagster_ckpt.state.committed import change_log
from dagster_ckpt.state.remote import remote_bytes
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.change_logs import rows_of_log
from tests.worlds.far_store import FarStore

ROWS = pa.table(
    {
        "k": ["a", None],
        "at": pa.array([1, None], pa.timestamp("us", "UTC")),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(38, 2)),
    }
)
LOG = pa.schema([*ROWS.schema, ("_epoch", pa.int64()), ("_change_type", pa.string())])


def file(epoch: int, attempt: int = 0) -> FileId:
    return FileId(Term(1), Epoch(epoch), Shard(3), attempt)


def test_no_change_is_no_file() -> None:
    store = MemoryObjectStore("no change")
    assert change_log.write(store, file(1), inserts(ROWS.slice(0, 0)).rows) is None
    assert list(store.list("")) == []


def test_rows_come_back_with_epoch_and_kind_in_the_order_of_the_files() -> None:
    store = MemoryObjectStore("order")
    refs = [change_log.write(store, file(epoch), inserts(ROWS).rows) for epoch in (7, 5)]
    first, second = (ref for ref in refs if ref)
    assert (first.path, first.rows, first.epoch, first.shard) == ("changes/1-7-3-0.parquet", 2, 7, 3)
    log = rows_of_log(store, [first, second], LOG)
    assert log.schema == LOG
    assert log.drop_columns(["_epoch", "_change_type"]).equals(pa.concat_tables([ROWS, ROWS]))
    assert log["_epoch"].to_pylist() == [7, 7, 5, 5]
    assert set(log["_change_type"].to_pylist()) == {"insert"}


def test_nothing_read_has_the_columns_asked_for() -> None:
    assert rows_of_log(MemoryObjectStore("nothing"), [], LOG).schema == LOG


def test_a_column_that_came_later_is_null_before_and_one_that_went_is_left_out() -> None:
    store = MemoryObjectStore("columns")
    ref = change_log.write(store, file(1), inserts(ROWS).rows)
    assert ref
    table = rows_of_log(store, [ref], pa.schema([("new", pa.int32()), ("k", pa.string())]))
    assert table.to_pydict() == {"new": [None, None], "k": ["a", None]}


def test_a_file_is_plain_parquet() -> None:
    store = MemoryObjectStore("parquet")
    ref = change_log.write(store, file(1), inserts(ROWS).rows)
    assert ref
    data = store.get(ref.path)
    assert len(data) == ref.bytes
    assert pq.ParquetFile(pa.BufferReader(data)).schema_arrow.names == LOG.names


def test_damage_and_absence_are_found() -> None:
    store = MemoryObjectStore("damage")
    ref = change_log.write(store, file(1), inserts(ROWS).rows)
    assert ref
    data = bytearray(store.get(ref.path))
    data[len(data) // 2] ^= 4
    store.put(ref.path, bytes(data))
    with pytest.raises(CorruptStateError, match=f"damaged.*file={ref.path}, epoch=1"):
        rows_of_log(store, [ref], LOG)
    store.put(ref.path, bytes(data[:-1]))
    with pytest.raises(CorruptStateError, match=f"lost or gained bytes.*file={ref.path}"):
        rows_of_log(store, [ref], LOG)
    store.delete(ref.path)
    with pytest.raises(CorruptStateError, match=f"missing.*file={ref.path}"):
        rows_of_log(store, [ref], LOG)


def test_files_of_a_far_store_are_read_several_at_once_and_large_ones_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = FarStore(MemoryObjectStore("far"), latency_s=0.01)
    refs = [change_log.write(store, file(epoch), inserts(ROWS).rows) for epoch in range(1, 30)]
    there = [ref for ref in refs if ref]
    log = rows_of_log(store, there, LOG)
    assert log["_epoch"].to_pylist() == [epoch for epoch in range(1, 30) for _ in (1, 2)], "in the order of the files"
    assert store.at_once_max > 1

    store.forget()
    monkeypatch.setattr(objects, "REQUEST_BYTES_MAX", 1000)
    monkeypatch.setattr(remote_bytes, "REQUEST_BYTES_MAX", 1000)
    assert rows_of_log(store, there[:1], LOG).num_rows == 2
    assert len(store.requests) == -(-there[0].bytes // 1000) > 1
