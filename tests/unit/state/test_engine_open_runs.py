"""Runs of an epoch that it merged itself: files that no manifest names."""

from pathlib import Path

import pyarrow as pa

from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.storage.stores.local import LocalObjectStore
from tests.unit.state.epochs import Epochs, engine
from tests.worlds.clock import StillClock


def mapped_runs() -> set[str]:
    return {line[line.index("/") :] for line in Path("/proc/self/maps").read_text().splitlines() if ".arrow" in line}


def test_what_an_epoch_merged_away_is_not_kept_open(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path, StillClock().unique)
    epochs = Epochs(store, engine=engine(memory_bytes=1, levels_max=2))
    state = epochs.begin()
    for number in range(8):
        epochs.put(state, **{f"k{number}": number})
        state.relieve()
        epochs.get(state, "k0")
    epochs.commit(state)
    named = {str(tmp_path / run.path) for run in epochs.runs_of()}
    mine = {path for path in mapped_runs() if path.startswith(str(tmp_path))}
    assert mine <= named


def test_tombstones_alone_of_a_logged_table_have_no_times(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us"))])
    spec = StateTableSpec("groups", schema, ("k",), time="at")
    store = LocalObjectStore(tmp_path, StillClock().unique)
    epochs = Epochs(store, (spec,), logged="groups")
    state = epochs.begin()
    rows = pa.table({"k": ["a"], "v": [1], "at": [5]}, schema=schema)
    state.table("groups").put(epochs.hash_of(["a"]), rows)
    epochs.commit(state)
    state = epochs.begin()
    epochs.delete(state, "a")
    epochs.commit(state)
    assert [run.times is None for run in epochs.runs_of()] == [True, False]
    assert epochs.get(epochs.begin(), "a") == {}
