"""Runs merged in memory against dicts laid over each other; keys share hashes, views hide some of them."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.lsm.lookup import found_of, look_up
from dagster_ckpt.lsm.run import Run, live, merged, run_of
from dagster_ckpt.lsm.run_file import decode, encode
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.lsm.view import View, shown_of
from dagster_ckpt.protocol.manifest import HASH_MAX, HashRange

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])
KEYS = st.integers(0, 9) | st.none()
WORDS = st.dictionaries(KEYS, st.tuples(st.booleans(), st.sampled_from(["x", "y", None])), max_size=8)
HASHES = [0, 1, 2**63, HASH_MAX]
VIEWS = st.tuples(
    WORDS,
    st.sampled_from([HashRange(), HashRange(1, 2**63), HashRange(HASH_MAX, HASH_MAX)]),
    st.sampled_from([(0, 0), (1, HASH_MAX), (2**63, HASH_MAX + 1)]),
    st.booleans(),
)
Words = dict[int | None, tuple[bool, str | None]]


def hash_of(key: int | None, distinct: int) -> int:
    return HASHES[(0 if key is None else key) % distinct]


def hashes_of(keys: list[int | None], distinct: int) -> Hashes:
    return np.array([hash_of(key, distinct) for key in keys], dtype=np.uint64)


def run_from(words: Words, distinct: int, through_a_file: bool) -> Run:
    keys = list(words)
    values = [None if deleted else value for deleted, value in words.values()]
    rows = pa.table({"k": keys, "v": values}, schema=SCHEMA)
    run = run_of(hashes_of(keys, distinct), rows, np.array([deleted for deleted, _ in words.values()], dtype=np.bool_))
    if not (through_a_file and words):
        return run
    file = encode(run)
    return decode("run", file.data, file.checksum, SCHEMA)


@given(st.lists(VIEWS, min_size=1, max_size=4), st.integers(1, 4))
def test_search_and_merge_agree_with_dicts_laid_over_each_other(
    newest_first: list[tuple[Words, HashRange, tuple[int, int], bool]], distinct: int
) -> None:
    views: list[View] = []
    model: Words = {}
    for words, clip, (moved_lo, moved_hi), through_a_file in reversed(newest_first):
        views.insert(0, View(run_from(words, distinct, through_a_file), shown_of(clip, moved_lo, moved_hi)))
        for key, word in words.items():
            hash_ = hash_of(key, distinct)
            if clip.lo <= hash_ <= clip.hi and not moved_lo <= hash_ < moved_hi:
                model[key] = word
    alive = {key: value for key, (deleted, value) in model.items() if not deleted}

    whole = merged([view.rows() for view in views], ("k",))
    assert sorted(whole.hashes.tolist()) == whole.hashes.tolist()
    assert len(whole) == len(model)
    rows = live(whole).columns().to_pydict()
    assert len(rows["k"]) == len(alive)
    assert dict(zip(rows["k"], rows["v"], strict=True)) == alive

    asked: list[int | None] = [*range(12), None]
    asked.sort(key=lambda key: hash_of(key, distinct))
    keys = pa.table({"k": pa.array(asked, pa.int32())})
    answer = look_up(views, (), hashes_of(asked, distinct), keys, SCHEMA)
    assert [asked[n] for n in answer.unknown] == [key for key in asked if key not in model]
    found = found_of(answer.parts, keys, SCHEMA)
    assert found.present.tolist() == [key in alive for key in asked]
    assert found.rows["k"].to_pylist() == [key for key in asked if key in alive]
    assert found.rows["v"].to_pylist() == [alive[key] for key in asked if key in alive]
