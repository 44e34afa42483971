import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.process import (
    KeyedState,
    ListState,
    ProcessContext,
    ProcessFunction,
    StateKind,
    ValueState,
)
from tests.unit.operators.process_streams import TIME, ProcessStream, plain, rows

VALUE = pa.schema([("n", pa.int64()), pa.field("s", pa.string())])
ITEM = pa.schema([pa.field("i", pa.int64(), nullable=False)])
Work = Callable[[pa.Table, KeyedState], object]


@dataclass(frozen=True)
class Doing(ProcessFunction):
    """Runs the code of a test."""

    work: Work

    output = pa.schema([("k", pa.string())])
    state: ClassVar[dict[str, StateKind]] = {
        "value": ValueState(VALUE),
        "items": ListState(ITEM),
        "keys": ValueState(pa.schema([])),
    }
    timers_within = timedelta(0)

    def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        self.work(rows, state)

    def on_watermark(self, timers: pa.Table, state: KeyedState, context: ProcessContext) -> None:
        self.work(timers, state)


def do(work: Work, *, on: pa.Table | None = None, before: Work | None = None) -> ProcessStream:
    """Have the work done on some rows; `before` in an epoch of its own."""
    on = rows(("a", 1, 5), ("b", 2, 5), ("a", 3, 5), (None, 4, 5)) if on is None else on
    steps = [before or (lambda rows, state: None), work]
    stream = ProcessStream(Doing(lambda rows, state: steps[0](rows, state)))  # noqa: PLW0108  (they change)
    stream.epoch(on)
    del steps[0]
    stream.epoch(on)
    return stream


def values(*given: tuple[str | None, int | None, str | None]) -> pa.Table:
    columns = list(zip(*given, strict=True))
    types = (pa.string(), pa.int64(), pa.string())
    return pa.table({name: pa.array(c, t) for name, c, t in zip("kns", columns, types, strict=True)})


def items(*given: tuple[str | None, int | None]) -> pa.Table:
    keys, numbers = zip(*given, strict=True)
    return pa.table({"k": pa.array(keys, pa.string()), "i": pa.array(numbers, pa.int64())})


def keys(*given: str | None) -> pa.Table:
    return pa.table({"k": pa.array(given, pa.string())})


def put_some(rows: pa.Table, state: KeyedState) -> None:
    state.value("value").put(values(("b", 7, "x"), (None, None, "y")))
    state.list("items").append(items(("a", 1), ("b", 2), ("a", 3), (None, 4)))


def test_a_get_answers_for_each_row_in_its_order_also_for_keys_asked_twice() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        assert plain(state.value("value").get(rows)) == [
            {"n": None, "s": None, "_present": False},
            {"n": 7, "s": "x", "_present": True},
            {"n": None, "s": None, "_present": False},
            {"n": None, "s": "y", "_present": True},
        ]
        asked = state.value("value").get(keys("b", "a", "b"))
        assert asked["n"].to_pylist() == [7, None, 7]
        assert asked["_present"].to_pylist() == [True, False, True]

    do(work, before=put_some)


def test_a_put_replaces_and_is_seen_by_the_next_get() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        state.value("value").put(values(("b", 8, None), ("a", 1, "z")))
        assert state.value("value").get(keys("a", "b", None))["n"].to_pylist() == [1, 8, None]
        state.value("value").put(values(("b", 9, None)).select(["s", "n", "k"]))
        assert state.value("value").get(keys("b"))["n"].to_pylist() == [9]

    stream = do(work, before=put_some)
    assert {(row["k"], row["n"]) for row in stream.table("state_value")} == {("a", 1), ("b", 9), (None, None)}


def test_a_delete_forgets_and_needs_nothing_to_be_there() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        state.value("value").delete(keys("b", "a", "b"))
        assert state.value("value").get(rows)["_present"].to_pylist() == [False, False, False, True]
        state.value("value").put(values(("b", 1, "again")))

    stream = do(work, before=put_some)
    assert {(row["k"], row["s"]) for row in stream.table("state_value")} == {("b", "again"), (None, "y")}


