from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.operators import EpochContext
from dagster_ckpt.operators.process import KeyedState, ProcessContext, ProcessFunction, StateKind, ValueState
from tests.unit.operators.dict_state import DictState, DictTable, DictTimeline
from tests.unit.operators.process_streams import ProcessStream, plain, rows

CALLS = pa.schema([("k", pa.string()), ("call", pa.string()), ("watermark", pa.int64())])


def emitted(table: pa.Table, text: str, context: ProcessContext) -> pa.Table:
    """One row for each of the call's: what was called, and when."""
    watermark = None if context.watermark is None else context.watermark.value
    n = table.num_rows
    return pa.table([table["k"], pa.array([text] * n), pa.array([watermark] * n, pa.int64())], schema=CALLS)


def calls(made: list[dict[str, Any]]) -> list[tuple[str | None, str]]:
    return [(row["k"], row["call"]) for row in made]


@dataclass(frozen=True)
class Recorder(ProcessFunction):
    """Sets a timer `after` each row, `again` after each timer, and emits which calls it had."""

    after: int = 10
    again: int | None = None
    log: list[tuple[str, int]] = field(default_factory=list)

    output = CALLS

    @property
    def timers_within(self) -> timedelta:
        return timedelta(microseconds=max(10, self.after, self.again or 0))

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        self.log.append(("rows", rows.num_rows))
        state.timers.set(rows, later(rows["at"], self.after))
        return emitted(rows, "rows", context)

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        self.log.append(("timers", timers.num_rows))
        assert timers.column_names == ["k", "_time"]
        times = [time["_time"] for time in plain(timers)]
        assert times == sorted(times)
        if self.again is not None:
            state.timers.set(timers, later(timers["_time"], self.again))
        return emitted(timers, ",".join(map(str, times)), context)


def later(times: pa.ChunkedArray, by_us: int) -> pa.ChunkedArray:
    return pc.add(times, pa.scalar(timedelta(microseconds=by_us)))


def test_a_timer_is_fired_in_the_first_epoch_whose_watermark_has_reached_it() -> None:
    stream = ProcessStream(Recorder())
    assert calls(stream.epoch(rows(("a", 1, 100)))) == [("a", "rows")]
    assert stream.at(109) == []
    assert stream.at(110) == [{"k": "a", "call": "110", "watermark": 110}]
    assert stream.at(500) == []
    assert stream.table("timers") == []


def test_the_watermark_of_an_epoch_is_what_rows_of_earlier_ones_made_it() -> None:
    stream = ProcessStream(Recorder(), delay_us=5)
    first = stream.epoch(rows(("a", 1, 100)), rows(("b", 1, 300)))
    second = stream.epoch(rows(("c", 1, 400)))
    assert {row["watermark"] for row in first} == {None}
    assert {row["watermark"] for row in second} == {295}


def test_what_is_due_comes_before_the_rows_of_its_epoch() -> None:
    function = Recorder()
    stream = ProcessStream(function)
    stream.epoch(rows(("a", 1, 100)))
    function.log.clear()
    made = stream.at(110, rows(("a", 1, 110)), rows(("b", 1, 111)))
    assert function.log == [("timers", 1), ("rows", 1), ("rows", 1)]
    assert calls(made) == [("a", "110"), ("a", "rows"), ("b", "rows")]


def test_a_late_row_is_named_and_the_function_never_sees_it() -> None:
    function = Recorder()
    stream = ProcessStream(function)
    made = stream.at(100, rows(("a", 1, 99), ("b", 2, 100), ("c", 3, None), ("d", 4, 3)), rows(("e", 5, 1)))
    assert calls(made) == [("b", "rows"), ("c", "rows")]
    assert [row["k"] for row in stream.late] == ["a", "d", "e"]
    assert function.log == [("rows", 2)], "and a batch of late rows alone is no call"


def test_a_stream_without_an_event_time_has_no_late_rows_and_no_watermark() -> None:
    class Plain(ProcessFunction):
        output = CALLS

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return emitted(rows, "rows", context)

    stream = ProcessStream(Plain(), event_time=None)
    stream.at(100)  # another input of a whole pipeline might have one
    assert stream.epoch(rows(("a", 1, 3))) == [{"k": "a", "call": "rows", "watermark": None}]
    assert stream.operator.horizon_us is None


def test_an_epoch_without_rows_calls_nothing_but_for_timers() -> None:
    function = Recorder()
    stream = ProcessStream(function)
    assert stream.epoch() == []
    assert stream.epoch(rows()) == []
    assert function.log == []


