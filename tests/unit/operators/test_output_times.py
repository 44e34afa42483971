"""No step emits a row further behind its watermark than it says: the next step would find it late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.operator import Operator
from dagster_ckpt.operators.output_times import output_lag_us
from dagster_ckpt.operators.shared.window_kinds import FixedWindow, Hopping, Session, Tumbling, Window
from tests.unit.operators.joined_streams import Batch, Join, Watermark, in_dicts, interval_join, window_join
from tests.unit.operators.windowed_streams import Stream, at, windowed
from tests.worlds.examples import examples

TIMES = st.lists(st.integers(0, 40), max_size=4)
FIXED: list[FixedWindow] = [Tumbling(10), Hopping(20, 5)]
WINDOWS: list[Window] = [*FIXED, Session(7)]
JOINS = [
    *(interval_join(*bounds, how) for bounds in ((-5, 0), (2, 9), (-3, 3)) for how in ("inner", "full")),
    *(window_join(window, how) for window in (None, *FIXED) for how in ("inner", "full")),
]


def check(operator: Operator, column: str, time_us: int | None, finished_us: int | None) -> None:
    """A row that comes out is at most so far behind the watermark by which the step has finished before."""
    if time_us is not None and finished_us is not None:
        assert time_us >= finished_us - output_lag_us(operator, column)


@examples(100)
@given(st.sampled_from(WINDOWS), st.lists(TIMES, max_size=8), st.integers(0, 20))
def test_windows_come_out_no_further_behind(window: Window, epochs: list[list[int]], delay_us: int) -> None:
    stream, finished_us = Stream(windowed(window), delay_us=delay_us), None
    columns = ("window_end",) if isinstance(window, Session) else ("window_start", "window_end")
    for times in [*epochs, []]:
        judged_us = stream.watermark_us
        for row in stream.epoch(at(*times)):
            for column in columns:
                check(stream.operator, column, int(row[column]), finished_us)
        finished_us = judged_us


@examples(150)
@given(
    st.sampled_from(JOINS),
    st.lists(st.tuples(st.integers(0, 1), TIMES), max_size=10),
)
def test_joined_rows_come_out_no_further_behind(operator: Join, epochs: list[tuple[int, list[int]]]) -> None:
    joined, _ = in_dicts(operator)
    watermark, finished_us = Watermark(), None
    times_at = [
        (column, operator.pipeline.output.names.index(column))
        for column in ("at", "bt", "window_start", "window_end")
        if column in operator.pipeline.output.names
    ]
    for side, times in [*epochs, (0, [])]:
        batch: Batch = side, [("a", time, 0) for time in times]
        judged_us = watermark.us
        for row in joined.epoch(batch, watermark_us=judged_us):
            for column, place in times_at:
                check(operator, column, row[place], finished_us)
        finished_us = judged_us
        watermark.move([batch])


def test_the_start_of_a_session_bounds_nothing() -> None:
    with pytest.raises(InvalidPipelineError, match=r"any time before it ends.*instead=window_end"):
        output_lag_us(windowed(Session(7)), "window_start")
