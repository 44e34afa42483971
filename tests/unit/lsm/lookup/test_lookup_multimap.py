"""In a timeline thousands of keys have one time: a search must not walk through them one after another."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs
from dagster_ckpt.lsm.lookup import find_rows, get_all, look_up
from dagster_ckpt.lsm.runs.run import Run, build_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
SPEC = StateTableSpec("t", SCHEMA, ("at", "k"))
TIMES = [0, 1, 2, 10**6]
N = 4000
MANY = np.repeat(np.array(TIMES), N)
KEYS = np.tile(np.arange(N), len(TIMES))


def values_of(times: np.typing.NDArray[np.int64]) -> Hashes:
    return times.astype(np.uint64) + np.uint64(2**63)


def run_at(times: np.typing.NDArray[np.int64], keys: np.typing.NDArray[np.int64], value: int) -> Run:
    return build_run(values_of(times), pa.table([times, keys, np.full(len(keys), value)], schema=SCHEMA))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often runs were asked for hashes."""
    counter: Counter[str] = Counter()
    hashes_at = Run.hashes_at

    def counted(self: Run, rows: np.typing.NDArray[np.int64]) -> Hashes:
        counter["looks"] += 1
        counter["hashes"] += len(rows)
        return hashes_at(self, rows)

    monkeypatch.setattr(Run, "hashes_at", counted)
    return counter


def test_each_key_is_found_in_few_steps(looks: Counter[str]) -> None:
    run = run_at(MANY, KEYS, 7)
    chosen = np.random.default_rng(1).permutation(len(MANY))[:9000]
    chosen = chosen[np.argsort(MANY[chosen], kind="stable")]
    times = np.append(MANY[chosen], [10**6] * 2)
    keys = pa.table({"at": times, "k": np.append(KEYS[chosen], [N, -1])})
    answer = look_up([View(run)], [], values_of(times), keys, SCHEMA)
    assert answer.unknown.tolist() == [9000, 9001]
    found = find_rows(answer.parts, keys, SCHEMA)
    assert found.rows.select(["at", "k"]).equals(keys.slice(0, 9000))
    assert set(found.rows["v"].to_pylist()) == {7}
    assert looks["looks"] < 60
    assert looks["hashes"] < 40 * 9000


def test_the_first_of_equal_sort_values_is_found_in_few_steps(looks: Counter[str]) -> None:
    run = run_at(MANY, KEYS, 7)
    assert [run.first_not_less(2**63 + time) for time in (0, 1, 2, 3, 10**6)] == [0, N, 2 * N, 3 * N, 3 * N]
    assert len(View(run).between(2**63 + 1, 2**63 + 2)) == 2 * N
    assert looks["looks"] <= 10


def test_all_rows_of_one_sort_value_are_found(looks: Counter[str]) -> None:
    found = get_all(
        [], [View(run_at(MANY, KEYS, 7))], values_of(np.array([1, 10**6])), pa.table({"at": [1, 10**6]}), SPEC
    )
    assert found.asked.tolist() == [0] * N + [1] * N
    assert found.rows["k"].to_pylist() == [*range(N), *range(N)]
    assert looks["looks"] < 60


def test_news_are_merged_into_them(looks: Counter[str]) -> None:
    below = [run_at(MANY[: 2 * N], KEYS[: 2 * N], 7), run_at(MANY[2 * N :], KEYS[2 * N :], 7)]
    news = merge_runs([run_at(np.full(N, 1), np.arange(N // 2, N // 2 + N), 9), run_at(MANY, KEYS, 8)], SPEC.keys)
    rows = merge_into(below, news, SPEC.keys).columns().to_pandas()
    assert len(rows) == len(MANY) + N // 2
    assert not rows.duplicated(["at", "k"]).any()
    assert rows["v"].value_counts().to_dict() == {8: len(MANY) - N // 2, 9: N}
    assert rows["at"].is_monotonic_increasing
    assert looks["looks"] < 100
