import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators.column_lineage import columns_read
from dagster_ckpt.operators.joins.regular.regular_join import RegularJoin
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.unit.operators.changing_streams import TWO_TASKS, Changing, Row, again, bag_of
from tests.unit.operators.joins.regular.joined_tables import KIND, LEFT, RIGHT_OTHER, TYPES, Joined, regular_join

ON_K = (("k",), ("k",))
L = pa.schema([("k", pa.string()), ("x", pa.int64())])
R = pa.schema([("k", pa.string()), ("y", pa.int64())])


def left(k: str | None, x: int | None = 0) -> Row:
    return {"k": k, "x": x}


def right(k: str | None, y: int | None = 0) -> Row:
    return {"k": k, "y": y}


def pair(k: str | None, x: int | None, y: int | None) -> Row:
    return {"k": k, "x": x, "y": y}


def inserted(row: Row) -> Row:
    return {**row, "_change_type": "insert"}


def deleted(row: Row) -> Row:
    return {**row, "_change_type": "delete"}


def on_k(how: str, changes: tuple[bool, bool] = (True, True), **options: Any) -> Joined:
    return Joined(regular_join(how, changes, (L, R), ON_K), **options)


def test_a_row_meets_its_partner_however_late_it_comes() -> None:
    one = on_k("inner", (False, False))
    assert one.epoch((0, "+", left("a", 1)), (1, "+", right("b", 2))) == []
    assert one.epoch() == []
    assert one.epoch((1, "+", right("a", 3))) == [inserted(pair("a", 1, 3))]
    assert one.epoch((0, "+", left("b", 4))) == [inserted(pair("b", 4, 2))]


def test_a_partner_that_goes_takes_its_pairs_along() -> None:
    one = on_k("inner")
    one.epoch((0, "+", left("a", 1)), (0, "+", left("a", 2)), (1, "+", right("a", 3)))
    assert bag_of(one.epoch((1, "-", right("a", 3)))) == bag_of([deleted(pair("a", 1, 3)), deleted(pair("a", 2, 3))])


def test_both_sides_change_one_key_in_one_epoch() -> None:
    one = on_k("inner")
    one.epoch((0, "+", left("a", 1)), (1, "+", right("a", 1)))
    changes = one.epoch(
        (0, "-", left("a", 1)), (0, "+", left("a", 2)), (1, "-", right("a", 1)), (1, "+", right("a", 2))
    )
    assert bag_of(changes) == bag_of([deleted(pair("a", 1, 1)), inserted(pair("a", 2, 2))])


def test_a_row_that_came_and_went_in_one_epoch_is_nothing() -> None:
    one = on_k("full")
    one.epoch((1, "+", right("a", 1)))
    assert one.epoch((0, "+", left("a", 1)), (0, "-", left("a", 1)), size=1) == []
    assert one.stream.held() == {
        "left_rows": 0, "left_index": 0, "right_rows": 1, "right_index": 1, "counts": 1,
        "left_arrivals": 0, "right_arrivals": 0,
    }  # fmt: skip


def test_a_row_that_came_twice_and_went_once_is_there_once() -> None:
    one = on_k("inner")
    one.epoch((1, "+", right("a", 1)))
    assert one.epoch((0, "+", left("a")), (0, "+", left("a")), (0, "-", left("a"))) == [inserted(pair("a", 0, 1))]
    one.epoch((0, "+", left("a")))
    assert one.bag == bag_of([pair("a", 0, 1)] * 2)
    assert one.stream.held()["left_rows"] == 1, "equal rows of an input that changes are one row with a count"


def test_a_key_that_changes_is_a_delete_at_one_and_an_insert_at_the_other() -> None:
    one = on_k("left", tasks=TWO_TASKS)
    one.epoch((0, "+", left("a", 1)), (1, "+", right("a", 5)), (1, "+", right("b", 6)))
    assert bag_of(one.epoch((0, "-", left("a", 1)), (0, "+", left("b", 1)))) == bag_of(
        [deleted(pair("a", 1, 5)), inserted(pair("b", 1, 6))]
    )


