"""Which parts of a run's file a look-up touches: what it does not touch may be damaged."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.run_file import FileLayout, decode, encode
from dagster_ckpt.lsm.lookup import Answer, find_rows, look_up
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.runs.view import View

ROWS = 2000
STEP = HASH_MAX // ROWS
HASHES = np.arange(1, ROWS, dtype=np.uint64) * np.uint64(STEP)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us"))])
TABLE = pa.table([np.arange(1, ROWS), [f"{n:04}" for n in range(1, ROWS)], np.arange(1, ROWS)], schema=SCHEMA)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_file, "BLOCK_BYTES", 64)


def damaged(part: Callable[[pa.RecordBatch], list[pa.Buffer]], layout: FileLayout | None = None) -> Run:
    """The run in a file of which these buffers are damaged, but for their edges: neighbours share a block there."""
    file = encode(build_run(HASHES, TABLE, np.arange(1, ROWS) % 10 == 0), layout)
    data = bytearray(file.data)
    for buffer in part(pa.ipc.open_file(file.data).get_batch(0)):
        start = buffer.address - file.data.address
        inside = slice(start + 64, start + buffer.size - 64)
        data[inside] = bytes(byte ^ 0xFF for byte in data[inside])
    return decode("run", pa.py_buffer(bytes(data)), file.checksum, SCHEMA)


def column(name: str) -> Callable[[pa.RecordBatch], list[pa.Buffer]]:
    return lambda batch: [buffer for buffer in batch.column(name).buffers() if buffer is not None]


def asked(view: View, *numbers: int) -> Answer:
    keys = pa.table({"k": np.array(numbers)})
    return look_up([view], [], np.array(numbers, dtype=np.uint64) * np.uint64(STEP), keys, SCHEMA)


def test_keys_beyond_a_run_s_hashes_are_known_to_be_elsewhere() -> None:
    run = damaged(lambda batch: [b for each in batch.columns for b in each.buffers() if b is not None])
    keys = pa.table({"k": [0, ROWS]})
    assert look_up([View(run)], [], np.array([0, HASH_MAX], dtype=np.uint64), keys, SCHEMA).unknown.tolist() == [0, 1]
    with pytest.raises(CorruptStateError, match="file=run, block="):
        asked(View(run), 50)


def test_keys_that_a_view_hides_are_not_looked_at() -> None:
    run = damaged(column("_hash"))
    assert asked(View(run, (HashRange(0, STEP), HashRange(7 * STEP, HASH_MAX))), 2, 6).unknown.tolist() == [0, 1]
    assert asked(View(run, ()), 2, 6).unknown.tolist() == [0, 1]


def test_keys_that_the_filter_rules_out_cost_no_read_of_hashes() -> None:
    """Filter and hashes are in one file: absent hashes between present ones."""
    hashes = HASHES[::40] + np.uint64(12345)
    keys = pa.table({"k": np.arange(len(hashes))})
    with pytest.raises(CorruptStateError):
        look_up([View(damaged(column("_hash"), FileLayout(bloom=False)))], [], hashes, keys, SCHEMA)
    run = damaged(column("_hash"), FileLayout(bloom=True))
    unlikely = run.may_have(hashes)
    assert unlikely is not None
    sure = np.setdiff1d(np.arange(len(hashes)), unlikely)
    assert len(sure) > 40
    answer = look_up([View(run)], [], hashes[sure], keys.take(sure), SCHEMA)
    assert len(answer.unknown) == len(sure)


def test_a_key_that_is_not_there_costs_no_look_at_values() -> None:
    run = damaged(lambda batch: column("s")(batch) + column("at")(batch) + column("_tombstone")(batch))
    keys = pa.table({"k": [-5]})
    assert look_up([View(run)], [], HASHES[4:5], keys, SCHEMA).unknown.tolist() == [0]
    with pytest.raises(CorruptStateError):
        asked(View(run), 1005)


def test_rows_that_are_not_asked_for_may_be_damaged() -> None:
    def half(batch: pa.RecordBatch) -> list[pa.Buffer]:
        buffers = [b for each in batch.columns for b in each.buffers() if b is not None]
        return [b.slice(b.size * 3 // 4) for b in buffers]

    run = damaged(half)
    answer = asked(View(run), 5, 20, 300)
    found = find_rows(answer.parts, pa.table({"k": [5, 20, 300]}), SCHEMA)
    assert found.rows.column("s").to_pylist() == ["0005"]
    assert answer.unknown.tolist() == []
    assert View(run).between(5 * STEP, 300 * STEP).columns().equals(TABLE.slice(4, 296))
    with pytest.raises(CorruptStateError):
        asked(View(run), 1900)
    with pytest.raises(CorruptStateError):
        View(run).between(1800 * STEP)


def test_times_are_looked_at_only_where_a_row_may_have_expired() -> None:
    run = damaged(column("at"), FileLayout(time="at"))
    assert run.may_hold_times_before(2)
    assert not run.may_hold_times_before(1)
    assert View(run.with_columns(["k", "s"]), since_us=1, time="at").between().columns(["k"]).num_rows == ROWS - 1
    with pytest.raises(CorruptStateError):
        View(run, since_us=2, time="at").between()
    with pytest.raises(CorruptStateError):
        asked(View(run, since_us=2, time="at"), 55)


def test_unwanted_columns_are_not_read_with_the_others() -> None:
    run = damaged(column("s"))
    some = View(run.with_columns(["k", "at"]))
    assert some.between(5 * STEP).columns().equals(TABLE.select(["k", "at"]).slice(4))
    assert run.columns(["at", "k"]).equals(TABLE.select(["at", "k"]))
    with pytest.raises(CorruptStateError):
        run.columns()


def test_what_was_found_damaged_is_not_believed_the_next_time() -> None:
    run = damaged(column("s"))
    for _ in range(2):
        with pytest.raises(CorruptStateError, match=r"file=run, block=\d+, bytes=\d+\.\.\d+"):
            asked(View(run), 55)
