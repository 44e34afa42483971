"""Tumbling and hopping windows, their input cut into any epochs and batches, against loops over lists."""

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.ids import Shard
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Tumbling
from tests.properties.windows_in_python import (
    DELAYS,
    SHARDS,
    Epochs,
    FixedWindows,
    agree,
    agree_however_cut,
    epochs_at_the_ends,
    epochs_of,
    on_engine,
    rows_with,
    stream_of,
)
from tests.unit.operators.keyed_streams import Row
from tests.worlds.examples import examples

ROWS = rows_with(["a", "b", None], [1, None])
WINDOWS = st.sampled_from(
    [Tumbling(10), Tumbling(7, 3), Hopping(10, 5), Hopping(10, 4, 1), Hopping(6, 6), Hopping(9, 2)]
)


@examples(50, 20)
@given(epochs_of(ROWS), WINDOWS, st.booleans(), DELAYS, st.sampled_from([1, 2, 1000]))
def test_every_epoch_gives_the_windows_that_close_or_change_in_it(
    cut: Epochs, window: FixedWindow, early: bool, delay_us: int, distinct: int
) -> None:
    agree(stream_of(window, early, delay_us, distinct), FixedWindows(window), cut)


@examples(60, 24)
@given(
    epochs_at_the_ends(["a", None], [1]),
    WINDOWS | st.sampled_from([Tumbling(1 << 60), Tumbling(1 << 60, 1 << 59), Hopping(1 << 60, 1 << 58, 12345)]),
    st.booleans(),
    DELAYS | st.just(1 << 62),
    st.sampled_from([1, 1000]),
)
def test_rows_near_the_ends_of_64_bits_are_late_or_in_their_own_windows(
    cut: Epochs, window: FixedWindow, early: bool, delay_us: int, distinct: int
) -> None:
    agree(stream_of(window, early, delay_us, distinct), FixedWindows(window), cut)


@examples(15, 6)
@given(
    epochs_of(ROWS),
    WINDOWS,
    st.booleans(),
    DELAYS,
    st.sampled_from([1, 1000]),
    st.sampled_from([[SHARDS], [SHARDS[:1], SHARDS[1:]]]),
    st.sampled_from([1 << 12, 1 << 28]),
)
def test_the_same_over_the_real_engine(
    cut: Epochs,
    window: FixedWindow,
    early: bool,
    delay_us: int,
    distinct: int,
    tasks: list[tuple[Shard, ...]],
    memory_bytes: int,
) -> None:
    stream = on_engine(stream_of(window, early, delay_us, distinct), tasks, memory_bytes)
    agree(stream, FixedWindows(window), cut)


@examples(30, 12)
@given(st.lists(ROWS, max_size=20), st.lists(st.integers(0, 20), max_size=6), WINDOWS, st.booleans())
def test_rows_in_order_give_the_same_windows_however_they_are_cut_into_epochs(
    rows: list[Row], places: list[int], window: FixedWindow, early: bool
) -> None:
    agree_however_cut(window, early, rows, places)
