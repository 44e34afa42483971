from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.operators.joins.regular.arrived_keys import pair_arrivals
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.joins.regular.joined_tables import LEFT, RIGHT, regular_join
from tests.unit.operators.streams import context


def rounds(left: Sequence[int], right: Sequence[int], piece: int) -> list[tuple[list[int], list[int]]]:
    """The hashes of each round, of rows that arrived under these."""
    join = regular_join("inner", (False, False), (LEFT, RIGHT))
    state = DictState.of(join.pipeline)
    for side, hashes in zip(join.sides, (left, right), strict=True):
        state.tables[side.arrivals.name].piece = piece
        rows = pa.Table.from_pylist([{"k": str(each), "i": each % 7} for each in hashes], schema=side.schema)
        side.put_arrivals(np.array(hashes, dtype=np.uint64), rows, state, context())
    found = pair_arrivals(join.sides, state)
    return [(mine.tolist(), theirs.tolist()) for (mine, _), (theirs, _) in found]


def test_what_is_in_memory_comes_at_once() -> None:
    assert rounds([1, 2, 9], [2, 3, 5], piece=10) == [([1, 2, 9], [2, 3, 5])]
    assert rounds([], [2, 3], piece=10) == [([], [2, 3])]
    assert rounds([], [], piece=10) == []


@pytest.mark.parametrize("piece", [1, 2, 3])
def test_all_rows_of_a_hash_come_together(piece: int) -> None:
    left, right = [1, 2, 4, 6, 7, 2**64 - 1], [2, 5, 6, 2**64 - 1]
    found = rounds(left, right, piece)
    assert len(found) > 1
    assert [hash_ for mine, _ in found for hash_ in mine] == left
    assert [hash_ for _, theirs in found for hash_ in theirs] == right
    for number, (mine, theirs) in enumerate(found):
        later = {hash_ for each in found[number + 1 :] for hash_ in (*each[0], *each[1])}
        assert not later & {*mine, *theirs}