@pytest.mark.parametrize("how", ["left", "full"])
def test_an_unmatched_row_is_there_until_a_partner_comes_and_again_when_the_last_has_gone(how: str) -> None:
    one = on_k(how)
    assert one.epoch((0, "+", left("a", 1))) == [inserted(pair("a", 1, None))]
    changes = one.epoch((1, "+", right("a", 2)), (1, "+", right("a", 3)))
    assert bag_of(changes) == bag_of([deleted(pair("a", 1, None)), *(inserted(pair("a", 1, y)) for y in (2, 3))])
    assert one.epoch((1, "-", right("a", 2))) == [deleted(pair("a", 1, 2))]
    assert bag_of(one.epoch((1, "-", right("a", 3)))) == bag_of(
        [deleted(pair("a", 1, 3)), inserted(pair("a", 1, None))]
    )


def test_a_partner_of_nulls_looks_like_none_and_changes_nothing() -> None:
    one = on_k("left")
    one.epoch((0, "+", left("a", 1)))
    assert one.epoch((1, "+", right("a", None))) == []
    assert one.epoch((1, "+", right("a", None))) == [inserted(pair("a", 1, None))], "it is there twice now"
    assert one.epoch((1, "-", right("a", None)), (1, "-", right("a", None))) == [deleted(pair("a", 1, None))]


def test_unmatched_rows_of_both_sides_may_be_equal() -> None:
    one = on_k("full")
    one.epoch((0, "+", left("a", None)), (0, "+", left(None, None)))
    assert one.epoch((0, "-", left("a", None)), (1, "+", right("a", None))) == []
    assert one.epoch((0, "-", left(None, None)), (1, "+", right(None, None))) == []


@pytest.mark.parametrize(
    ("how", "left_rows", "right_rows"),
    [("inner", 0, 0), ("left", 1, 0), ("right", 0, 1), ("full", 1, 1), ("semi", 0, 0), ("anti", 1, 0)],
)
def test_a_null_key_matches_nothing_and_is_kept_nowhere(how: str, left_rows: int, right_rows: int) -> None:
    one = on_k(how)
    changes = one.epoch((0, "+", left(None, 1)), (1, "+", right(None, 2)))
    wanted = [{"k": None, "x": 1}, {"k": None, "y": 2}]
    assert len(changes) == left_rows + right_rows
    assert all(any(each.items() <= change.items() for each in wanted) for change in changes)
    assert set(one.stream.held().values()) == {0}
    assert len(one.epoch((0, "-", left(None, 1)), (1, "-", right(None, 2)))) == left_rows + right_rows


def test_a_semi_join_has_a_row_once_and_an_anti_join_the_others() -> None:
    semi, anti = on_k("semi"), on_k("anti")
    for one, there in ((semi, False), (anti, True)):
        assert one.epoch((0, "+", left("a", 1)), (0, "+", left("a", 1))) == [inserted(left("a", 1))] * 2 * there
        before, after = (deleted, inserted) if there else (inserted, deleted)
        assert one.epoch((1, "+", right("a", 1)), (1, "+", right("a", 2))) == [before(left("a", 1))] * 2
        assert one.epoch((1, "-", right("a", 1))) == []
        assert one.epoch((1, "-", right("a", 2))) == [after(left("a", 1))] * 2
        assert one.stream.pipeline.inputs[1].schema.names == ["k", "_change_type"], "of the right the key is enough"
        assert "right_rows" not in one.stream.held()


def test_all_rows_of_a_key_meet_whatever_comes_beside_them() -> None:
    one = on_k("inner", piece=1)
    keys = [f"key {number}" for number in range(20)]
    one.epoch(*((0, "+", left(key, 1)) for key in keys), *((1, "+", right(key, 1)) for key in keys))
    changes = one.epoch(*((0, "-", left(key, 1)) for key in keys), *((1, "+", right(key, 2)) for key in keys[10:]))
    assert bag_of(changes) == bag_of(deleted(pair(key, 1, 1)) for key in keys)


@pytest.mark.parametrize("how", TYPES)
def test_a_join_of_a_table_with_itself(how: str) -> None:
    one = Joined(regular_join(how, schemas=(LEFT, RIGHT_OTHER), keys=(("k",), ("m",))), True)
    for key in "aab":
        row = {"k": key, "i": 1, "x": 2}
        one.epoch((0, "+", row), (1, "+", {"m": key, "j": 1, "y": 2.0}))
    one.epoch((0, "-", {"k": "a", "i": 1, "x": 2}), (1, "-", {"m": "a", "j": 1, "y": 2.0}))


