import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.rows.changes_from import (
    NO_ROW,
    OUTDATED,
    REPEATED,
    TRUNCATE,
    UNORDERED,
    UNREADABLE,
    ChangesFrom,
)
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.unit.operators.keyed_streams import TIME, Row, Stream, in_any_order, replayed

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("_kind", pa.string()), ("_lsn", pa.int64()), ("at", TIME)])
TABLE = ("k", "v")


def operator(schema: pa.Schema = SCHEMA, **options: Any) -> ChangesFrom:
    options = {"output": TABLE, "sequence": ("_lsn",), **options}
    return ChangesFrom.build(("k",), InputSpec((), schema), **options)


def stream(**options: Any) -> Stream:
    return Stream(operator(**options), distinct=1)


def batch(*rows: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows of k, v, kind, lsn and, where it matters, time."""
    full = [(*row, None)[: len(schema)] for row in rows]
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in full], schema=schema)


def put(k: str | None, v: int | None, lsn: int | None, at: int | None = None) -> tuple[Any, ...]:
    return k, v, "put", lsn, at


def delete(k: str | None, lsn: int | None, at: int | None = None) -> tuple[Any, ...]:
    return k, None, "delete", lsn, at


def row(k: str, v: int | None) -> Row:
    return {"k": k, "v": v}


def test_rows_are_inserted_updated_and_deleted() -> None:
    one = stream()
    table = replayed([], one.epoch(batch(put("a", 1, 1), put("b", 2, 2), put("c", 3, 3))))
    changes = one.epoch(batch(put("a", 10, 4), delete("b", 5), put("d", None, 6)))
    assert {change["_change_type"] for change in changes} == {"insert", "update_preimage", "update_postimage", "delete"}
    table = replayed(table, changes)
    assert in_any_order(table) == in_any_order([row("a", 10), row("c", 3), row("d", None)])
    assert in_any_order(one.table()) == in_any_order(table)


def test_an_older_change_that_comes_later_is_dropped_and_counted() -> None:
    one = stream()
    one.epoch(batch(put("a", 5, 5)))
    assert one.epoch(batch(put("a", 4, 4), delete("a", 3))) == []
    assert one.counters == {OUTDATED: 2, REPEATED: 0}
    assert one.table() == [row("a", 5)]


def test_an_older_change_does_not_bring_a_deleted_row_back() -> None:
    one = stream()
    one.epoch(batch(put("a", 1, 1)))
    one.epoch(batch(delete("a", 5)))
    assert one.epoch(batch(put("a", 4, 4))) == []
    assert (one.table(), one.counters[OUTDATED]) == ([], 1)
    one.epoch(batch(put("a", 6, 6)))
    assert (one.table(), one.held()) == ([row("a", 6)], {"rows": 1, "tombstones": 0})


def test_a_delete_may_come_before_its_insert() -> None:
    one = stream()
    assert one.epoch(batch(delete("a", 5))) == []
    assert one.epoch(batch(put("a", 4, 4))) == []
    assert (one.table(), one.held()["tombstones"]) == ([], 1)


def test_the_last_of_several_changes_of_a_key_wins_in_any_order() -> None:
    one = stream()
    assert one.epoch(batch(put("a", 3, 3), delete("a", 4), put("a", 1, 1)), batch(put("a", 2, 2))) == []
    one.epoch(batch(put("a", 9, 9), delete("a", 8)), batch(put("a", 7, 7)))
    assert one.table() == [row("a", 9)]
    assert one.counters == {OUTDATED: 0, REPEATED: 0}, "within an epoch there is no order that they could break"


def test_changes_that_are_sent_again_change_nothing() -> None:
    one, sent = stream(), batch(put("a", 1, 1), put("b", 1, 2), delete("b", 3))
    one.epoch(sent)
    assert one.epoch(sent, sent) == []
    assert one.counters == {OUTDATED: 2, REPEATED: 4}
    assert one.table() == [row("a", 1)]


@pytest.mark.parametrize("other", [put("a", 2, 5), delete("a", 5)])
def test_two_changes_with_one_sequence_are_an_error_that_names_the_key(other: tuple[Any, ...]) -> None:
    message = r"two different changes of a key.*Kafka's offset\. keys=k, lsn=5$"
    with pytest.raises(InvalidPipelineError, match=message):
        stream().epoch(batch(put("a", 1, 5), put("b", 1, 9), other))
    one = stream()
    one.epoch(batch(put("a", 1, 5)))
    with pytest.raises(InvalidPipelineError, match=message):
        one.epoch(batch(other))
    one = stream()
    one.epoch(batch(delete("a", 5)))
    if other[2] == "put":
        with pytest.raises(InvalidPipelineError, match=message):
            one.epoch(batch(other))


def positions(*values: str | None) -> pa.Table:
    """Puts of one key, each at a position that is text."""
    schema = SCHEMA.set(3, pa.field("_lsn", pa.string()))
    return batch(*(("a", number, "put", value) for number, value in enumerate(values)), schema=schema)


WIDTHS = r"as text '1000' comes before '999': cast the column.*column=lsn, lengths=3, 4"


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.binary()])
def test_positions_that_are_text_have_one_length_within_an_epoch_and_between_epochs(type_: pa.DataType) -> None:
    schema = SCHEMA.set(3, pa.field("_lsn", type_))
    one = Stream(operator(schema), distinct=1)
    one.epoch(positions("0a1", "0b0").cast(schema))
    one.epoch(positions("0b1").cast(schema))
    assert one.table() == [row("a", 0)]
    for wrong in (positions("999", "1000"), positions("1000")):
        with pytest.raises(InvalidPipelineError, match=WIDTHS):
            one.epoch(wrong.cast(schema))


def test_of_two_old_changes_with_one_sequence_neither_matters() -> None:
    one = stream()
    one.epoch(batch(put("a", 9, 9), put("a", 1, 5), put("a", 2, 5)))
    assert one.table() == [row("a", 9)]


def test_ties_decide_between_changes_with_one_sequence() -> None:
    schema = SCHEMA.append(pa.field("offset", pa.int64()))
    one = Stream(operator(schema, ties=("offset",)))
    one.epoch(batch((*put("a", 1, 5), 10), (*put("a", 2, 5), 11), schema=schema))
    one.epoch(batch((*put("a", 3, 4), 99), (*put("b", 3, 4), 99), schema=schema))
    one.epoch(batch((*put("a", 0, 5), 10), schema=schema))
    assert one.counters[OUTDATED] == 0, "the sequence is the same: it was not out of order by that"
    assert in_any_order(one.table()) == in_any_order([row("a", 2), row("b", 3)])
    one.epoch(batch((*delete("a", 5), 12), schema=schema))
    assert one.table() == [row("b", 3)]


def test_several_columns_order_changes_and_null_is_less_than_any_value() -> None:
    schema = pa.schema(
        [("k", pa.string()), ("v", pa.int64()), ("_kind", pa.string()), ("f", pa.string()), ("p", pa.int64())]
    )
    one = Stream(operator(schema, sequence=("f", "p")))
    one.epoch(batch(("a", 1, "put", "binlog.2", 4), ("b", 1, "put", None, 7), schema=schema))
    one.epoch(batch(("a", 2, "put", "binlog.1", 900), ("b", 2, "put", "binlog.1", None), schema=schema))
    assert in_any_order(one.table()) == in_any_order([row("a", 1), row("b", 2)])


def test_the_sequence_may_be_a_column_of_the_table_and_is_kept_once() -> None:
    one = operator(output=("k", "v", "at"), sequence=("at",))
    assert one.pipeline.tables[0].schema.names == ["k", "v", "at", "_put_in"]
    assert one.pipeline.tables[1].schema.names == ["k", "at", "_put_in"]


def test_a_newer_change_with_equal_values_changes_nothing_but_the_sequence() -> None:
    one = stream()
    one.epoch(batch(put("a", 1, 1)))
    assert one.epoch(batch(put("a", 1, 5))) == []
    one.epoch(batch(put("a", 2, 4)))
    assert one.table() == [row("a", 1)]


def test_tombstones_expire_and_a_change_as_old_is_late_from_then_on() -> None:
    one = stream(time="at", deletes_expire_after_us=10)
    one.epoch(batch(put("a", 1, 1, 0), put("b", 1, 2, 0), delete("a", 3, 5)))
    one.epoch(batch(put("c", 1, 4, 14)))
    assert one.held()["tombstones"] == 1
    one.epoch(batch(put("a", 0, 1, 0), put("d", 1, 5, 15)))
    assert (one.late, one.counters[OUTDATED]) == ([], 1), "the tombstone is there as long as the change is not late"
    one.epoch(batch(put("a", 0, 1, 0), put("b", 2, 6, 3)))
    assert [each["k"] for each in one.late] == ["a"], "a row that is there is updated, however old the change is"
    assert one.held() == {"rows": 3, "tombstones": 0}
    one.epoch(batch(put("a", 7, 7, 16)))
    assert in_any_order(one.table()) == in_any_order([row("a", 7), row("b", 2), row("c", 1), row("d", 1)])


def test_the_time_of_a_tombstone_never_decreases() -> None:
    one = stream(time="at", deletes_expire_after_us=10)
    one.epoch(batch(delete("a", 3, 50)))
    one.epoch(batch(delete("a", 4, 20)))
    one.epoch(batch(put("b", 1, 5, 59)))
    one.epoch()
    assert one.held()["tombstones"] == 1
    one.epoch(batch(put("b", 2, 6, 60)))
    one.epoch()
    assert one.held()["tombstones"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("a", 1, TRUNCATE, 7), r"the table was truncated at its source.*rollback\(0\).*\. lsn=7$"),
        (("a", 1, UNREADABLE, None), r"a record is not a change event with this schema: correct schema="),
        (("a", 1, UNORDERED, None), r"a position in a form that is not known.*sequence='offset'"),
        (("a", 1, NO_ROW, 7), r"a change comes without its row.*REPLICA IDENTITY.*lsn=7$"),
        (("a", 1, None, 7), r"a change does not say what it does"),
        (("a", 1, "x", 7), r"unknown operation 'x': make it an insert, an update or a delete\. lsn=7$"),
        (put(None, 1, 7), r"a change has no key.*columns=k, lsn=7$"),
        (put("a", 1, None), r"a change has no position in the source's order.*sequence=\. columns=lsn"),
    ],
)
def test_a_change_that_cannot_be_applied_is_an_error(change: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        stream().epoch(batch(put("b", 1, 1), (*change, None)[:5]))


@pytest.mark.parametrize("at", [None, 1 << 62])
def test_a_delete_without_a_valid_time_is_an_error_where_tombstones_expire(at: int | None) -> None:
    one = stream(time="at", deletes_expire_after_us=10)
    with pytest.raises(InvalidPipelineError, match=r"a delete has no valid time.*column=at, lsn=2$"):
        one.epoch(batch(put("b", 1, 1), delete("a", 2, at)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence": ()}, "changes need an order"),
        ({"sequence": ("k",)}, "sequence= must name columns outside the key"),
        ({"sequence": ("_lsn", "_lsn")}, "each only once"),
        ({"sequence": ("nothing",)}, "the input has no such column"),
        ({"deletes_expire_after_us": 10}, "changes_from with expire_after needs event time"),
        ({"deletes_expire_after_us": 0, "time": "at"}, "must be a length of time above zero"),
        ({"schema": pa.schema([*list(SCHEMA)[:3], ("_lsn", pa.list_(pa.int64()))])}, "values that have an order"),
        ({"schema": pa.schema([("k", pa.float64()), *list(SCHEMA)[1:]])}, "keys are integers, strings"),
        ({"schema": SCHEMA.append(pa.field("_put_in", pa.int64())), "output": (*TABLE, "_put_in")}, "rename yours"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_defined(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        operator(**options)


def test_a_new_column_of_the_table_is_named_as_a_breaking_change() -> None:
    wider = SCHEMA.append(pa.field("city", pa.string()))
    now = operator(wider, output=(*TABLE, "city")).pipeline
    assert "column city was added" in breaking_changes(operator().pipeline, now)
