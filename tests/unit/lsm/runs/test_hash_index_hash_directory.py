import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.lsm.layer_search import first_greater, first_not_less, start_probe
from dagster_ckpt.lsm.runs.hash_index import build_directory
from dagster_ckpt.lsm.runs.run import build_run
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes

HASHES = st.integers(0, 2**64 - 1)


def check(stored: Hashes, wanted: Hashes) -> None:
    inside = wanted[(wanted >= stored[0]) & (wanted <= stored[-1])]
    inside.sort()
    run = View(build_run(stored, pa.table({"k": np.arange(len(stored))})))
    asked = start_probe([run], inside, np.arange(len(inside)))
    at, found = first_not_less(asked, inside)
    assert at.tolist() == np.searchsorted(stored, inside).tolist()
    assert found.tolist() == stored[at].tolist()
    there = np.flatnonzero(found == inside)
    ends = first_greater(asked.only(there), inside[there], at[there])
    assert ends.tolist() == np.searchsorted(stored, inside[there], side="right").tolist()
    some = slice(None, None, 1 + len(inside) // 50)
    assert [run.run.first_not_less(int(each)) for each in inside[some]] == at[some].tolist()


@given(st.lists(HASHES | st.integers(0, 9) | st.integers(2**64 - 9, 2**64 - 1), min_size=1), st.lists(HASHES))
def test_it_agrees_with_a_binary_search(stored: list[int], wanted: list[int]) -> None:
    ascending = np.sort(np.array(stored, dtype=np.uint64))
    near = [hash_ + step for hash_ in stored for step in (-1, 0, 1) if 0 <= hash_ + step < 2**64]
    check(ascending, np.array([*wanted, *near], dtype=np.uint64))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 1000, 100_000])
def test_it_has_about_one_cell_for_every_two_hashes_of_an_even_spread(rows: int) -> None:
    stored = np.sort(np.random.default_rng(rows).integers(0, 2**64 - 1, rows, dtype=np.uint64, endpoint=True))
    check(stored, stored)
    assert len(build_directory(stored).first) <= max(2, rows)
    assert len(build_directory(stored).first) >= rows // 4


def test_one_hash_many_times_has_one_cell() -> None:
    stored = np.full(1000, 2**64 - 1, dtype=np.uint64)
    check(stored, stored[:1])
    assert len(build_directory(stored).first) == 1
