from datetime import timedelta
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.process import (
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    StateKind,
    ValueState,
)
from tests.unit.operators.process_streams import ProcessStream, rows

ONE = pa.schema([("n", pa.int64())])


class Remembering(ProcessFunction):
    """Emits for each row whether its key is known, and how many of its rows are kept; then keeps the row."""

    output = pa.schema([("k", pa.string()), ("known", pa.bool_()), ("rows", pa.int64())])
    state: ClassVar[dict[str, StateKind]] = {"known": ValueState(pa.schema([])), "rows": ListState(ONE)}

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        keys = rows.group_by("k").aggregate([])
        known = state.value("known").get(keys)["_present"]
        counts = state.list("rows").get(keys)["_key"].value_counts()
        kept = dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True))
        state.value("known").put(keys)
        state.list("rows").append(pa.table({"k": rows["k"], "n": rows["v"]}))
        many = pa.array([kept.get(i, 0) for i in range(keys.num_rows)], pa.int64())
        return pa.table([keys["k"], known, many], schema=self.output)


def answers(made: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in made)


def test_a_key_is_forgotten_when_the_watermark_is_so_far_past_its_last_row() -> None:
    stream = ProcessStream(Remembering(), expire_after_us=10)
    stream.at(0, rows(("a", 1, 100), ("b", 1, 103)), rows(("a", 1, 90)))
    stream.at(109)
    assert len(stream.table("state_known")) == 2
    stream.at(110)
    assert stream.counters["keys_expired"] == 1
    assert {name: len(stream.table(name)) for name in ("state_known", "state_rows", "size_rows", "seen", "expiry")} == {
        "state_known": 1, "state_rows": 1, "size_rows": 1, "seen": 1, "expiry": 1,
    }  # fmt: skip
    stream.at(113)
    assert [name for name, table in stream.state.tables.items() if table.rows] == []


def test_a_row_keeps_all_state_of_its_key_alive() -> None:
    stream = ProcessStream(Remembering(), expire_after_us=10)
    stream.at(0, rows(("a", 1, 100)))
    stream.at(105, rows(("a", 1, 107)))
    stream.at(112)
    assert answers(stream.at(116, rows(("a", 1, 120)))) == [("a", True, 2)]
    assert answers(stream.at(129, rows(("a", 1, 140)))) == [("a", True, 3)]
    assert answers(stream.at(150, rows(("a", 1, 150)))) == [("a", False, 0)]


def test_a_key_starts_again_in_the_epoch_in_which_it_expires_however_its_rows_are_cut() -> None:
    for batches in ([rows(("a", 1, 115), ("a", 2, 116))], [rows(("a", 2, 116)), rows(("a", 1, 115))]):
        stream = ProcessStream(Remembering(), expire_after_us=10)
        stream.at(0, rows(("a", 1, 100)))
        made = stream.at(112, *batches)
        assert made[0] == {"k": "a", "known": False, "rows": 0}
        assert len(stream.table("state_rows")) == 2
        assert len(stream.table("expiry")) == 1
        assert answers(stream.at(125, rows(("a", 1, 130)))) == [("a", True, 2)]


def test_a_row_without_an_event_time_counts_as_one_at_the_watermark() -> None:
    stream = ProcessStream(Remembering(), expire_after_us=10)
    stream.at(100, rows(("a", 1, None)))
    stream.at(105, rows(("a", 1, None)))
    stream.at(114)
    assert len(stream.table("state_known")) == 1
    stream.at(115)
    assert stream.table("state_known") == []


def test_before_there_is_a_watermark_its_time_begins_with_the_first() -> None:
    stream = ProcessStream(Remembering(), expire_after_us=10)
    stream.epoch(rows(("a", 1, None)))
    assert stream.watermark_us is None
    stream.epoch(rows(("a", 1, None), ("b", 1, None)), rows(("b", 1, 300)))
    stream.at(300)
    assert len(stream.table("state_known")) == 2
    stream.at(309)
    assert len(stream.table("state_known")) == 2
    stream.at(310)
    assert stream.table("state_known") == []


def test_times_near_the_end_of_time_do_not_wrap_around() -> None:
    from dagster_ckpt.operators.process.process_epoch import _NEVER, Expiry

    last = pa.array([5, _NEVER - 3, _NEVER]).to_numpy()
    assert Expiry._ends(_Ten(), last).tolist() == [15, _NEVER, _NEVER]  # type: ignore[arg-type]


class _Ten:
    _after_us = 10


