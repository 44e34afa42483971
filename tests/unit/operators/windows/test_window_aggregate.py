import pyarrow as pa
import pytest

from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.shared.late_rows import late_table
from dagster_ckpt.operators.shared.window_kinds import Hopping, Tumbling
from tests.unit.operators.dict_state import DictTable
from tests.unit.operators.windowed_streams import SCHEMA, Stream, at, spans, table_of, windowed

TEN = Tumbling(10)


def test_a_window_comes_out_once_when_the_watermark_reaches_its_end_and_nothing_of_it_is_kept() -> None:
    stream = Stream(windowed(TEN, {"rows": agg.count(), "total": agg.sum("v")}))
    assert stream.epoch(at(1, 3)) == []
    assert stream.epoch(at(9)) == [], "the watermark is at 3"
    assert stream.held() == {"windows": 1, "ends": 1}
    assert stream.epoch(at(10)) == [], "it is at 9: a row of this window may still come"
    assert stream.epoch() == [{"k": "a", "window_start": 0, "window_end": 10, "rows": 3, "total": 13}]
    assert stream.held() == {"windows": 1, "ends": 1}, "the window from 10 on"
    assert stream.epoch() == []


def test_windows_close_in_epochs_without_rows_too() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(1, 35))
    assert spans(stream.epoch()) == [("a", 0, 10, 1)]
    assert spans(stream.flush()) == [("a", 30, 40, 1)]
    assert stream.held() == {"windows": 0, "ends": 0}


def test_before_the_watermark_begins_no_row_is_late_and_nothing_comes_out() -> None:
    stream = Stream(windowed(TEN))
    assert stream.epoch(at(500), at(1), at(100)) == []
    assert stream.late == []
    assert spans(stream.flush()) == [("a", 0, 10, 1), ("a", 100, 110, 1), ("a", 500, 510, 1)]


def test_a_row_is_late_where_its_window_is_closed_and_not_before() -> None:
    stream = Stream(windowed(TEN), delay_us=5)
    stream.epoch(at(24))
    stream.epoch(at(12, 9))  # the watermark is at 19: the window up to 20 is open, though the row is below it
    assert [row["at"] for row in stream.late] == [9]
    stream.epoch(at(25), at(11))
    stream.epoch(at(19, 20))
    assert [row["at"] for row in stream.late] == [9, 19]
    stream.flush()
    assert spans(stream.out) == [("a", 10, 20, 2), ("a", 20, 30, 3)]


@pytest.mark.parametrize("sentinel", [-(2**63), 2**63 - 1])
def test_a_sentinel_for_an_unknown_time_is_late_in_every_epoch_and_makes_no_other_row_late(sentinel: int) -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(1, sentinel))
    stream.epoch(at(3, sentinel, 5))
    assert [row["at"] for row in stream.late] == [sentinel, sentinel]
    stream.flush()
    assert spans(stream.out) == [("a", 0, 10, 3)]


def test_a_row_of_several_windows_counts_in_those_that_are_open() -> None:
    stream = Stream(windowed(Hopping(10, 5)))
    stream.epoch(at(7, 10))
    stream.epoch(at(8, 4))  # the watermark is at 10: 8 is in windows up to 10 and 15, 4 in those up to 5 and 10
    assert [row["at"] for row in stream.late] == [4]
    stream.flush()
    assert spans(stream.out) == [("a", 0, 10, 1), ("a", 10, 20, 1), ("a", 5, 15, 3)]


def test_a_row_without_event_time_is_in_no_window_and_late_whatever_the_watermark() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(None, 1, None))
    stream.epoch(at(None))
    assert [row["at"] for row in stream.late] == [None, None, None]
    assert spans(stream.flush()) == [("a", 0, 10, 1)]


def test_null_is_a_key() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(1, k=None), at(1), at(2, k=None), at(3, k=""))
    assert spans(stream.flush()) == [("", 0, 10, 1), ("a", 0, 10, 1), (None, 0, 10, 2)]


def test_windows_before_1970_close_too() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(-15, -20))
    stream.epoch(at(-9, -11))
    assert spans(stream.epoch()) == [("a", -20, -10, 3)]
    assert stream.late == []


def test_the_same_windows_whichever_batch_of_an_epoch_a_row_is_in() -> None:
    whole, parts = Stream(windowed(TEN)), Stream(windowed(TEN))
    for batch in [at(5, 25), at(9, 31, 21), at(50)]:
        whole.epoch(batch)
        parts.epoch(*(batch.slice(row, 1) for row in reversed(range(batch.num_rows))))
        assert parts.held() == whole.held()
        assert parts.counters == whole.counters
    assert spans(parts.out) == spans(whole.out)
    assert parts.late == whole.late


def test_windows_opened_and_closed_are_counted() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(1, 2), at(3, 11), at(1, k="b"))
    assert stream.counters == {"windows_opened": 3, "windows_closed": 0}
    stream.epoch(at(12))
    assert stream.counters == {"windows_opened": 0, "windows_closed": 2}