def test_a_value_state_without_columns_is_a_set_of_keys() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        assert state.value("keys").get(rows)["_present"].to_pylist() == [False] * 4
        state.value("keys").put(keys("a", None))
        assert state.value("keys").get(rows)["_present"].to_pylist() == [True, False, True, True]

    do(work)


def test_a_list_gives_all_rows_of_each_key_with_the_position_that_asked() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        found = [(row["_key"], row["i"]) for row in plain(state.list("items").get(rows))]
        assert sorted(found) == [(0, 1), (0, 3), (1, 2), (2, 1), (2, 3), (3, 4)]
        assert [key for key, _ in found] == sorted(key for key, _ in found), "key after key"

    do(work, before=put_some)


def test_a_list_grows_and_is_cleared_and_grows_again() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        some = state.list("items")
        some.append(items(("a", 5), ("a", 1)))
        assert sorted(some.get(keys("a"))["i"].to_pylist()) == [1, 1, 3, 5]
        some.clear(keys("a", None, "a"))
        assert some.get(rows)["_key"].to_pylist() == [1]
        some.clear(keys("a"))
        some.append(items(("a", 9)))
        some.append(items(("a", 8), ("b", 8)))
        assert sorted(some.get(keys("a"))["i"].to_pylist()) == [8, 9]

    stream = do(work, before=put_some)
    assert sorted((row["k"], row["i"]) for row in stream.table("state_items")) == [
        ("a", 8),
        ("a", 9),
        ("b", 2),
        ("b", 8),
    ]
    assert sorted((row["k"], row["_rows"]) for row in stream.table("size_items")) == [("a", 2), ("b", 2)]


def test_no_keys_are_an_empty_result() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        none = rows.slice(0, 0)
        assert state.value("value").get(none).num_rows == 0
        assert state.list("items").get(none).num_rows == 0
        assert state.list("items").get(rows).column_names == ["_key", "i"]
        state.list("items").append(items(("a", 1)).slice(0, 0))
        state.value("value").put(values(("a", 1, "")).slice(0, 0))
        state.value("value").delete(none)
        state.list("items").clear(none)
        state.timers.set(none, none["at"])

    stream = do(work)
    assert [name for name, table in stream.state.tables.items() if table.rows] == []


def test_keys_of_several_columns_and_types() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.bool_()), ("c", pa.decimal128(9, 2)), ("at", TIME)])
    some = pa.table([[1, 1, None, 1], [True, None, None, True], [None, 2, None, None], [0, 0, 0, 0]], schema=schema)

    class Counting(ProcessFunction):
        output = pa.schema([("n", pa.int64())])
        state: ClassVar[dict[str, StateKind]] = {"n": ValueState(pa.schema([("n", pa.int64())]))}

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> pa.Table:
            new = rows.group_by(["a", "b", "c"]).aggregate([([], "count_all")])
            before = state.value("n").get(new)["n"].fill_null(0)
            totals = pa.array([x + y for x, y in zip(before.to_pylist(), new["count_all"].to_pylist(), strict=True)])
            state.value("n").put(new.select(["c", "b", "a"]).append_column("n", totals))
            return pa.table({"n": state.value("n").get(rows)["n"]})

    stream = ProcessStream(Counting(), keys=("a", "b", "c"), schema=schema)
    assert [row["n"] for row in stream.epoch(some)] == [2, 1, 1, 2]
    assert [row["n"] for row in stream.epoch(some.slice(1, 2))] == [2, 2]


