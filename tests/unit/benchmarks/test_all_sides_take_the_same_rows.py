from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.inputs import Inbox
from benchmarks.plan import Spread


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)


@pytest.mark.parametrize("spread", Spread)
def test_the_same_calls_put_the_same_rows(tmp_path: Path, spread: Spread) -> None:
    for name in ("a", "b"):
        inbox = Inbox(tmp_path / name, 100, spread)
        inbox.put_each_key(40)
        inbox.put(2, 500)
    assert [pq.read_table(file) for file in files(tmp_path / "a")] == [
        pq.read_table(file) for file in files(tmp_path / "b")
    ]


def test_the_fill_has_each_key_once_and_files_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 100, Spread.UNIFORM)
    assert inbox.put_each_key(40) == 3
    keys = [pq.read_table(file)["k"].to_pylist() for file in files(tmp_path / "inbox")]
    assert keys == [list(range(40)), list(range(40, 80)), list(range(80, 100))]
    assert files(tmp_path / "inbox") == sorted(files(tmp_path / "inbox"))


def test_some_keys_are_as_many_as_asked_and_spread_over_all(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 100, Spread.UNIFORM)
    inbox.put_some_keys(10)
    assert inbox.truth()["k"].to_pylist() == list(range(0, 100, 10))


def test_the_first_key_of_zipf_is_as_frequent_as_the_law_predicts(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 1_000, Spread.ZIPF)
    inbox.put(1, 100_000)
    keys = pq.read_table(files(tmp_path / "inbox")[0])["k"].to_numpy()
    share = 1 / np.sum(1 / np.arange(1, 1_001))
    assert np.mean(keys == 0) == pytest.approx(share, rel=0.05)
    assert np.mean(keys == 9) == pytest.approx(share / 10, rel=0.2)
    assert keys.max() < 1_000


def test_the_truth_adds_up_all_files_without_rounding(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 10, Spread.UNIFORM)
    inbox.put_each_key(10)
    inbox.put(3, 1_000)
    rows = [row for file in files(tmp_path / "inbox") for row in pq.read_table(file).to_pylist()]
    for result in inbox.truth().to_pylist():
        of_key = [row for row in reversed(rows) if row["k"] == result["k"]]
        assert result["rows"] == len(of_key)
        assert result["total"] == sum(row["v"] for row in of_key)
        assert result["most"] == max(row["w"] for row in of_key)
