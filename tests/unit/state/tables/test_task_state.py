import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import Epoch, Shard, Term
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.object_names import FileId
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.task_state import TaskState, open_state
from dagster_ckpt.storage.stores.local import LocalObjectStore
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.unit.state.epochs import NEVER, SPEC, TABLE, Epochs, alike, empty_manifest, engine, in_memory

FILE = FileId(Term(1), Epoch(2), Shard(0), attempt=1)
ONLY = [Shard(0)]


def touched(state: TaskState) -> tuple[dict[str, int], dict[str, int]]:
    before, after = dict[str, int](), dict[str, int]()
    for piece in state.table(TABLE).touched_keys():
        assert len(piece.hashes) == len(piece.before.present) == len(piece.after.present)
        for side, found in ((before, piece.before), (after, piece.after)):
            side |= dict(zip(found.rows["k"].to_pylist(), found.rows["v"].to_pylist(), strict=True))
    return before, after


def test_an_epoch_without_changes_reads_and_writes_nothing() -> None:
    epochs = in_memory("quiet")
    state = epochs.begin()
    epochs.put(state, a=1)
    before = epochs.commit(state)
    epochs.store.delete(epochs.runs_of()[0].path)  # so that reading it would fail
    state = epochs.begin()
    state.table(TABLE)
    epochs.put(state)
    epochs.delete(state)
    assert epochs.commit(state).runs == before.runs
    assert state.metrics.state_rows == 0


def test_a_key_that_came_and_went_within_the_epoch_leaves_nothing() -> None:
    epochs = in_memory("came and went")
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.delete(state, "a", "never there")
    assert touched(state) == ({}, {})
    assert epochs.commit(state).runs[TABLE] == ((),)
    assert list(epochs.store.list("")) == []


def test_rows_are_counted_as_they_come_go_and_change() -> None:
    epochs = in_memory("counted")
    state = epochs.begin()
    epochs.put(state, a=1, b=2)
    epochs.commit(state)
    assert state.metrics.state_rows == 2
    state = epochs.begin()
    epochs.put(state, a=5, c=6)
    epochs.delete(state, "b", "never there")
    epochs.commit(state)
    assert state.metrics.state_rows == 0
    assert epochs.live() == {"a": 5, "c": 6}


def test_what_was_touched_shows_before_and_after() -> None:
    epochs = in_memory("touched")
    state = epochs.begin()
    epochs.put(state, a=1, b=2, untouched=3)
    epochs.commit(state)
    state = epochs.begin()
    epochs.put(state, a=10)
    assert touched(state) == ({"a": 1}, {"a": 10})
    epochs.delete(state, "b")
    epochs.put(state, c=30, a=11)
    assert touched(state) == ({"a": 1, "b": 2}, {"a": 11, "c": 30})


@pytest.mark.parametrize("hash_of", [alike, lambda keys: np.arange(len(keys), 0, -1, dtype=np.uint64)])
def test_rows_passed_as_before_are_not_looked_up_again(
    hash_of: Callable[[list[str | None]], Hashes], monkeypatch: pytest.MonkeyPatch
) -> None:
    every: list[str | None] = ["a", "b", "c", "new"]
    epochs = Epochs(MemoryObjectStore(f"once {hash_of.__name__}"), hash_of=lambda keys: hash_of(every)[: len(keys)])
    state = epochs.begin()
    epochs.put(state, a=1, b=2, c=3)
    epochs.commit(state)
    state = epochs.begin()
    table, rows = state.table(TABLE), pa.table({"k": ["a", "b", "c", "new"], "v": [10, 20, 30, 40]}, schema=SPEC.schema)
    hashes, keys = hash_of(rows["k"].to_pylist()), rows.select(["k"])
    found = table.get(hashes, keys)
    monkeypatch.setattr("dagster_ckpt.state.runs.run_layers.look_up", lambda *_: pytest.fail("a second look-up"))
    gone, put = np.array([1]), np.array([0, 2, 3])
    table.delete(hashes[gone], keys.take(gone), before=select(found, gone))
    table.put(hashes[put], rows.take(put), before=select(found, put))
    assert touched(state) == ({"a": 1, "b": 2, "c": 3}, {"a": 10, "c": 30, "new": 40})


def test_many_batches_of_an_epoch_become_one_run() -> None:
    epochs = in_memory("batches")
    state = epochs.begin()
    for step in range(30):
        assert epochs.get(state, "every", f"k{step}") == ({"every": step - 1} if step else {})
        epochs.put(state, **{"every": step, f"k{step}": step})
    epochs.commit(state)
    (run,) = epochs.runs_of()
    assert run.rows == 31
    assert epochs.live() == {"every": 29} | {f"k{step}": step for step in range(30)}