def test_timers_are_fired_before_state_expires_and_stay_when_it_does() -> None:
    class Timed(Remembering):
        timers_within = timedelta(microseconds=30)

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            for by_us in (5, 30):
                state.timers.set(rows, pc.add(rows["at"], pa.scalar(timedelta(microseconds=by_us))))
            return super().on_rows(rows, state, context)

        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            known = state.value("known").get(timers)["_present"]
            return pa.table([timers["k"], known, timers["_time"].cast(pa.int64())], schema=self.output)

    stream = ProcessStream(Timed(), expire_after_us=10)
    stream.at(0, rows(("a", 1, 100)))
    assert answers(stream.at(115)) == [("a", True, 105)], "both are due: the timer comes first"
    assert answers(stream.at(130)) == [("a", False, 130)]


def test_a_scan_of_what_may_expire_that_is_broken_off_goes_on() -> None:
    for memory_bytes in (1, 500, 1 << 20):
        stream = ProcessStream(Remembering(), expire_after_us=10, memory_bytes=memory_bytes)
        stream.at(0, rows(*((f"k{number}", number, 100 + number) for number in range(20))))
        stream.at(105, rows(*((f"k{number}", number, 200) for number in range(0, 20, 2))))
        stream.at(150)
        assert stream.counters["keys_expired"] == 10
        assert {row["k"] for row in stream.table("state_known")} == {f"k{number}" for number in range(0, 20, 2)}
        assert {row["_time"] for row in stream.table("expiry")} == {210}


class Counting(ProcessFunction):
    """A timer `v` after each row; it emits the state of its key, and counts itself there."""

    output = pa.schema([("k", pa.string()), ("found", pa.int64())])
    state: ClassVar[dict[str, StateKind]] = {"n": ValueState(ONE), "all": ListState(ONE)}
    timers_within = timedelta(microseconds=40)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        keys = rows.group_by("k").aggregate([])
        state.value("n").put(pa.table({"k": keys["k"], "n": pa.array([0] * keys.num_rows, pa.int64())}))
        state.timers.set(rows, pc.add(rows["at"], rows["v"].cast(pa.duration("us"))))

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
        found = state.value("n").get(timers)["n"]
        state.value("n").put(pa.table({"k": timers["k"], "n": pc.add(pc.fill_null(found, -1), 1)}))
        state.list("all").append(pa.table({"k": timers["k"], "n": pc.fill_null(found, -1)}))
        return pa.table([timers["k"], found], schema=self.output)


def test_what_a_timer_finds_does_not_depend_on_how_far_the_watermark_moves_at_once() -> None:
    for watermarks in (range(101, 160), [109, 135, 159], [159]):
        for memory_bytes in (1, 1 << 20):
            stream = ProcessStream(Counting(), expire_after_us=10, memory_bytes=memory_bytes)
            stream.at(0, rows(*(("a", after, 100) for after in (5, 9, 10, 19, 20, 35))))
            found = [row["found"] for watermark in watermarks for row in stream.at(watermark)]
            assert found == [0, 1, None, 0, None, None], "rows end at 110, what 110, 120 and 135 put at 120, 130, 145"
            assert [name for name, table in stream.state.tables.items() if table.rows] == []


def test_state_that_a_timer_puts_for_a_key_that_has_expired_expires_too() -> None:
    stream = ProcessStream(Counting(), expire_after_us=10)
    stream.at(0, rows(("a", 30, 100), ("b", 5, 100)))
    stream.at(120)
    assert stream.table("seen") == []
    stream.at(130)
    assert [row["_last"] for row in stream.table("seen")] == [130]
    assert stream.at(139, rows(("a", 30, 139))) == []
    assert [row["n"] for row in stream.table("state_n")] == [0], "and a row keeps it alive"
    stream.at(148)
    assert len(stream.table("state_n")) == 1
    assert [len(stream.table(name)) for name in ("state_n", "seen", "expiry")] == [1, 1, 1]
    stream.at(149)
    assert [len(stream.table(name)) for name in ("state_n", "state_all", "size_all", "seen", "expiry")] == [0] * 5


def test_a_timer_that_puts_nothing_leaves_nothing_to_expire() -> None:
    class Looking(Counting):
        def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            return pa.table([timers["k"], state.value("n").get(timers)["n"]], schema=self.output)

    stream = ProcessStream(Looking(), expire_after_us=10)
    stream.at(0, rows(("a", 30, 100)))
    assert stream.at(130) == [{"k": "a", "found": None}]
    assert stream.counters["keys_expired"] == 1
    assert [name for name, table in stream.state.tables.items() if table.rows] == []
