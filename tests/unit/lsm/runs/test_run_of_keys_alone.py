"""A table whose columns are all key: a set."""

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.lookup import find_rows, look_up
from dagster_ckpt.lsm.runs.run import build_run
from dagster_ckpt.lsm.runs.view import View

SCHEMA = pa.schema([("k", pa.int64())])


def view(*keys: int) -> View:
    return View(build_run(np.array(keys, dtype=np.uint64), pa.table({"k": keys}, schema=SCHEMA)))


@pytest.mark.parametrize(
    ("upper", "bottom"), [([view(1, 2, 5)], []), ([view(1, 3)], [view(2, 5)]), ([view(1), view(2), view(5)], [])]
)
def test_keys_are_found_in_one_run_and_in_several(upper: list[View], bottom: list[View]) -> None:
    keys = pa.table({"k": [1, 2, 4, 5]}, schema=SCHEMA)
    answer = look_up(upper, bottom, np.array([1, 2, 4, 5], dtype=np.uint64), keys, SCHEMA)
    found = find_rows(answer.parts, keys, SCHEMA)
    assert found.present.tolist() == [True, True, False, True]
    assert found.rows.to_pydict() == {"k": [1, 2, 5]}
    assert answer.unknown.tolist() == [2]