def test_a_method_may_return_nothing_or_no_rows() -> None:
    class Silent(Recorder):
        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
            state.timers.set(rows, rows["at"])

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return CALLS.empty_table()

    stream = ProcessStream(Silent())
    assert stream.epoch(rows(("a", 1, 1))) == []
    assert stream.epoch() == []
    assert stream.counters["timers_fired"] == 1


def test_a_timer_that_a_timer_sets_is_fired_in_the_same_epoch_where_it_is_due_too() -> None:
    stream = ProcessStream(Recorder(again=7))
    stream.epoch(rows(("a", 1, 0)))
    assert calls(stream.at(30)) == [("a", "10"), ("a", "17"), ("a", "24")]
    assert calls(stream.at(31)) == [("a", "31")]
    assert [timer["_time"] for timer in stream.table("timers")] == [38]


def test_a_timer_in_the_past_is_fired_at_the_end_of_its_own_epoch_whatever_the_cut() -> None:
    for batches in ([rows(("a", 1, 50), ("b", 2, 50))], [rows(("a", 1, 50)), rows(("b", 2, 50))]):
        function = Recorder(after=-10)
        stream = ProcessStream(function)
        made = stream.at(45, *batches)
        assert calls(made) == [("a", "rows"), ("b", "rows"), ("a", "40,40"), ("b", "40,40")]
        assert function.log == [("rows", len(batch)) for batch in batches] + [("timers", 2)]


def test_a_timer_is_a_key_and_a_time_so_twice_is_once() -> None:
    function = Recorder()
    stream = ProcessStream(function)
    stream.epoch(rows(("a", 1, 5), ("a", 2, 5)), rows(("a", 3, 5), ("b", 3, 5), ("a", 3, 6)))
    assert len(stream.table("timers")) == 3
    stream.at(100)
    assert function.log[-2:] == [("timers", 2), ("timers", 1)], "of a key one a call"
    assert stream.counters["timers_fired"] == 3


def test_where_the_time_is_null_there_is_no_timer() -> None:
    stream = ProcessStream(Recorder())
    stream.epoch(rows(("a", 1, None), ("b", 1, 3)))
    assert [timer["k"] for timer in stream.table("timers")] == ["b"]


class Clearing(Recorder):
    """A row with a value of 0 takes back the timer that one at the same time would have set."""

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
        sets = pc.not_equal(rows["v"], 0)
        stops = rows.filter(pc.invert(sets))
        rows = rows.filter(sets)
        state.timers.set(rows, later(rows["at"], self.after))
        state.timers.clear(stops, later(stops["at"], self.after))


def test_a_timer_can_be_taken_back() -> None:
    stream = ProcessStream(Clearing())
    stream.epoch(rows(("a", 1, 5), ("b", 1, 5), ("a", 1, 6)))
    stream.at(0, rows(("a", 0, 5), ("c", 0, 5)))
    assert calls(stream.at(50)) == [("b", "15,16"), ("a", "15,16")]


