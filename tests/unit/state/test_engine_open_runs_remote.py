from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.lookup import Answer, look_up
from dagster_ckpt.lsm.runs.run import Run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.protocol.manifest.manifest import RunRef
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.remote.remote_bytes import in_turn
from dagster_ckpt.state.remote.run_cache import RunCache
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from tests.worlds.far_runs import SCHEMA, Reader, reader, some_run, stored
from tests.worlds.far_store import FarStore

ROWS = 1_000_000
RUN = some_run(ROWS)


@pytest.fixture(scope="module")
def store() -> FarStore:
    return FarStore(MemoryObjectStore("a look-up reads little from far"))


@pytest.fixture(scope="module")
def ref(store: FarStore) -> RunRef:
    return stored(store, "state/groups/large.arrow", RUN)


def look_up_in(run: Run, at: list[int]) -> Answer:
    rows = np.array(sorted(at))
    keys = RUN.columns(["k"]).take(pa.array(rows))
    return look_up([View(run)], [], np.take(RUN.hashes, rows), keys, SCHEMA)


def same_answers(mine: Answer, theirs: Answer) -> bool:
    return mine.unknown.tolist() == theirs.unknown.tolist() and all(
        one.queries.tolist() == other.queries.tolist() and one.values.equals(other.values)
        for one, other in zip(mine.parts, theirs.parts, strict=True)
    )


def opened(process: Reader, store: FarStore, ref: RunRef) -> Run:
    return process.runs.run(store, ref, SCHEMA)


def test_ten_keys_of_a_million_need_a_few_per_cent_of_its_bytes(tmp_path: Path, store: FarStore, ref: RunRef) -> None:
    store.forget()
    at = np.random.default_rng(1).choice(ROWS, size=10, replace=False).tolist()
    assert same_answers(look_up_in(opened(reader(tmp_path / "cache"), store, ref), at), look_up_in(RUN, at))
    assert store.bytes_read < 0.05 * ref.bytes
    taken = sum(file.stat().st_blocks * 512 for file in (tmp_path / "cache").glob("*.run"))
    assert taken <= 1.1 * store.bytes_read, "and no more of the disk"

    store.forget()
    assert same_answers(look_up_in(opened(reader(tmp_path / "cache"), store, ref), at), look_up_in(RUN, at))
    assert store.requests == [], "another process finds them in the cache"

    process = reader(tmp_path / "cache")
    others = np.random.default_rng(2).choice(ROWS, size=10, replace=False).tolist()
    assert same_answers(look_up_in(opened(process, store, ref), others), look_up_in(RUN, others))
    assert 0 < store.bytes_read < 0.05 * ref.bytes, "the next keys need their own blocks, and no others"
    assert process.traffic.damaged == 0


def test_a_look_up_goes_to_the_store_a_few_times_and_asks_for_all_it_knows_of_each_time(
    tmp_path: Path, store: FarStore, ref: RunRef
) -> None:
    """A remote store makes dependent requests slow: each needs the answer of the one before."""
    steps: list[int] = []

    def count(jobs: Sequence[Callable[[], None]]) -> None:
        steps.append(len(jobs))
        in_turn(jobs)

    run = OpenRuns(cache=RunCache(tmp_path / "cache", 1 << 40), spread=count).run(store, ref, SCHEMA)
    at = np.random.default_rng(3).choice(ROWS, size=10, replace=False).tolist()
    assert same_answers(look_up_in(run, at), look_up_in(RUN, at))
    assert len(steps) <= 10
    assert max(steps) > 5
