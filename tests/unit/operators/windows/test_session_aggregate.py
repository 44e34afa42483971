from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.operator import change_log_table
from dagster_ckpt.operators.shared.window_kinds import Session
from dagster_ckpt.operators.windows.session_aggregate import Spans, merged_spans, spans_of_rows
from tests.unit.operators.dict_state import DictTable
from tests.unit.operators.keyed_streams import Row
from tests.unit.operators.windowed_streams import Stream, at, spans, table_of, windowed

TEN = Session(10)
BOTH = pytest.mark.parametrize("early", [False, True])
LONG = 1_000


def closed(*batches: tuple[int, ...], early: bool = False) -> list[tuple[object, ...]]:
    """The sessions of rows that come in these epochs, none of them late."""
    stream = Stream(windowed(TEN, early=early), delay_us=LONG)
    for times in batches:
        stream.epoch(at(*times))
    stream.flush()
    assert stream.late == []
    return spans(stream.table())


@BOTH
def test_rows_no_more_than_the_gap_apart_are_one_session_which_ends_a_gap_after_the_last(early: bool) -> None:
    assert closed((0, 9, 18, 29), early=early) == [("a", 0, 28, 3), ("a", 29, 39, 1)]


@BOTH
def test_rows_exactly_the_gap_apart_are_one_session(early: bool) -> None:
    assert closed((0, 10), early=early) == closed((0,), (10,), early=early) == [("a", 0, 20, 2)]
    assert closed((10,), (0,), early=early) == [("a", 0, 20, 2)]
    assert closed((0, 11), early=early) == closed((0,), (11,), early=early) == [("a", 0, 10, 1), ("a", 11, 21, 1)]


@BOTH
def test_a_session_grows_at_both_ends_and_within(early: bool) -> None:
    assert closed((20,), (25,), (12,), (22,), (20,), early=early) == [("a", 12, 35, 5)]


@BOTH
def test_a_row_between_two_sessions_makes_them_one(early: bool) -> None:
    assert closed((0, 20), (10,), early=early) == [("a", 0, 30, 3)]
    assert closed((0, 15, 30, 45), (8,), (37,), (22,), early=early) == [("a", 0, 55, 7)]
    assert closed((0, 15, 30, 45), (37, 8, 22), early=early) == [("a", 0, 55, 7)]


@BOTH
def test_the_rows_of_one_batch_may_bridge_several_sessions_and_leave_others_alone(early: bool) -> None:
    assert closed((0, 20, 100, 120, 200), (10, 110, 300), early=early) == [
        ("a", 0, 30, 3),
        ("a", 100, 130, 3),
        ("a", 200, 210, 1),
        ("a", 300, 310, 1),
    ]


@BOTH
def test_any_order_of_rows_gives_the_same_sessions(early: bool) -> None:
    for order in permutations((0, 8, 18, 29)):
        assert closed(*((time,) for time in order), early=early) == [("a", 0, 28, 3), ("a", 29, 39, 1)]


def test_every_key_has_its_own_sessions_also_null_and_where_all_have_one_hash() -> None:
    stream = Stream(windowed(TEN), delay_us=LONG)
    rows: list[Row] = [{"k": key, "v": 1, "at": time} for time in (0, 15, 7) for key in ("a", None, "b")]
    stream.epoch(table_of(rows[:7]))
    stream.epoch(table_of([*rows[7:], {"k": None, "v": 1, "at": 40}]))
    stream.flush()
    assert spans(stream.out) == [("a", 0, 25, 3), ("b", 0, 25, 3), (None, 0, 25, 3), (None, 40, 50, 1)]


def test_a_session_comes_out_when_the_watermark_has_passed_its_end_and_nothing_of_it_is_kept() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(0, 5))
    stream.epoch(at(15, k="b"))
    assert stream.epoch() == [], "the watermark is at 15, and a row of 15 would still join"
    stream.epoch(at(16, k="b"))
    assert spans(stream.epoch()) == [("a", 0, 15, 2)]
    assert stream.held() == {"windows": 1, "ends": 1}
    assert spans(stream.flush()) == [("b", 15, 26, 2)]
    assert stream.held() == {"windows": 0, "ends": 0}


@BOTH
def test_a_row_that_is_not_late_joins_a_session_at_its_very_end_however_epochs_are_cut(early: bool) -> None:
    whole, parts = (Stream(windowed(TEN, early=early)) for _ in range(2))
    whole.epoch(at(0, 10, k="a"), at(10, k="b"))
    for batch in (at(0), at(10, k="b"), at(), at(10)):
        parts.epoch(batch)
    for stream in (whole, parts):
        stream.flush()
        assert spans(stream.table()) == [("a", 0, 20, 2), ("b", 10, 20, 1)]


@BOTH
def test_a_row_is_late_where_its_own_session_would_have_ended(early: bool) -> None:
    stream = Stream(windowed(TEN, early=early))
    stream.epoch(at(0, 25))
    stream.epoch(at(15))  # the watermark is at 25, where a session of this row would end
    assert [row["at"] for row in stream.late] == [15]
    stream.epoch(at(16, None))
    assert [row["at"] for row in stream.late] == [15, None]
    stream.flush()
    assert spans(stream.table()) == [("a", 0, 10, 1), ("a", 16, 35, 2)]


