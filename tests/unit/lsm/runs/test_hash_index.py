import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.lsm.file.run_file import FileLayout, decode, encode
from dagster_ckpt.lsm.runs.hash_index import build_bloom
from dagster_ckpt.lsm.runs.run import build_run
from dagster_ckpt.lsm.table import Hashes

HASHES = st.integers(0, 2**64 - 1) | st.integers(0, 9) | st.integers(2**64 - 9, 2**64 - 1)


def spread(rows: int, seed: int) -> Hashes:
    return np.sort(np.random.default_rng(seed).integers(0, 2**64, rows, dtype=np.uint64))


@given(st.lists(HASHES, min_size=1))
def test_what_is_there_may_be_there(stored: list[int]) -> None:
    hashes = np.sort(np.array(stored, dtype=np.uint64))
    assert build_bloom(hashes).may_have(hashes).tolist() == list(range(len(hashes)))


@pytest.mark.parametrize("rows", [1, 2, 100, 1000, 100_000])
def test_of_hashes_that_are_not_there_few_may_be(rows: int) -> None:
    stored, others = spread(rows, 1), spread(20_000, 2)
    bloom = build_bloom(stored)
    inside = others[(others >= stored[0]) & (others <= stored[-1])]
    assert len(bloom.may_have(inside)) <= max(2, 0.08 * len(inside))
    assert bloom.words.nbytes <= max(16, 4 * rows)


def test_times_which_differ_in_low_bits_alone_are_distinguished() -> None:
    stored = np.uint64(2**63 + 1_700_000_000_000_000) + np.arange(0, 10_000_000, 1000, dtype=np.uint64)
    between = stored[:-1] + np.uint64(1)
    assert len(build_bloom(stored).may_have(between)) <= 0.08 * len(between)


def test_a_file_has_the_filter_of_its_run_or_none() -> None:
    run = build_run(spread(1000, 3), pa.table({"k": np.arange(1000)}))
    others = np.sort(np.append(spread(1000, 4), run.hashes[::10]))
    others = others[(others >= run.hashes[0]) & (others <= run.hashes[-1])]
    file = encode(run, FileLayout(bloom=True))
    stored = decode("run", file.data, file.checksum, run.table.schema)
    may_have = stored.may_have(others)
    assert may_have is not None
    assert may_have.tolist() == build_bloom(run.hashes).may_have(others).tolist()
    bare = encode(run, FileLayout(bloom=False))
    assert decode("run", bare.data, bare.checksum, run.table.schema).may_have(others) is None
    assert run.may_have(others) is None
    assert bare.data.size < file.data.size - 1000
