from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.inputs import Inbox
from benchmarks.plan import Spread
from benchmarks.readback import check_each_key, check_totals

Check = Callable[[Iterable[pa.Table], Iterable[pa.Table], int], None]

KEYS = 100
CHECKS: list[Check] = [check_each_key, check_totals]


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    inbox = Inbox(tmp_path / "inbox", KEYS, Spread.UNIFORM)
    inbox.put_each_key(40)
    inbox.put(2, 500)
    return inbox


def rows_of(inbox: Inbox) -> list[pa.Table]:
    return [pq.read_table(file) for file in sorted(inbox.folder.iterdir())]


def in_pieces(results: pa.Table) -> list[pa.Table]:
    return [results.slice(start, 30) for start in range(0, len(results), 30)]


def changed(results: pa.Table, column: str) -> pa.Table:
    values = results[column].to_pylist()
    values[17] += 1_000
    return results.set_column(results.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize("check", CHECKS)
def test_the_truth_is_found_right_in_any_order(check: Check, inbox: Inbox) -> None:
    check(rows_of(inbox), in_pieces(inbox.truth().sort_by("k")), KEYS)
    check(rows_of(inbox), reversed(in_pieces(inbox.truth())), KEYS)


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("column", ["rows", "total", "most"])
def test_one_value_that_differs_is_found(check: Check, column: str, inbox: Inbox) -> None:
    with pytest.raises(RuntimeError, match="the state is wrong"):
        check(rows_of(inbox), in_pieces(changed(inbox.truth(), column)), KEYS)


@pytest.mark.parametrize("check", CHECKS)
def test_a_lost_key_and_one_that_is_there_twice_are_found(check: Check, inbox: Inbox) -> None:
    truth = inbox.truth().sort_by("k")
    with pytest.raises(RuntimeError, match="the state is wrong"):
        check(rows_of(inbox), in_pieces(truth.slice(1)), KEYS)
    with pytest.raises(RuntimeError, match="the state is wrong"):
        check(rows_of(inbox), [truth, truth.slice(5, 1)], KEYS)
    with pytest.raises(RuntimeError, match="the state is wrong"):
        check(rows_of(inbox), [truth.slice(0, KEYS - 1), truth.slice(5, 1)], KEYS)


def test_values_that_two_keys_have_exchanged_are_found(inbox: Inbox) -> None:
    truth = inbox.truth().sort_by("k")
    keys = [1, 0, *range(2, KEYS)]
    with pytest.raises(RuntimeError, match="wrong=2"):
        check_each_key(rows_of(inbox), [truth.set_column(0, "k", pa.array(keys))], KEYS)