def test_nothing_is_seen_before_the_commit() -> None:
    epochs = in_memory("unseen")
    state = epochs.begin()
    epochs.put(state, a=1)
    state.flush()
    assert epochs.live() == {}
    assert epochs.get(epochs.begin(), "a") == {}


def test_two_attempts_at_one_epoch_never_share_a_file() -> None:
    epochs = in_memory("attempts")
    first, second = epochs.begin(), epochs.begin()
    epochs.put(first, a=1)
    epochs.put(second, a=1)
    first.flush()
    epochs.commit(second)
    assert len(list(epochs.store.list(""))) == 2
    assert epochs.live() == {"a": 1}


def test_a_name_that_other_bytes_have_is_an_error_and_ones_own_bytes_are_a_lost_reply() -> None:
    store, manifest = MemoryObjectStore("names"), empty_manifest(SPEC)
    for value, refused in [(1, False), (1, False), (2, True)]:
        state = open_state(store, manifest, ONLY, FILE, engine())
        rows = pa.table({"k": ["a"], "v": [value]})
        state.table(TABLE).put(np.zeros(1, dtype=np.uint64), rows)
        if refused:
            with pytest.raises(CorruptStateError, match="taken by other bytes"):
                state.flush()
        else:
            state.flush()


def test_the_shards_of_a_task_share_a_file_and_each_sees_its_own_part() -> None:
    store, manifest = MemoryObjectStore("shards"), empty_manifest(SPEC, shards=4)
    mine = [Shard(2), Shard(3)]
    state = open_state(store, manifest, mine, FileId(Term(1), Epoch(2), Shard(2), attempt=9), engine())
    hashes = np.array([2**63 + 7, 2**64 - 1], dtype=np.uint64)
    state.table(TABLE).put(hashes, pa.table({"k": ["a", "b"], "v": [1, 2]}))
    [[of_2], [of_3]] = (tables[0].runs for tables in state.flush().values())
    assert of_2.path == of_3.path == "state/groups/00002-00003-of-00004/1-2-2-9.arrow"
    assert (of_2.clip, of_3.clip) == (HashRange(2**63, 3 * 2**62 - 1), HashRange(3 * 2**62, 2**64 - 1))
    assert of_2.rows == of_3.rows == 2


def test_runs_of_a_local_disk_are_mapped_and_stay_open(tmp_path: Path) -> None:
    epochs = Epochs(LocalObjectStore(tmp_path, iter("abcdefghijklmnop").__next__))
    epochs.engine = engine(NEVER)
    for step in range(4):
        state = epochs.begin()
        epochs.put(state, **{f"k{step}": step})
        epochs.commit(state)
    assert epochs.get(epochs.begin(), "k0", "k3") == {"k0": 0, "k3": 3}
    for ref in epochs.runs_of():
        (tmp_path / ref.path).unlink()
    assert epochs.get(epochs.begin(), "k1", "k2") == {"k1": 1, "k2": 2}, "open runs need no file name any more"
    epochs.engine = replace(epochs.engine, runs=OpenRuns(mapped_max=1))
    with pytest.raises(CorruptStateError, match="missing"):
        epochs.get(epochs.begin(), "k1")


def test_a_stream_that_was_begun_again_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    shared = engine()
    for value in (1, 2):
        shutil.rmtree(tmp_path / "stream", ignore_errors=True)
        epochs = Epochs(LocalObjectStore(tmp_path / "stream", iter("abcdefgh").__next__), engine=shared)
        state = epochs.begin()
        epochs.put(state, a=value)
        epochs.commit(state)
        (run,) = epochs.runs_of()
        assert run.path == "state/groups/00000-of-00001/1-2-0-1.arrow"
        assert epochs.get(epochs.begin(), "a") == {"a": value}


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_file_that_was_cut_off_on_a_local_disk_is_named(tmp_path: Path, size: int) -> None:
    epochs = Epochs(LocalObjectStore(tmp_path, iter("abcdefgh").__next__))
    state = epochs.begin()
    epochs.put(state, a=1)
    epochs.commit(state)
    (run,) = epochs.runs_of()
    os.truncate(tmp_path / run.path, size)
    with pytest.raises(CorruptStateError, match=f"file={run.path}, bytes={size}"):
        epochs.get(epochs.begin(), "a")