@pytest.mark.parametrize("memory_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("watermarks", [range(10, 31), [12, 17, 30], [30]], ids=str)
def test_a_timer_that_is_taken_back_before_its_turn_is_not_fired_whatever_the_watermark_is(
    memory_bytes: int, watermarks: list[int]
) -> None:
    class Sole(Recorder):
        """A timer takes the three after it back."""

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            for by_us in (1, 2, 3):
                state.timers.clear(timers, later(timers["_time"], by_us))
            return emitted(timers, "fired", context)

    function = Sole()
    stream = ProcessStream(function, memory_bytes=memory_bytes)
    stream.epoch(rows(*((key, 1, time) for time in range(12) for key in "ab")))
    made = [row for watermark in watermarks for row in calls(stream.at(watermark))]
    assert len(made) == 6, "10, 14 and 18 of both"
    assert stream.table("timers") == []


def times_of(made: list[dict[str, Any]]) -> dict[str | None, list[int]]:
    """Of each key the timers that were given, in order."""
    found: dict[str | None, list[int]] = {}
    for key, time in calls(made):
        if time != "rows":
            found.setdefault(key, []).append(int(time))
    return found


class Saying(Recorder):
    """Emits the time of each timer."""

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        super().on_watermark(timers, state, context)
        assert len(set(timers["k"].to_pylist())) == timers.num_rows, "a call has one timer of a key"
        times = [row["_time"] for row in plain(timers)]
        return pa.table([timers["k"], [str(time) for time in times], pa.nulls(len(times), pa.int64())], schema=CALLS)


@pytest.mark.parametrize("memory_bytes", [1, 300, 1 << 20])
def test_a_due_timer_that_another_sets_again_is_fired_once_and_in_its_turn(memory_bytes: int) -> None:
    stream = ProcessStream(Saying(again=10), memory_bytes=memory_bytes)
    stream.epoch(rows(("a", 1, 0), ("a", 1, 10), ("b", 1, 5), ("a", 1, 25), ("c", 1, 3), (None, 1, 30)))
    assert times_of(stream.at(60)) == {
        "a": [10, 20, 30, 35, 40, 45, 50, 55, 60],
        "b": [15, 25, 35, 45, 55],
        "c": [13, 23, 33, 43, 53],
        None: [40, 50, 60],
    }
    assert len(stream.table("timers")) == 5


def test_timers_of_a_key_in_many_pieces_of_memory_are_given_one_after_another() -> None:
    """The state here gives three timers a piece, and has one hash for all keys."""
    for memory_bytes in (1, 1 << 20):
        stream = ProcessStream(Saying(), memory_bytes=memory_bytes)
        stream.epoch(rows(*((key, 1, time) for time in range(20) for key in "ab")))
        assert times_of(stream.at(100)) == {key: list(range(10, 30)) for key in "ab"}
        assert stream.counters["timers_fired"] == 40


def test_a_call_is_given_a_part_of_the_timers_that_memory_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Recorder()
    stream = ProcessStream(function, memory_bytes=4_000)
    stream.epoch(rows(*((f"k{number}", number, 1) for number in range(200))))
    function.log.clear()
    monkeypatch.setattr(DictState, "timeline", lambda self, name: DictTimeline(self.tables[name], piece=1_000))
    stream.at(50)
    counts = [count for _, count in function.log]
    assert sum(counts) == 200
    assert max(counts) * 24 <= 4_000 // 16
    assert min(counts) > 1


def test_between_calls_the_caller_may_flush_state() -> None:
    """Also where the method returns nothing: an empty table comes."""

    class Silent(Recorder):
        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
            super().on_watermark(timers, state, context)

    function = Silent()
    stream = ProcessStream(function)
    stream.epoch(rows(*(("a", number, number) for number in range(7))))
    function.log.clear()
    context = EpochContext(Epoch(9), (Shard(0),), 1, 50, memory_bytes=1 << 20)
    steps = [len(function.log) for _ in stream.operator.finish(stream.state, context)]
    assert steps == list(range(1, 8))


@pytest.mark.parametrize("memory_bytes", [1, 300, 1 << 20])
def test_many_timers_come_in_several_calls_and_each_once(memory_bytes: int) -> None:
    function = Recorder(again=100)
    stream = ProcessStream(function, memory_bytes=memory_bytes)
    stream.epoch(rows(*((f"k{number}", number, number % 7) for number in range(20))))
    function.log.clear()
    made = stream.at(50)
    fired = [(key, time) for key, times in calls(made) for time in times.split(",")]
    assert len({key for key, _ in fired}) == 20
    assert sum(count for _, count in function.log) == 20
    assert len(function.log) > 5, "a scan of this state comes in pieces"
    assert len(stream.table("timers")) == 20
    assert stream.counters["timers_fired"] == 20


def test_no_tombstone_of_a_fired_timer_is_left() -> None:
    """The real engine leaves a tombstone out where it has expired."""
    stream = ProcessStream(Recorder())
    stream.epoch(rows(("a", 1, 5)))
    expired: list[int] = []
    table = stream.state.tables["timers"]
    stream.state.tables["timers"] = Watched(**vars(table), expired=expired)
    stream.at(15)
    assert expired == [16]


def test_rows_come_out_as_they_were_returned_whatever_they_are() -> None:
    nested = pa.struct([("a", pa.list_(pa.string())), ("b", pa.map_(pa.string(), pa.int32()))])

    class Nested(ProcessFunction):
        output = pa.schema([("n", nested), pa.field("v", pa.int64(), nullable=False)])
        state: ClassVar[dict[str, StateKind]] = {"kept": ValueState(pa.schema([("n", nested)]))}

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            values = pa.array([{"a": ["x", None], "b": [("y", 1)]}, None][: rows.num_rows], nested)
            state.value("kept").put(pa.table({"k": rows["k"], "n": values}))
            return pa.table([state.value("kept").get(rows)["n"], rows["v"]], schema=self.output)

    stream = ProcessStream(Nested())
    made = stream.epoch(rows(("a", 1, 1), ("b", 2, 1)))
    assert made == [{"n": {"a": ["x", None], "b": [("y", 1)]}, "v": 1}, {"n": None, "v": 2}]


@dataclass
class Watched(DictTable):
    expired: list[int] = field(default_factory=list)

    def expire(self, until_us: int) -> None:
        self.expired.append(until_us)
        super().expire(until_us)