REFUSED: dict[str, tuple[Work, str]] = {
    "a key of another call": (
        lambda rows, state: state.value("value").get(keys("a", "z", "y")),
        "take the keys from there. key={'k': 'z'}, others=1, state=value, operator=process, method=Doing.on_rows",
    ),
    "a put for a key of another call": (
        lambda rows, state: state.value("value").put(values(("z", 1, ""))),
        "key={'k': 'z'}, others=0, state=value",
    ),
    "an append for a key of another call": (
        lambda rows, state: state.list("items").append(items(("z", 1))),
        "key={'k': 'z'}, others=0, state=items",
    ),
    "a timer for a key of another call": (
        lambda rows, state: state.timers.set(keys("z"), rows["at"].slice(0, 1)),
        "key={'k': 'z'}, others=0, operator=process",
    ),
    "a key that is put twice": (
        lambda rows, state: state.value("value").put(values(("b", 1, ""), ("a", 1, ""), ("a", 2, ""))),
        "put more than once: combine its rows first, or use a ListState. key={'k': 'a'}, state=value",
    ),
    "keys without their column": (
        lambda rows, state: state.value("value").get(rows.select(["v"])),
        "this column is missing: add it. column=k, columns=v, state=value",
    ),
    "keys of another type": (
        lambda rows, state: state.value("value").get(pa.table({"k": [1]})),
        "cast it, or declare it so. column=k, type=int64, declared=string, state=value",
    ),
    "a column twice": (
        lambda rows, state: state.value("value").get(pa.table([["a"], ["a"]], names=["k", "k"])),
        "several columns have this name: rename all but one. column=k",
    ),
    "a value without its column": (
        lambda rows, state: state.value("value").put(values(("a", 1, "")).drop_columns(["s"])),
        "this column is missing: add it. column=s, columns=k, n, state=value",
    ),
    "a value of another type": (
        lambda rows, state: state.value("value").put(values(("a", 1, "")).set_column(1, "n", pa.array([1.0]))),
        "column=n, type=double, declared=int64",
    ),
    "a value with a column too many": (
        lambda rows, state: state.value("value").put(values(("a", 1, "")).append_column("m", pa.array([1]))),
        "this column has no place here: leave it out. column=m, columns=k, n, s",
    ),
    "a null that must not be": (
        lambda rows, state: state.list("items").append(items(("a", 1), ("b", None))),
        "declared without nulls and has some: fill them, or declare it nullable. column=i, nulls=1, state=items",
    ),
    "no table": (
        lambda rows, state: state.value("value").get(rows["k"]),
        "give a pyarrow.Table. given=ChunkedArray, state=value",
    ),
    "a state that was not declared": (
        lambda rows, state: state.value("valeu"),
        "add it to its `state`. state=valeu, declared=value, items, keys, operator=process",
    ),
    "a list as a value": (lambda rows, state: state.value("items"), "use state.list(name). state=items"),
    "a value as a list": (lambda rows, state: state.list("value"), "use state.value(name). state=value"),
    "times of another type": (
        lambda rows, state: state.timers.set(rows, rows["v"]),
        "cast them. type=int64, needed=timestamp[us, tz=UTC], operator=process",
    ),
    "more times than keys": (
        lambda rows, state: state.timers.set(keys("a"), rows["at"]),
        "give each key a time. keys=1, times=4",
    ),
    "times that are no column": (
        lambda rows, state: state.timers.set(rows, [1, 2, 3, 4]),
        "give times as an Arrow column. given=list",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_an_error_that_names_it(what: str) -> None:
    work, message = REFUSED[what]
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        do(work)


def test_a_timer_cannot_set_itself_again_for_ever() -> None:
    def work(rows: pa.Table, state: KeyedState) -> None:
        times = rows["_time" if "_time" in rows.column_names else "at"]
        state.timers.set(rows, times)

    with pytest.raises(
        InvalidPipelineError,
        match=re.escape(
            "set the next one for a later time, or the watermark would never get past it. key={'k': 'a'}, "
            "time=1970-01-01 00:00:00.000005Z, operator=process, method=Doing.on_watermark"
        ),
    ):
        do(work, on=rows(("a", 1, 5)))


def test_a_function_that_declares_no_timers_cannot_set_them() -> None:
    class Forgetful(ProcessFunction):
        output = pa.schema([("k", pa.string())])

        def on_rows(self, rows: pa.Table, state: KeyedState, context: ProcessContext) -> Any:
            state.timers.set(rows, rows["at"])

    with pytest.raises(InvalidPipelineError, match="give its class `timers_within`, such as"):
        ProcessStream(Forgetful()).epoch(rows(("a", 1, 1)))
