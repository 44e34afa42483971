"""Windows of other systems: tumbling, hopping, sessions, late rows, and a restart in the middle."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.window_kinds import Hopping, Session, Tumbling, Window
from tests.golden.cases import cases_of, micros
from tests.unit.operators.keyed_streams import TIME, Row
from tests.unit.operators.windowed_streams import Stream, table_of, windowed
from tests.worlds.examples import examples

SECOND = 1_000_000
MILLISECOND = 1_000
BASE_MS = 1_600_000_000_000
"""A whole number of hours."""
FLINK = pa.schema([("at", TIME), ("a_int", pa.int64()), ("comment", pa.string()), ("name", pa.string())])
FLINK_WINDOWS: Mapping[str, Window] = {
    "tumble 5s": Tumbling(5 * SECOND),
    "hop 5s/10s": Hopping(10 * SECOND, 5 * SECOND),
    "session gap 3s": Session(3 * SECOND),
}
COUNT_DISTINCT = getattr(agg, "count_distinct", None)


def flink_aggregations() -> dict[str, Aggregation]:
    compared = {"rows": agg.count(), "total": agg.sum("a_int")}
    return compared if COUNT_DISTINCT is None else {**compared, "comments": COUNT_DISTINCT("comment")}


def flink_rows(rows: Iterable[Sequence[Any]]) -> list[Row]:
    return [{"at": micros(at), "a_int": a_int, "comment": comment, "name": name} for at, a_int, comment, name in rows]


def in_file_order(rows: Iterable[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)


def expected(rows: Iterable[Sequence[Any]], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    bounds = {"window_start", "window_end"}
    return sorted(
        (
            tuple(micros(value) if name in bounds else value for name, value in zip(columns, row, strict=False))
            for row in rows
        ),
        key=repr,
    )


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("name", FLINK_WINDOWS)
def test_windows_of_flink_one_row_an_epoch_and_a_restart_in_the_middle(name: str, early: bool) -> None:
    cases = cases_of("window_aggregate.json")
    (case,) = (case for case in cases["cases"] if case["name"] == name)
    window, aggregations = FLINK_WINDOWS[name], flink_aggregations()
    columns = ["name", "window_start", "window_end", *aggregations]
    if isinstance(window, Session):
        columns = ["name", "rows"]
    stream = Stream(windowed(window, aggregations, FLINK, ("name",), early=early), delay_us=SECOND)
    for row in flink_rows(cases["input"]["before"]):
        stream.epoch(table_of([row], FLINK))
    stream.epoch()
    if not early:
        assert in_file_order(stream.out, columns) == expected(case["out_before"], columns)
    for row in flink_rows(cases["input"][case["after"]]):
        stream.epoch(table_of([row], FLINK))
    stream.flush()
    assert in_file_order(stream.table(), columns) == expected([*case["out_before"], *case["out_after"]], columns)


def test_which_sliding_windows_of_bytewax_a_moment_is_in() -> None:
    cases = cases_of("sliding.json")
    step = cases["offset"] * SECOND
    window = Hopping(cases["length"] * SECOND, step)
    for case in cases["cases"]:
        assigned = window.assign(np.array([case["t"] * SECOND], dtype=np.int64))
        assert assigned.starts.tolist() == [number * step for number in case["ids"]]


SESSIONS = pa.schema([("k", pa.string()), ("at", TIME)])


@given(st.data())
@examples(20)
@pytest.mark.parametrize("early", [False, True])
def test_sessions_of_bytewax_in_any_order_and_any_epochs(early: bool, data: st.DataObject) -> None:
    cases = cases_of("session.json")
    case = data.draw(st.sampled_from(cases["cases"]))
    rows = [{"k": "a", "at": time * SECOND} for time in data.draw(st.permutations(case["ts"]))]
    gap_us = cases["gap"] * SECOND
    stream = Stream(windowed(Session(gap_us), schema=SESSIONS, early=early), delay_us=1_000 * SECOND)
    for epoch in data.draw(cuts(rows)):
        stream.epoch(table_of(epoch, SESSIONS))
    stream.flush()
    found = sorted((row["window_start"], row["window_end"] - gap_us) for row in stream.table())
    assert found == [(first * SECOND, last * SECOND) for first, last in case["sessions"]]


def cuts(rows: list[Row]) -> st.SearchStrategy[list[list[Row]]]:
    """The rows in any number of epochs, in their order."""
    places = st.lists(st.integers(0, len(rows)), max_size=len(rows)).map(sorted)
    return places.map(
        lambda edges: [rows[first:last] for first, last in zip([0, *edges], [*edges, len(rows)], strict=True)]
    )


@given(st.data())
@examples(20)
@pytest.mark.parametrize("early", [False, True])
def test_windows_of_function_stream_however_batches_are_cut(early: bool, data: st.DataObject) -> None:
    tumble, hop, sessions = cases_of("window_cases.json")["cases"]
    assert counts(tumble, Tumbling(2_000 * MILLISECOND), "campaign_id", early, data) == pairs(tumble["out"])
    assert counts(sessions, Session(2_000 * MILLISECOND), "user_id", early, data) == pairs(sessions["out"])
    hop["rows"] = [row for row in hop["rows"] if row[hop["cols"].index("campaign_id")] == 2001]
    hopping = Hopping(4_000 * MILLISECOND, 1_000 * MILLISECOND)
    found = counts(hop, hopping, "ad_id", early, data)
    assert sorted(set(found)) == pairs(hop["out_distinct"])
    assert len(found) == 4 * len(hop["rows"]), "a row is in four windows"


def counts(case: Any, window: Window, key: str, early: bool, data: st.DataObject) -> list[tuple[str, int]]:
    """The keys and counts of all windows."""
    number = case["cols"].index(key)
    rows = [{"k": str(row[number]), "at": (BASE_MS + row[0]) * MILLISECOND} for row in case["rows"]]
    stream = Stream(windowed(window, schema=SESSIONS, early=early), delay_us=1_000 * MILLISECOND)
    for epoch in data.draw(cuts(rows)):
        stream.epoch(table_of(epoch, SESSIONS))
    stream.epoch(table_of([{"k": "far", "at": (BASE_MS + 10**9) * MILLISECOND}], SESSIONS))
    stream.epoch()
    assert stream.late == []
    return sorted((row["k"], row["rows"]) for row in stream.table() if row["k"] != "far")


def pairs(rows: Iterable[tuple[Any, int]]) -> list[tuple[str, int]]:
    return sorted((str(key), number) for key, number in rows)
