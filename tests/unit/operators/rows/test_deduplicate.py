import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.rows.deduplicate import DUPLICATES, Deduplicate
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.keyed_streams import TIME, Row, Stream, in_any_order, replayed

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", TIME)])
EXPIRING: dict[str, Any] = {"event_time": "at", "expire_after_us": 10}


def stream(schema: pa.Schema = SCHEMA, delay_us: int = 0, **options: Any) -> Stream:
    return Stream(Deduplicate.build(("k",), InputSpec((), schema), **options), delay_us, distinct=1)


def batch(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def row(k: str | None, v: int | None, at: int | None) -> Row:
    return {"k": k, "v": v, "at": at}


def test_the_first_row_stays_also_where_an_earlier_one_comes_in_a_later_epoch() -> None:
    one = stream(event_time="at")
    assert one.epoch(batch(("a", 1, 5), ("a", 2, 4)), batch(("a", 3, 6), (None, 4, None))) == [
        {**row("a", 2, 4), "_change_type": "insert"},
        {**row(None, 4, None), "_change_type": "insert"},
    ]
    assert one.epoch(batch(("a", 9, 0), (None, 0, 0))) == []
    assert in_any_order(one.table()) == in_any_order([row("a", 2, 4), row(None, 4, None)])


def test_within_an_epoch_a_row_without_event_time_comes_last() -> None:
    one = stream(event_time="at")
    one.epoch(batch(("a", 1, None)), batch(("a", 2, 5)), batch(("a", 0, None)))
    assert one.table() == [row("a", 2, 5)]


def test_without_event_time_the_first_row_of_an_epoch_goes_by_the_other_columns_nulls_last() -> None:
    one = stream()
    one.epoch(batch(("a", None, 1)), batch(("a", 7, 9), ("a", 7, None)), batch(("a", 8, 0)))
    assert one.table() == [row("a", 7, 9)]


def test_the_newest_row_wins_whatever_epoch_it_came_in() -> None:
    one = stream(keep="last", event_time="at")
    table = replayed([], one.epoch(batch(("a", 1, 5), ("a", 2, 4), ("b", 1, None))))
    assert in_any_order(table) == in_any_order([row("a", 1, 5), row("b", 1, None)])
    assert one.epoch(batch(("a", 3, 4), ("b", 0, None))) == []
    table = replayed(table, one.epoch(batch(("a", 3, 6)), batch(("b", 0, 1), ("b", 2, None))))
    assert in_any_order(table) == in_any_order([row("a", 3, 6), row("b", 0, 1)]) == in_any_order(one.table())


def test_of_rows_of_one_time_the_last_by_the_other_columns_is_the_newest() -> None:
    one = stream(keep="last", event_time="at")
    one.epoch(batch(("a", 1, 5)))
    one.epoch(batch(("a", None, 5)))
    assert one.table() == [row("a", 1, 5)]
    one.epoch(batch(("a", 2, 5)))
    assert one.table() == [row("a", 2, 5)]


def test_a_key_comes_out_once_in_a_life() -> None:
    one = stream(**EXPIRING)
    assert one.operator.pipeline.appends
    assert one.epoch(batch(("a", 1, 5), ("a", 2, 4))) == [row("a", 2, 4)]
    assert one.epoch(batch(("a", 3, 13))) == []  # the watermark was 5: forgotten when it reaches 14
    assert one.epoch(batch(("b", 1, 14))) == [row("b", 1, 14)]
    assert one.held() == {"seen": 2, "new": 0}
    assert one.epoch(batch(("a", 4, 14))) == [row("a", 4, 14)]
    assert in_any_order(one.table()) == in_any_order([row("a", 2, 4), row("b", 1, 14), row("a", 4, 14)])


def test_forgotten_keys_leave_the_state_also_in_an_epoch_without_rows() -> None:
    one = stream(**EXPIRING)
    one.epoch(batch(("a", 1, 0), ("b", 1, 20)))
    assert one.held() == {"seen": 2, "new": 0}
    assert one.epoch() == []
    assert one.held() == {"seen": 1, "new": 0}


@pytest.mark.parametrize("keep", ["first", "last"])
def test_rows_below_the_watermark_and_rows_without_time_are_late_where_keys_are_forgotten(keep: str) -> None:
    one = stream(keep=keep, delay_us=2, **EXPIRING)
    one.epoch(batch(("a", 1, 10), ("a", 2, None)))
    assert one.late == [row("a", 2, None)]
    one.epoch(batch(("b", 1, 7), ("b", 2, 8), ("c", 3, None)))
    assert one.late[1:] == [row("b", 1, 7), row("c", 3, None)]
    assert in_any_order(one.table()) == in_any_order([row("a", 1, 10), row("b", 2, 8)])


def test_the_newest_row_leaves_the_table_when_its_time_has_come() -> None:
    one = stream(keep="last", **EXPIRING)
    table = replayed([], one.epoch(batch(("a", 1, 0), ("b", 1, 5))))
    table = replayed(table, one.epoch(batch(("a", 2, 9))))
    assert one.held() == {"rows": 2, "expiries": 2}
    table = replayed(table, one.epoch(batch(("b", 2, 15))))
    assert in_any_order(table) == in_any_order([row("a", 2, 9), row("b", 2, 15)])
    assert one.epoch(batch(("c", 1, 19))) == [{**row("c", 1, 19), "_change_type": "insert"}]
    assert one.epoch() == [{**row("a", 2, 9), "_change_type": "delete"}]
    assert one.held() == {"rows": 2, "expiries": 2}
    assert one.epoch(batch(("a", 3, 40))) == [{**row("a", 3, 40), "_change_type": "insert"}]
    assert {change["_change_type"] for change in one.epoch()} == {"delete"}
    assert one.held() == {"rows": 1, "expiries": 1}


def test_a_key_whose_time_has_come_and_that_comes_again_in_that_epoch_is_an_update() -> None:
    one = stream(keep="last", **EXPIRING)
    one.epoch(batch(("a", 1, 0), ("b", 1, 50)))
    assert [change["_change_type"] for change in one.epoch(batch(("a", 2, 50)))] == [
        "update_preimage",
        "update_postimage",
    ]
    assert one.held() == {"rows": 2, "expiries": 2}


@pytest.mark.parametrize(
    "options", [{}, {"keep": "last", "event_time": "at"}, {"event_time": "at", "expire_after_us": 9}]
)
def test_duplicates_are_counted_however_the_rows_are_cut(options: dict[str, Any]) -> None:
    rows = [("a", 1, 5), ("a", 2, 4), ("b", 1, 5), ("a", 1, 5)]
    whole, cut = stream(**options), stream(**options)
    whole.epoch(batch(*rows))
    cut.epoch(*(batch(each) for each in rows))
    assert whole.counters == cut.counters == {DUPLICATES: 2}


def test_floats_that_are_equal_but_not_identical_are_ordered_in_one_way() -> None:
    schema = pa.schema([("k", pa.string()), ("x", pa.float64())])
    for values in ([0.0, -0.0], [-0.0, 0.0]):
        one = stream(schema)
        one.epoch(*(batch(("a", value), schema=schema) for value in values))
        assert repr(one.table()) == repr([{"k": "a", "x": -0.0}])


NESTED = pa.list_(pa.struct([("x", pa.int64()), ("tags", pa.map_(pa.string(), pa.float32()))]))


@pytest.mark.parametrize(
    ("type_", "ascending"),
    [
        (pa.null(), [None]),
        (pa.binary(), [b"", b"a", None]),
        (pa.decimal128(9, 2), [-1, 1, None]),
        (pa.duration("us"), [-1, 1, None]),
        (pa.time64("us"), [1, 2, None]),
        (pa.list_(pa.string()), [[], ["a"], ["a", "b"], ["a", None], ["b"], [None], None]),
        (pa.large_list(pa.int64()), [[], [-5], [3], None]),
        (pa.list_(pa.int16(), 2), [[1, 2], [2, 1], [None, 0], None]),
        (
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            [{"x": 1, "y": "b"}, {"x": 2, "y": "a"}, {"x": 2}, {"y": "z"}],
        ),
        (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", 2)], [("b", 0)], None]),
        (NESTED, [[], [{"x": 1, "tags": []}], [{"x": 1, "tags": [("a", 0.5)]}], [{"x": 2}], [None], None]),
    ],
)
def test_rows_of_every_type_have_an_order(type_: pa.DataType, ascending: list[Any]) -> None:
    schema = pa.schema([("k", pa.string()), ("x", type_)])
    every = [batch(("a", value), schema=schema) for value in ascending]
    for first in range(len(every)):
        for order in (every[first:], every[first:][::-1]):
            one = stream(schema)
            one.epoch(*order)
            assert one.table() == every[first].to_pylist()
            whole = stream(schema)
            whole.epoch(pa.concat_tables(order).combine_chunks())
            assert whole.table() == one.table()


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ((), {}, "call key_by"),
        (("x",), {}, "key=x, type=double"),
        (("k",), {"keep": "newest"}, "keep must be 'first' or 'last'. keep='newest'"),
        (("k",), {"keep": "last"}, "keep='last' needs an order: call with_watermark(column, delay)"),
        (("k",), {"expire_after_us": 5}, "with expire_after needs event time: call with_watermark(column, delay)"),
        (("k",), {"event_time": "k"}, "event time must be a timestamp: cast the column. column=k"),
        (("k",), {"event_time": "at", "expire_after_us": 0}, "above zero. step=deduplicate, expire_after_us=0"),
        (("k",), {"late": "keep"}, "without expire_after no row is ever too late"),
        (("k",), {"late": "later", **EXPIRING}, "late='drop' or late='keep'. late='later'"),
        (("k",), {"keep": "last", **EXPIRING, "schema": "_hash"}, "rename yours. column=_hash"),
        (("k",), {"schema": "_first_epoch"}, "rename yours. column=_first_epoch"),
        (("k",), {**EXPIRING, "schema": "_new_in"}, "rename yours. column=_new_in"),
        (("k",), {"schema": "_epoch"}, "the change log adds this column itself: rename yours. column=_epoch"),
    ],
)
def test_what_cannot_work_is_refused(keys: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    more = [(options.pop("schema"), pa.int64())] if "schema" in options else []
    schema = pa.schema([("k", pa.string()), ("x", pa.float64()), ("at", TIME), *more])
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        Deduplicate.build(keys, InputSpec((), schema), **options)


def test_a_column_whose_values_have_no_order_is_refused() -> None:
    schema = pa.schema([("k", pa.string()), ("x", pa.list_(pa.dictionary(pa.int8(), pa.string())))])
    with pytest.raises(InvalidPipelineError, match=r"leave it out. column=x, type=list"):
        Deduplicate.build(("k",), InputSpec((), schema))


def test_late_rows_have_a_table_where_they_are_kept() -> None:
    operator = Deduplicate.build(("k",), InputSpec((), SCHEMA), late="keep", **EXPIRING)
    assert [table.name for table in operator.pipeline.tables] == ["seen", "new", "_late_0"]


VERSIONED = pa.schema([("k", pa.string()), ("version", pa.int64()), ("v", pa.int64()), ("at", TIME)])


def versioned(*rows: tuple[Any, ...]) -> pa.Table:
    return batch(*rows, schema=VERSIONED)


def test_ties_of_the_newest_row_go_by_the_first_other_column_that_differs_and_nulls_lose() -> None:
    rows = [("a", None, 9, 5), ("a", 1, None, 5), ("a", 1, 2, 5)]
    for cut in ([rows], [rows[2:], rows[:2]], [[each] for each in rows]):
        one = stream(VERSIONED, keep="last", event_time="at")
        for each in cut:
            one.epoch(versioned(*each))
        assert one.table() == [{"k": "a", "version": 1, "v": 2, "at": 5}]


def test_the_newest_row_by_a_version_wins_whatever_its_event_time_and_its_epoch() -> None:
    one = stream(VERSIONED, keep="last", by=("version",))
    one.epoch(versioned(("a", 2, 1, 50), ("b", None, 1, 9)))
    assert one.epoch(versioned(("a", 1, 2, 90))) == [], "an older version that comes later"
    one.epoch(versioned(("a", 3, 3, 10), ("b", 0, 2, 1)))
    assert in_any_order(one.table()) == in_any_order(
        [{"k": "a", "version": 3, "v": 3, "at": 10}, {"k": "b", "version": 0, "v": 2, "at": 1}]
    )


def test_rows_of_one_version_go_by_their_event_time_then_by_the_other_columns() -> None:
    one = stream(VERSIONED, keep="last", event_time="at", by=("version",))
    one.epoch(versioned(("a", 1, 9, 4), ("a", 1, 3, 5), ("a", 1, 2, 5)))
    assert one.table() == [{"k": "a", "version": 1, "v": 3, "at": 5}]


def test_the_first_row_of_an_epoch_goes_by_the_columns_named_too() -> None:
    one = stream(VERSIONED, event_time="at", by=("v", "version"))
    one.epoch(versioned(("a", 1, 2, 1), ("a", 2, 1, 9), ("a", 1, 1, 9)))
    assert one.table() == [{"k": "a", "version": 1, "v": 1, "at": 9}]


def test_an_earlier_row_of_a_later_epoch_takes_the_place_by_the_columns_named() -> None:
    one = stream(VERSIONED, by=("version", "v"))
    one.epoch(versioned(("a", 5, 1, 1)))
    one.epoch(versioned(("a", 4, 9, 2)))
    one.epoch(versioned(("a", 4, 8, 3)))
    assert one.epoch(versioned(("a", 4, 8, 4), ("a", 6, 0, 0))) == [], (
        "a later one that ties comes after by its columns"
    )
    assert one.table() == [{"k": "a", "version": 4, "v": 8, "at": 3}]


def test_the_first_row_that_is_seen_stays_without_columns_named() -> None:
    one = stream(VERSIONED, event_time="at")
    one.epoch(versioned(("a", 5, 1, 9)))
    assert one.epoch(versioned(("a", 4, 0, 1))) == []


def test_a_changed_order_is_a_changed_pipeline_and_none_is_the_pipeline_of_before() -> None:
    def pipeline(*by: str) -> Pipeline:
        return Deduplicate.build(("k",), InputSpec((), VERSIONED), "last", "at", by=by).pipeline

    assert pipeline().parameters == {"keep": "last", "event_time": "at", "expire_after_us": None, "late": "drop"}
    assert breaking_changes(pipeline(), pipeline("version")) == ("by was added",)
    assert breaking_changes(pipeline("v"), pipeline("v", "version")) == ('by was ["v"], now it is ["v", "version"]',)
    assert breaking_changes(pipeline("v"), pipeline("v")) == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": "last"}, "deduplicate with keep='last' needs an order: .* name the columns that say which row"),
        ({"by": ("versoin",)}, "the input has no such column.* column=versoin, use=deduplicate by="),
        ({"by": ("k",)}, "by columns other than the key's, each once. column=k, by=k, keys=k"),
        ({"by": ("v", "v")}, "each once. column=v"),
        (
            {"keep": "last", "by": ("version",), **EXPIRING},
            "a row that is newer by= another column may have an earlier one: .* by=version, event_time=at",
        ),
        ({"by": ("version",), **EXPIRING}, "comes out and stays, .*: leave one of the two out. by=version"),
    ],
)
def test_an_order_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        stream(VERSIONED, **options)


def test_an_order_that_begins_with_the_event_time_may_expire() -> None:
    one = stream(VERSIONED, keep="last", by=("at", "v"), **EXPIRING)
    one.epoch(versioned(("a", 9, 1, 5), ("a", 1, 2, 5)))
    assert one.table() == [{"k": "a", "version": 1, "v": 2, "at": 5}]
    one.epoch(versioned(("b", 1, 1, 20)))
    one.epoch()
    assert [row["k"] for row in one.table()] == ["b"]