@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("tasks", [(), TWO_TASKS], ids=["dicts", "engine"])
def test_many_partners_are_joined_in_pieces(how: str, tasks: Any) -> None:
    one = on_k(how, tasks=tasks, memory_bytes=1 << 14)
    lefts, rights = [left("a", x) for x in range(60)], [right("a", y) for y in range(70)]
    one.epoch(*((0, "+", row) for row in lefts), *((1, "+", row) for row in rights[:1]))
    one.epoch(*((1, "+", row) for row in rights[1:]))
    assert one.stream.pieces > 4 or not one.join.how.gives_pairs
    one.epoch(*((1, "-", row) for row in rights))


def test_a_row_that_goes_and_never_came_is_an_error_that_names_the_table_of_its_input() -> None:
    one = on_k("inner")
    one.tables[1].append(right("a", 1))
    with pytest.raises(CorruptStateError, match=re.escape("table=right_index, rows=1")):
        one.epoch((1, "-", right("a", 1)))


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_so_is_one_of_an_input_of_which_only_counts_are_kept(how: str) -> None:
    one = on_k(how)
    one.tables[1].append(right("a", 1))
    with pytest.raises(CorruptStateError, match=re.escape("table=counts, rows=1")):
        one.epoch((1, "-", right("a", 1)))


@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("changes", [(False, False), (True, False), (False, True)])
def test_only_an_inner_and_a_semi_join_of_inputs_that_append_append(how: str, changes: tuple[bool, bool]) -> None:
    pipeline = regular_join(how, changes).pipeline
    assert pipeline.appends == (how in ("inner", "semi") and changes == (False, False))
    assert ("row_key" in pipeline.parameters) == (not pipeline.appends)
    names = [table.name for table in pipeline.tables]
    assert ("left_index" in names, "right_index" in names) == (changes[0], changes[1] and how not in ("semi", "anti"))


@pytest.mark.parametrize(
    ("how", "row_keys", "wanted"),
    [
        ("inner", (None, None), None),
        ("inner", (("x",), None), None),
        ("inner", (("x",), ("y",)), ("k", "i", "x", "y")),
        ("inner", (("x",), ("k",)), ("k", "i", "x")),
        ("inner", (("k", "i"), ("y",)), ("k", "i", "y")),
        ("inner", (("k",), ("k", "i")), ("k", "i")),
        ("left", (("x",), ("k", "i")), ("k", "i", "x")),
        ("left", (("k",), ("y",)), ("k", "i", "y")),
        ("right", (("x",), ("k",)), ("k", "i", "x")),
        ("right", (("k",), ("y",)), ("k", "i", "y")),
        ("full", (("x",), ("y",)), None),
        ("full", (("k",), ("k",)), None),
        ("semi", (("x",), None), ("k", "i", "x")),
        ("anti", (("k",), None), ("k", "i")),
        ("semi", (None, ("k",)), None),
    ],
)
def test_what_identifies_a_row_of_the_join(how: str, row_keys: Any, wanted: tuple[str, ...] | None) -> None:
    schemas = (LEFT, pa.schema([("i", pa.int32()), ("k", pa.string()), ("y", pa.int64())]))
    join = regular_join(how, schemas=schemas, row_keys=row_keys)
    assert row_key(join.pipeline) == wanted
    assert row_key(OperatorStep.of(join).with_table().pipeline) == wanted


def test_of_a_right_join_the_keys_of_the_right_identify_a_row_too() -> None:
    schemas = (LEFT, pa.schema([("j", pa.int32()), ("m", pa.string()), ("y", pa.int64())]))
    join = regular_join("right", schemas=schemas, keys=(("k",), ("m",)), row_keys=(("k",), ("y",)))
    assert row_key(join.pipeline) == ("k", "m", "y")


@pytest.mark.parametrize("how", ["inner", "left", "right", "semi", "anti"])
def test_with_a_row_key_the_table_is_keyed(how: str) -> None:
    schemas = (L, pa.schema([("m", pa.string()), ("y", pa.int64())]))
    join = regular_join(how, schemas=schemas, keys=(("k",), ("m",)), row_keys=(("x",), ("y",)))
    one = Joined(join, True, TWO_TASKS)
    assert one.stream.operator.pipeline.tables[0].schema.names[-1] == "_put_in"
    rights = [{"m": key, "y": number} for number, key in enumerate("aabc")]
    one.epoch((0, "+", left("a", 1)), (0, "+", left("b", 2)), (0, "+", left(None, 3)), (1, "+", rights[0]))
    one.epoch(*((1, "+", each) for each in rights[1:]), (0, "-", left("b", 2)), (0, "+", left("c", 2)))
    one.epoch(*((1, "-", each) for each in rights))


