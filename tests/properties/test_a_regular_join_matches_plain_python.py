"""A regular join over tables that change in any way: after each epoch its changes make the join of the tables."""

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operators.changing_streams import ONE_TASK, TWO_TASKS, Row
from tests.unit.operators.joins.regular.joined_tables import LEFT, RIGHT, RIGHT_OTHER, TYPES, Joined, regular_join
from tests.worlds.examples import examples

BARE = pa.schema([("k", pa.string()), ("i", pa.int32())])
KEYS = st.sampled_from(["a", "b", None])
NUMBERS = st.sampled_from([0, 0, 1, None])
VALUES = st.sampled_from([None, 1, 2])
EPOCHS = st.lists(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans(), KEYS, NUMBERS, VALUES), max_size=12),
    min_size=1,
    max_size=5,
)
"""The changes of each epoch: of which input, whether a row goes, and the row's values (of one that goes, roughly)."""
WORLDS = st.sampled_from([((), 1 << 20), ((), 1 << 8), (ONE_TASK, 1 << 28), (TWO_TASKS, 1 << 28), (TWO_TASKS, 1 << 12)])


def row_of(names: list[str], values: tuple[str | None, int | None, int | None]) -> Row:
    k, i, v = values
    known = {"k": k, "m": k, "i": i, "j": i, "x": v, "y": None if v is None else v / 2}
    return {name: known[name] for name in names}


@pytest.mark.parametrize("how", TYPES)
@examples(40, 16, deadline=None)
@given(
    EPOCHS,
    st.tuples(st.booleans(), st.booleans()),
    st.booleans(),
    st.booleans(),
    WORLDS,
    st.sampled_from([1, 3, 100]),
    st.randoms(use_true_random=False),
)
def test_after_every_epoch(
    how: str,
    epochs: list[Any],
    changes: tuple[bool, bool],
    same_names: bool,
    kept: bool,
    world: tuple[Any, int],
    size: int,
    chance: Random,
) -> None:
    schemas, keys = ((LEFT, RIGHT), ("k", "i")) if same_names else ((LEFT, RIGHT_OTHER), ("m", "j"))
    tasks, memory_bytes = world
    one = Joined(regular_join(how, changes, schemas, (("k", "i"), keys)), kept, tasks, memory_bytes, piece=3)
    for epoch in epochs:
        images: list[tuple[int, str, Row]] = []
        left = [list(table) for table in one.tables]
        for number, goes, *values in epoch:
            row = row_of(schemas[number].names, tuple(values))
            if goes and changes[number] and left[number]:
                gone = left[number].pop(chance.randrange(len(left[number])))
                images.append((number, "-", gone))
            else:
                images.append((number, "+", row))
                left[number].append(row)
        chance.shuffle(images)
        one.epoch(*images, size=size)


@pytest.mark.parametrize("how", TYPES)
@examples(15, 6, deadline=None)
@given(EPOCHS, st.randoms(use_true_random=False))
def test_rows_that_have_nothing_but_their_keys(how: str, epochs: list[Any], chance: Random) -> None:
    """A pair of such rows equals an unmatched row."""
    one = Joined(regular_join(how, (True, True), (BARE, BARE)), True, TWO_TASKS)
    for epoch in epochs:
        images: list[tuple[int, str, Row]] = []
        left = [list(table) for table in one.tables]
        for number, goes, k, i, _ in epoch:
            if goes and left[number]:
                images.append((number, "-", left[number].pop(chance.randrange(len(left[number])))))
            else:
                images.append((number, "+", {"k": k, "i": i}))
                left[number].append({"k": k, "i": i})
        one.epoch(*images, size=chance.choice([1, 3, 100]))
