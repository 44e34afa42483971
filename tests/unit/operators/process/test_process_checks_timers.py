"""A timer that a flush would not fire is refused when it is set, and each that a row has set is fired by the flush."""

from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.process import KeyedState, ProcessContext, ProcessFunction
from dagster_ckpt.testing import ProcessKit
from tests.unit.operators.process_streams import SCHEMA, TIME, Given, ProcessStream, rows
from tests.worlds.examples import examples

WITHIN = 10
WHERE = "operator=process, method=Alarms"


class Alarms(ProcessFunction):
    """A row's timer is `v` after its time; a timer sets the next one as far behind it as `again` says."""

    output = pa.schema([("k", pa.string()), ("fired", TIME)])
    timers_within = timedelta(microseconds=WITHIN)

    def __init__(self, again: int | None = None) -> None:
        self.again = again

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        at = pc.coalesce(rows["at"], pa.scalar(0, TIME))
        state.timers.set(rows, pc.add(at, rows["v"].cast(pa.duration("us"))))

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        if self.again is not None:
            state.timers.set(timers, pc.add(timers["_time"], pa.scalar(self.again, pa.duration("us"))))
        return pa.table({"k": timers["k"], "fired": timers["_time"]})


def kit(function: ProcessFunction) -> ProcessKit:
    return ProcessKit(function, SCHEMA, keys="k", event_time="at", delay="1s")


def test_a_timer_beyond_timers_within_is_refused_with_its_key_and_its_time() -> None:
    message = (
        r"further than `timers_within` after the newest row, .* declare a longer `timers_within`, .* "
        rf"key={{'k': 'a'}}, time=1970-01-01 00:00:00.000031Z, latest=1970-01-01 00:00:00.000030Z, {WHERE}.on_rows"
    )
    with pytest.raises(InvalidPipelineError, match=message):
        kit(Alarms()).epoch(rows(("b", 10, 20), ("a", 11, 20)))


def test_the_newest_row_of_earlier_epochs_and_calls_counts() -> None:
    one = kit(Alarms())
    one.epoch(rows(("a", 0, 100)))
    one.epoch(rows(("a", 100, 10)))
    one.epoch(rows(("b", 0, 150)), rows(("c", 145, 15)))
    assert sorted(scalar.value for scalar in one.flush()["fired"]) == [100, 110, 150, 160]
    assert one.timers().num_rows == 0


def test_rows_without_an_event_time_set_no_timer_before_there_is_one() -> None:
    with pytest.raises(InvalidPipelineError, match=rf"no row of the stream has had one yet: .*{WHERE}.on_rows"):
        kit(Alarms()).epoch(rows(("a", 5, None)))
    one = kit(Alarms())
    one.epoch(rows(("a", 5, None), ("a", 5, 0)))
    assert one.timers().num_rows == 1


def test_a_timer_sets_the_next_one_no_further_than_timers_within_after_itself() -> None:
    one = ProcessStream(Alarms(again=WITHIN))
    one.epoch(rows(("a", 5, 0)))
    assert [row["fired"] for row in one.at(10)] == [5], "a chain goes on past the end of the input, and waits there"
    assert [row["_time"] for row in one.table("timers")] == [15]
    two = ProcessStream(Alarms(again=WITHIN + 1))
    two.epoch(rows(("a", 10, 0)))
    with pytest.raises(InvalidPipelineError, match=rf"time=.*21Z, latest=.*20Z, {WHERE}.on_watermark"):
        two.at(10)


def test_a_declaration_beyond_what_the_watermark_reaches_is_cut_to_that() -> None:
    class Far(Alarms):
        timers_within = timedelta(microseconds=2**63 - 1)

    one = kit(Far())
    one.epoch(rows(("a", 2**62 - 5, 5)))
    assert one.flush().num_rows == 1
    with pytest.raises(InvalidPipelineError, match="would not fire it"):
        kit(Far()).epoch(rows(("a", 2**62 - 4, 5)))


@examples(60)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 30), st.integers(0, 40) | st.none()), max_size=4),
        max_size=4,
    )
)
def test_each_timer_is_refused_or_fired_by_the_flush(epochs: list[list[Given]]) -> None:
    one = ProcessStream(Alarms(), delay_us=100)
    fired, wanted = list[int](), set[tuple[str | None, int]]()
    newest: int | None = None
    for given_ in epochs:
        newest = max([at for _, _, at in given_ if at is not None] + ([] if newest is None else [newest]), default=None)
        timers = {(k, (at or 0) + (v or 0)) for k, v, at in given_}
        if given_ and (newest is None or any(time > newest + WITHIN for _, time in timers)):
            with pytest.raises(InvalidPipelineError):
                one.epoch(rows(*given_))
            return
        fired += [row["fired"] for row in one.epoch(*([rows(*given_)] if given_ else []))]
        wanted |= timers
    if newest is not None:
        fired += [row["fired"] for row in one.at(newest + WITHIN)]
        assert sorted(fired) == sorted(time for _, time in wanted)
        assert one.table("timers") == []