def test_a_row_with_one_partner_at_most_is_updated_in_place() -> None:
    one = Joined(regular_join("left", (True, True), (L, R), ON_K, (("x",), ("k",))), True)
    one.epoch((0, "+", left("a", 1)))
    assert one.epoch((1, "+", right("a", 7))) == [
        {**pair("a", 1, None), "_change_type": "update_preimage"},
        {**pair("a", 1, 7), "_change_type": "update_postimage"},
    ]


def test_conditions_on_the_inputs_are_part_of_the_fingerprint() -> None:
    inputs = [InputSpec((), schema.append(KIND)) for schema in (L, R)]
    plain, selected = (RegularJoin.build(inputs, ON_K, "left", wheres=each) for each in ((None, None), (None, "y > 1")))
    assert "where" not in plain.pipeline.parameters
    assert selected.pipeline.parameters["where"] == [None, "y > 1"]
    assert again(selected).pipeline == selected.pipeline


def test_columns_come_from_both_inputs() -> None:
    read = columns_read(OperatorStep.of(regular_join("full", schemas=(L, R), keys=ON_K)).with_table().pipeline)
    assert read == {"k": [(0, "k"), (1, "k")], "x": [(0, "x")], "y": [(1, "y")]}


NESTED = pa.struct([("a", pa.list_(pa.float64()))])


@pytest.mark.parametrize("how", TYPES)
def test_values_of_any_type_are_carried_and_taken_back(how: str) -> None:
    schemas = (
        pa.schema([("k", pa.decimal128(30, 2)), ("n", NESTED)]),
        pa.schema([("k", pa.decimal128(30, 2)), ("t", pa.timestamp("us", "UTC")), ("f", pa.float64())]),
    )
    join = regular_join(how, schemas=schemas, keys=ON_K)
    stream = Changing(OperatorStep.of(join).with_table(), TWO_TASKS)
    nan = float("nan")
    tables = [
        pa.table({"k": [1, 1, None], "n": [{"a": [nan, None]}, None, {"a": []}]}),
        pa.table({"k": [1, 1], "t": [5, None], "f": [nan, -0.0]}),
    ]

    def changes(kind: str) -> list[tuple[int, pa.Table]]:
        return [
            (number, table.cast(schema).append_column(KIND, pa.array([kind] * table.num_rows)))
            for number, (table, schema) in enumerate(zip(tables, schemas, strict=True))
        ]

    came = stream.epoch(*changes("insert"))
    assert len(came) == {"inner": 4, "left": 5, "right": 4, "full": 5, "semi": 2, "anti": 1}[how]
    assert bag_of(stream.table()) == bag_of({key: row[key] for key in row if key != "_change_type"} for row in came)
    assert len(stream.epoch(*changes("delete"))) == len(came)
    assert stream.table() == []


@pytest.mark.parametrize(
    ("schemas", "keys", "message"),
    [
        ((L, R), ((), ()), "a join needs key columns on both sides"),
        ((L, R), (("k",), ("k", "y")), "give key_by as many columns on the left as on the right"),
        ((L, R), (("k",), ("y",)), "keys of different types"),
        ((L, L), ON_K, "both inputs have a column of this name, which is not one and the same key of both"),
        ((L.append(pa.field("_rows", pa.int64())), R), ON_K, "the join's state has a column of this name"),
        ((L.append(pa.field("z", pa.month_day_nano_interval())), R), ON_K, "column=z, type=month_day_nano_interval"),
        ((L, R.append(pa.field("_epoch", pa.int64()))), ON_K, "column=_epoch"),
    ],
)
def test_what_cannot_be_joined_is_refused(schemas: Any, keys: Any, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        regular_join("inner", schemas=schemas, keys=keys)


def test_inputs_that_append_may_have_values_of_any_type() -> None:
    odd = L.append(pa.field("z", pa.month_day_nano_interval()))
    assert regular_join("inner", (False, False), (odd, R), ON_K).pipeline.appends


def test_an_unknown_type_of_join_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match="choose one of inner, left, right, full, semi, anti"):
        RegularJoin.build([InputSpec((), L), InputSpec((), R)], ON_K, "outer")
