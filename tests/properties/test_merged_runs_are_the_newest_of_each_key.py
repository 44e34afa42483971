"""Runs searched, scanned and merged against dicts laid over each other.

Keys share hashes, views hide some of them, rows expire; runs are in memory or in files, checked block by block.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs, rows_in_any_order, scan
from dagster_ckpt.lsm.file import run_file
from dagster_ckpt.lsm.file.run_file import FileLayout, decode, encode
from dagster_ckpt.lsm.lookup import find_rows, get_all, look_up
from dagster_ckpt.lsm.runs.run import Run, build_run, live
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from tests.worlds.examples import examples

SCHEMA = pa.schema([("k", pa.int32()), ("part", pa.string()), ("v", pa.list_(pa.int8())), ("at", pa.timestamp("us"))])
SPEC = StateTableSpec("t", SCHEMA, ("k", "part"), time="at")
HASHES = [0, 1, 2**62, 2**63 - 1, 2**63, HASH_MAX - 1, HASH_MAX]
KEYS = [(k, part) for k in (*range(7), None) for part in ("", "a", None)]
MIDDLE = 2**63

Key = tuple[int | None, str | None]
Delta = tuple[list[int | None] | None, int] | None
"""A key's value and time; None: it was deleted."""
Deltas = dict[Key, Delta]


@dataclass(frozen=True)
class Layer:
    """One run as it is drawn; `step` is a time that no older layer has and no newer one lacks."""

    deltas: dict[Key, tuple[list[int | None] | None, bool] | None]
    shown: tuple[HashRange, ...]
    in_file: bool

    def deltas_of(self, step: int) -> Deltas:
        """Every second row is of the step's second half: a bound between the two expires a part of the run."""
        return {key: delta and (delta[0], 2 * step + int(delta[1])) for key, delta in self.deltas.items()}


CLIPS = st.sampled_from([HashRange(), HashRange(1, 2**63), HashRange(HASH_MAX, HASH_MAX)])
MOVED = st.sampled_from([(0, 0), (1, HASH_MAX), (2**63, HASH_MAX + 1), (2**63, 1), (HASH_MAX, 2**62)])
VALUES = st.tuples(st.sampled_from([[], [1], [None, 2], None]), st.booleans())
DELTAS = st.dictionaries(st.sampled_from(KEYS), VALUES | st.none(), max_size=12)
LAYERS = st.builds(Layer, DELTAS, st.builds(lambda clip, moved: clip.outside(*moved), CLIPS, MOVED), st.booleans())
BELOW = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=20)


def hash_of(key: Key, distinct: int) -> int:
    return HASHES[(7 if key[0] is None else key[0]) % distinct]


def hashes_of(keys: list[Key], distinct: int) -> Hashes:
    return np.array([hash_of(key, distinct) for key in keys], dtype=np.uint64)


def keys_of(keys: list[Key]) -> pa.Table:
    columns = list(zip(*keys, strict=True)) if keys else [(), ()]
    return pa.table({"k": pa.array(columns[0], pa.int32()), "part": pa.array(columns[1], pa.string())})


def run_from(deltas: Deltas, distinct: int, in_file: bool) -> Run:
    keys = list(deltas)
    values = pa.array([delta and delta[0] for delta in deltas.values()], SCHEMA.field("v").type)
    times = pa.array([delta and delta[1] for delta in deltas.values()], SCHEMA.field("at").type)
    rows = pa.Table.from_arrays([*keys_of(keys).columns, values, times], schema=SCHEMA)
    run = build_run(
        hashes_of(keys, distinct), rows, np.array([delta is None for delta in deltas.values()], dtype=np.bool_)
    )
    if not (in_file and deltas):
        return run
    file = encode(run, FileLayout(time="at", bloom=distinct % 2 == 0))
    return decode("run", file.data, file.checksum, SCHEMA)


def rows_of(table: pa.Table) -> Deltas:
    columns = [table.column(name).to_pylist() for name in ("k", "part", "v")]
    times = table.column("at").cast(pa.int64()).to_pylist()
    rows: Deltas = {(k, part): (v, at) for k, part, v, at in zip(*columns, times, strict=True)}
    assert len(rows) == table.num_rows, "no key is there twice"
    return rows


