import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.runs.run import ABSENT, build_run
from dagster_ckpt.lsm.runs.view import View
from tests.unit.lsm.finding import positions

HASHES = np.array([0, 5, 10, HASH_MAX - 1, HASH_MAX], dtype=np.uint64)
ROWS = pa.table({"k": ["a", "b", "c", "d", "e"]})


@pytest.mark.parametrize(
    ("clip", "moved", "shown"),
    [
        (HashRange(), (0, 0), "abcde"),
        (HashRange(5, 10), (0, 0), "bc"),
        (HashRange(0, 0), (0, 0), "a"),
        (HashRange(HASH_MAX, HASH_MAX), (0, 0), "e"),
        (HashRange(), (5, 10), "acde"),
        (HashRange(), (0, 5), "bcde"),
        (HashRange(), (10, HASH_MAX), "abe"),
        (HashRange(), (10, HASH_MAX + 1), "ab"),
        (HashRange(), (0, HASH_MAX + 1), ""),
        (HashRange(5, HASH_MAX), (10, HASH_MAX), "be"),
        (HashRange(), (7, 7), "abcde"),
        (HashRange(), (10, 5), "b"),
        (HashRange(), (HASH_MAX, 5), "bcd"),
        (HashRange(), (5, 0), "a"),
        (HashRange(), (5, 1), ""),
        (HashRange(5, HASH_MAX), (HASH_MAX, 10), "cd"),
        (HashRange(5, 10), (11, 5), "bc"),
        (HashRange(5, 10), (10, 6), ""),
    ],
)
def test_what_is_in_the_clip_and_not_in_the_merge_range(clip: HashRange, moved: tuple[int, int], shown: str) -> None:
    view = View(build_run(HASHES, ROWS), clip.outside(*moved))
    assert "".join(view.between().columns()["k"].to_pylist()) == shown
    found = positions(view, HASHES, ROWS)
    assert "".join(key for key, at in zip("abcde", found, strict=True) if at != ABSENT) == shown