def test_with_early_results_a_window_is_in_the_table_from_its_first_row_on_and_stays() -> None:
    stream = Stream(windowed(TEN, early=True))
    bounds = {"k": "a", "window_start": 0, "window_end": 10}
    assert stream.epoch(at(1)) == [{**bounds, "rows": 1, "_change_type": "insert"}]
    assert stream.epoch(at(9), at(30)) == [
        {**bounds, "rows": 1, "_change_type": "update_preimage"},
        {**bounds, "rows": 2, "_change_type": "update_postimage"},
        {"k": "a", "window_start": 30, "window_end": 40, "rows": 1, "_change_type": "insert"},
    ]
    assert stream.epoch(at(5)) == [], "the window is closed: the row is late"
    assert [row["at"] for row in stream.late] == [5]
    assert spans(stream.table()) == [("a", 0, 10, 2), ("a", 30, 40, 1)]
    assert stream.flush() == []


@pytest.mark.parametrize("early", [False, True])
def test_only_what_is_read_is_asked_of_the_input_unless_late_rows_are_kept(early: bool) -> None:
    schema = pa.schema([*SCHEMA, ("more", pa.list_(pa.int64()))])
    assert windowed(TEN, schema=schema, early=early).pipeline.inputs[0].schema.names == ["k", "at"]
    operator = windowed(TEN, schema=schema, early=early, late="keep")
    assert operator.pipeline.inputs[0].schema == schema
    assert [table.name for table in operator.pipeline.tables][-1] == late_table(0)
    stream = Stream(operator)
    stream.epoch(table_of([{"k": "a", "at": 20, "more": [1]}], schema))
    stream.epoch(table_of([{"k": "a", "at": 2, "v": 7, "more": [2, 3]}], schema))
    assert stream.late == [{"k": "a", "at": 2, "v": 7, "more": [2, 3]}]


@pytest.mark.parametrize("type_", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")])
@pytest.mark.parametrize("early", [False, True])
def test_bounds_have_the_type_of_the_event_time(type_: pa.DataType, early: bool) -> None:
    operator = windowed(TEN, schema=pa.schema([("k", pa.string()), ("at", type_)]), early=early)
    assert operator.pipeline.output == pa.schema(
        [
            ("k", pa.string()),
            pa.field("window_start", type_, nullable=False),
            pa.field("window_end", type_, nullable=False),
            pa.field("rows", pa.int64(), nullable=False),
        ]
    )
    stream = Stream(operator)
    stream.epoch(pa.table({"k": ["a"], "at": pa.array([13], type_)}))
    stream.flush()
    assert spans(stream.table()) == [("a", 10, 20, 1)]


def test_the_output_is_the_table_and_the_operator_describes_itself() -> None:
    final, early = windowed(TEN), windowed(TEN, early=True)
    assert (final.pipeline.appends, change_log_table(final), final.horizon_us) == (True, None, 10)
    assert (early.pipeline.appends, change_log_table(early), early.horizon_us) == (False, "windows", 10)
    assert final.event_times == early.event_times == ("at",)
    assert final.pipeline.keys == early.pipeline.keys == ("k",)


def test_rows_in_very_many_windows_are_worked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_ckpt.operators.windows.windowed_state._ROWS_MAX", 4)
    stream = Stream(windowed(Hopping(12, 2), {"rows": agg.count(), "total": agg.sum("v")}), delay_us=100)
    times = [0, 1, 2, 3, 13, 13, 2, 12]
    stream.epoch(at(*times[:3], None, *times[3:5]))
    stream.epoch(at(*times[5:]))
    stream.flush()
    within = {start: [time for time in times if start <= time < start + 12] for start in range(-10, 13, 2)}
    assert sorted(stream.out, key=lambda row: row["window_start"]) == [
        {"k": "a", "window_start": start, "window_end": start + 12, "rows": len(its_times), "total": sum(its_times)}
        for start, its_times in within.items()
    ]
    assert [row["at"] for row in stream.late] == [None]


def test_closed_windows_come_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagster_ckpt.operators.shared.bounded.lookups._ROOM_BYTES", 1 << 17)
    stream = Stream(windowed(TEN), distinct=3)
    got, get = list[int](), DictTable.get

    def counted(self: DictTable, hashes: Hashes, keys: pa.Table) -> Found:
        got.append(len(hashes))
        return get(self, hashes, keys)

    monkeypatch.setattr(DictTable, "get", counted)
    keys = [chr(ord("a") + number) for number in range(7)]
    stream.epoch(*(at(1, k=key) for key in keys))
    got.clear()
    assert spans(stream.flush()) == [(key, 0, 10, 1) for key in keys]
    assert got == [2, 1, 3, 1], "two at first, then as many as come together"


def test_of_a_batch_only_the_late_rows_are_late() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(40))
    stream.epoch(at(39, 40, None, 41, 12))
    assert [row["at"] for row in stream.late] == [39, None, 12]
    assert spans(stream.flush()) == [("a", 40, 50, 3)]