@BOTH
def test_a_session_that_is_closed_takes_no_row_also_before_it_has_come_out(early: bool) -> None:
    stream = Stream(windowed(TEN, early=early))
    stream.epoch(at(0), at(12, k="b"))
    stream.epoch(at(5))  # not late, since 15 is after 12; but the session up to 10 is over
    stream.flush()
    assert spans(stream.table()) == [("a", 0, 10, 1), ("a", 5, 15, 1), ("b", 12, 22, 1)]


def test_a_session_that_became_longer_is_looked_at_again_at_its_new_end() -> None:
    stream = Stream(windowed(TEN))
    stream.epoch(at(0), at(0, k="b"))
    stream.epoch(at(9))
    stream.epoch(at(12))
    assert spans(stream.epoch()) == [("b", 0, 10, 1)]
    assert stream.held() == {"windows": 1, "ends": 1}
    stream.epoch(at(22), at(33, k="b"))
    assert spans(stream.epoch()) == [("a", 0, 32, 4)]
    assert stream.held() == {"windows": 1, "ends": 1}


def test_a_longer_session_takes_rows_at_its_new_end_also_where_its_old_one_was_looked_at() -> None:
    stream = Stream(windowed(TEN))
    for batch in (at(0), at(5), at(15, k="b")):
        stream.epoch(batch)
    assert stream.epoch() == [], "the watermark has just reached the new end"
    stream.epoch(at(15))
    stream.flush()
    assert spans(stream.out) == [("a", 0, 25, 3), ("b", 15, 25, 1)]


@BOTH
def test_sessions_that_no_row_joins_are_not_written_again(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(windowed(TEN, early=early), delay_us=LONG)
    stream.epoch(at(0, 20, 40, 100))
    written = list[int]()
    put = DictTable.put

    def counted(table: DictTable, hashes: Hashes, rows: pa.Table) -> None:
        written.append(rows.num_rows)
        put(table, hashes, rows)

    monkeypatch.setattr(DictTable, "put", counted)
    stream.epoch(at(25))
    assert set(written) == {1}


def test_a_session_that_became_part_of_another_leaves_nothing_behind() -> None:
    stream = Stream(windowed(TEN), delay_us=20)
    stream.epoch(at(10, 30))
    stream.epoch(at(20), at(5))
    assert stream.counters == {"windows_opened": 1, "windows_merged": 2, "windows_closed": 0}
    assert stream.held()["windows"] == 1
    assert spans(stream.flush()) == [("a", 5, 40, 4)]
    assert stream.held() == {"windows": 0, "ends": 0}


def test_with_early_results_sessions_change_and_merge_in_the_table() -> None:
    stream = Stream(windowed(TEN, early=True), delay_us=20)
    assert [row["_change_type"] for row in stream.epoch(at(0, 20))] == ["insert", "insert"]
    changes = stream.epoch(at(10))
    assert [(row["_change_type"], *spans([row])[0]) for row in changes] == [
        ("update_preimage", "a", 0, 10, 1),
        ("update_postimage", "a", 0, 30, 3),
        ("delete", "a", 20, 30, 1),
    ]
    assert [row["_change_type"] for row in stream.epoch(at(-5))] == ["insert", "delete"]
    stream.epoch(at(100))
    assert stream.epoch(at(100)) != []
    assert stream.held() == {"windows": 2, "open": 1}, "the closed one stays in the table alone"


def test_the_same_sessions_whichever_batch_of_an_epoch_a_row_is_in() -> None:
    whole, parts = (Stream(windowed(TEN, {"rows": agg.count(), "total": agg.sum("v")})) for _ in range(2))
    for batch in [at(5, 25), at(9, 31, 21, 17), at(50, 42)]:
        whole.epoch(batch)
        parts.epoch(*(batch.slice(row, 1) for row in reversed(range(batch.num_rows))))
        assert parts.state.tables["windows"].rows == whole.state.tables["windows"].rows
    whole.flush()
    parts.flush()
    assert spans(parts.out) == spans(whole.out)


def test_the_operator_describes_itself() -> None:
    final, early = windowed(TEN), windowed(TEN, early=True)
    assert (final.pipeline.appends, change_log_table(final), final.horizon_us) == (True, None, 11)
    assert (early.pipeline.appends, change_log_table(early), early.horizon_us) == (False, "windows", 11)


def test_sessions_of_times_further_apart_than_64_bits() -> None:
    far = np.array([-(2**63), 0, 2**63 - 1], dtype=np.int64)
    keys = np.zeros(3, dtype=np.int64)
    assert spans_of_rows(keys, far, 10)[0].tolist() == [0, 1, 2]
    assert merged_spans(Spans(keys, far, far), 10).starts.tolist() == [0, 1, 2]


def test_a_span_that_holds_others_unites_what_only_it_touches() -> None:
    parts = Spans(np.array([1, 0, 0, 0, 1]), np.array([50, 7, 0, 95, 0]), np.array([60, 8, 90, 97, 5]))
    together = merged_spans(parts, 10)
    assert together.order.tolist() == [2, 1, 3, 4, 0]
    assert together.starts.tolist() == [0, 3, 4]
    assert together.spans.lasts.tolist() == [97, 5, 60]
    only = together.only(np.array([True, False, True]))
    assert only.order.tolist() == [2, 1, 3, 0]
    assert (only.starts.tolist(), only.sizes.tolist()) == ([0, 3], [3, 1])
    assert only.span_of_part.tolist() == [0, 0, 0, 1]