def ascends(run: Run) -> bool:
    hashes: list[int] = run.hashes.tolist()
    return sorted(hashes) == hashes


def in_one_of(shown: tuple[HashRange, ...], hash_: int) -> bool:
    return any(each.lo <= hash_ <= each.hi for each in shown)


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_file, "BLOCK_BYTES", 64)
        yield


@examples(75)
@given(
    st.lists(LAYERS, max_size=3),
    BELOW,
    st.integers(1, len(HASHES)),
    st.integers(-1, 7),
    st.sampled_from([(0, HASH_MAX), (1, 2**63), (2**63 - 1, HASH_MAX - 1)]),
)
def test_search_scan_and_merge_agree_with_dicts_laid_over_each_other(
    newest_first: list[Layer],
    below: dict[Key, tuple[list[int | None] | None, bool]],
    distinct: int,
    since: int,
    within: tuple[int, int],
) -> None:
    model: Deltas = {key: (value, int(late)) for key, (value, late) in below.items()}
    halves = (HashRange(0, MIDDLE - 1), HashRange(MIDDLE, HASH_MAX))
    # The lower file holds rows of the upper half too, which are not its own.
    lower = {key: delta for key, delta in model.items() if hash_of(key, distinct) < MIDDLE + 1}
    upper_half = {key: delta for key, delta in model.items() if hash_of(key, distinct) >= MIDDLE}
    files = [run_from(lower, distinct, True), run_from(upper_half, distinct, False)]
    bottom = [View(run, (half,), since, "at") for run, half in zip(files, halves, strict=True)]
    upper: list[View] = []
    for step, layer in enumerate(reversed(newest_first), 1):
        deltas = layer.deltas_of(step)
        upper.insert(0, View(run_from(deltas, distinct, layer.in_file), layer.shown, since, "at"))
        model |= {key: delta for key, delta in deltas.items() if in_one_of(layer.shown, hash_of(key, distinct))}
    alive = {key: delta for key, delta in model.items() if delta is not None and delta[1] >= since}
    inside = {key: delta for key, delta in alive.items() if within[0] <= hash_of(key, distinct) <= within[1]}

    asked = sorted(KEYS, key=lambda key: hash_of(key, distinct))
    hashes, keys = hashes_of(asked, distinct), keys_of(asked)
    answer = look_up(upper, bottom, hashes, keys, SCHEMA)
    assert [asked[number] for number in answer.unknown] == [key for key in asked if key not in model]
    found = find_rows(answer.parts, keys, SCHEMA)
    assert found.present.tolist() == [key in alive for key in asked]
    assert list(rows_of(found.rows).items()) == [(key, alive[key]) for key in asked if key in alive]

    prefixes = sorted({key[0] for key in KEYS}, key=lambda k: hash_of((k, None), distinct))
    k = pa.table({"k": pa.array(prefixes, pa.int32())})
    every = get_all(upper, bottom, hashes_of([(each, None) for each in prefixes], distinct), k, SPEC)
    assert rows_of(every.rows) == alive
    assert every.asked.tolist() == sorted(every.asked.tolist())
    assert [prefixes[number] for number in every.asked] == every.rows["k"].to_pylist()

    part = scan(upper, bottom, *within, SPEC.keys)
    assert part is not None
    assert ascends(part)
    assert part.tombstones is None
    assert rows_of(part.columns()) == inside
    pieces = rows_in_any_order(upper, bottom, *within, SPEC.keys)
    assert sum(rows.num_rows for rows in pieces) == len(inside)
    assert {key: value for rows in pieces for key, value in rows_of(rows).items()} == inside

    above = [view.between() for view in upper]
    if above:
        news = merge_runs(above, SPEC.keys)
        assert ascends(news)
        whole = merge_runs([news, *(view.between() for view in bottom)], SPEC.keys)
        assert rows_of(live(whole).columns()) == alive
        down = merge_into([view.between() for view in bottom], news, SPEC.keys)
        assert ascends(down)
        assert rows_of(down.columns()) == alive
        assert down.tombstones is None
