import re
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators.operator import Operator, change_log_table
from dagster_ckpt.operators.sets.distinct import Distinct
from dagster_ckpt.operators.sets.set_operation import SetOperation
from dagster_ckpt.operators.sets.union_all import UnionAll
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from tests.unit.operators.changing_streams import Batch, Changing, again, bag_of

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
KINDS = {"+": "insert", "-": "delete"}
GROWS, CHANGES = InputSpec((), SCHEMA), InputSpec((), SCHEMA.append(KIND))


def rows(number: int, *changes: tuple[str, str | None, int | None]) -> Batch:
    """Changes of an input that changes."""
    table = [{"k": k, "n": n, "_change_type": KINDS[kind]} for kind, k, n in changes]
    return number, pa.Table.from_pylist(table, schema=SCHEMA.append(KIND))


def appended(number: int, *more: tuple[str | None, int | None]) -> Batch:
    return number, pa.Table.from_pylist([{"k": k, "n": n} for k, n in more], schema=SCHEMA)


def change(kind: str, k: str | None, n: int | None) -> dict[str, Any]:
    return {"k": k, "n": n, "_change_type": KINDS[kind]}


def both(kind: str) -> Changing:
    return Changing(SetOperation.build([CHANGES, CHANGES], kind))


def test_a_row_is_distinct_until_its_last_one_goes() -> None:
    one = Changing(Distinct.build(CHANGES))
    changes = one.epoch(rows(0, ("+", "a", 1), ("+", "a", 1), ("+", None, None)))
    assert bag_of(changes) == bag_of([change("+", "a", 1), change("+", None, None)])
    assert one.epoch(rows(0, ("-", "a", 1))) == []
    assert one.epoch(rows(0, ("-", "a", 1), ("+", "b", 2), ("-", "b", 2))) == [change("-", "a", 1)]
    assert one.table() == [{"k": None, "n": None}]


def test_distinct_rows_of_what_only_grows_are_appended_and_not_counted() -> None:
    one = Changing(Distinct.build(GROWS))
    assert len(one.epoch(appended(0, ("a", 1), ("a", 1)), appended(0, ("a", 1), ("b", 1)))) == 2
    assert one.epoch(appended(0, ("a", 1), ("b", None))) == [change("+", "b", None)]
    assert one.live("rows").column_names == ["k", "n"]
    assert change_log_table(one.operator) is None


def test_both_inputs_change_the_same_row_in_one_epoch() -> None:
    for kind, wanted in (("intersect", 1), ("intersect_all", 2), ("subtract", 0), ("except_all", 1)):
        one = both(kind)
        one.epoch(rows(1, ("+", "a", 1)))
        left = rows(0, ("+", "a", 1), ("+", "a", 1), ("+", "a", 1))
        assert len(one.epoch(left, rows(1, ("+", "a", 1)))) == wanted, kind


def test_what_one_input_loses_the_other_may_gain() -> None:
    one = both("intersect_all")
    one.epoch(rows(0, ("+", "a", 1), ("+", "a", 1)), rows(1, ("+", "a", 1)))
    assert one.epoch(rows(0, ("-", "a", 1)), rows(1, ("+", "a", 1))) == [], "min(2, 1) is min(1, 2)"
    assert one.epoch(rows(0, ("-", "a", 1))) == [change("-", "a", 1)]


def test_a_difference_takes_rows_back_when_the_right_input_grows() -> None:
    one = Changing(SetOperation.build([GROWS, GROWS], "subtract"))
    one.epoch(appended(0, ("a", 1), ("a", 1), ("b", 1)))
    assert one.epoch(appended(1, ("a", 1))) == [change("-", "a", 1)]
    one.epoch(appended(1, ("a", 1)), appended(0, ("a", 1)))
    assert {"k": "a", "n": 1, "_rows_0": 1, "_rows_1": 1} in one.live("counts").to_pylist(), "no more than matters"


def test_a_union_keeps_nothing_after_an_epoch() -> None:
    one = Changing(UnionAll.build([GROWS, CHANGES]))
    assert bag_of(one.epoch(appended(0, ("a", 1), ("a", 1)), rows(1, ("+", "a", 1), ("+", "b", 2)))) == bag_of(
        [change("+", "a", 1)] * 3 + [change("+", "b", 2)]
    )
    assert one.held() == {"epoch": 0}
    assert one.epoch(rows(1, ("-", "a", 1)), appended(0, ("a", 1))) == []
    assert one.epoch(rows(1, ("-", "b", 2))) == [change("-", "b", 2)]


@pytest.mark.parametrize("operator", [Distinct.build(CHANGES), SetOperation.build([CHANGES, CHANGES], "subtract")])
def test_retracting_a_row_that_was_never_added_is_an_error(operator: Operator) -> None:
    one = Changing(operator)
    one.epoch(rows(0, ("+", "a", 1)))
    with pytest.raises(CorruptStateError, match=r"never added.* table=\w+, rows=1"):
        one.epoch(rows(0, ("-", "a", 2), ("-", "a", 1)))


def test_rows_have_a_key_where_equal_ones_are_there_once() -> None:
    floats = InputSpec((), SCHEMA.append(pa.field("f", pa.float64())).append(KIND))
    assert row_key(Distinct.build(CHANGES).pipeline) == ("k", "n")
    assert row_key(Distinct.build(floats).pipeline) is None, "a float cannot be a key"
    assert row_key(OperatorStep.of(SetOperation.build([CHANGES, GROWS], "intersect")).with_table().pipeline) == (
        "k",
        "n",
    )
    assert row_key(OperatorStep.of(SetOperation.build([CHANGES, GROWS], "intersect_all")).with_table().pipeline) is None
    assert row_key(OperatorStep.of(UnionAll.build([CHANGES, GROWS])).with_table().pipeline) is None


def test_conditions_on_the_inputs_are_a_part_of_the_fingerprint() -> None:
    for operator in (
        Distinct.build(CHANGES, "n > 1"),
        SetOperation.build([CHANGES, CHANGES], "subtract", [None, "n > 1"]),
        UnionAll.build([GROWS, CHANGES], [None, "n > 1"]),
    ):
        where = operator.pipeline.parameters["where"]
        assert where in (["n > 1"], [None, "n > 1"])
        assert again(operator).pipeline.parameters["where"] == where
    assert "where" not in Distinct.build(CHANGES).pipeline.parameters


def test_columns_may_be_null_if_they_may_be_in_one_input() -> None:
    full = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    half = pa.schema([full.field("k"), SCHEMA.field("n")])
    operator = SetOperation.build([InputSpec((), full), InputSpec((), half)], "intersect")
    assert operator.pipeline.output == half


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (
            SCHEMA,
            pa.schema([("n", pa.int64()), ("k", pa.string())]),
            "in the same order: select and cast them. left=k:",
        ),
        (SCHEMA, pa.schema([("k", pa.string()), ("n", pa.int32())]), "right=k: string, n: int32"),
        (SCHEMA, pa.schema([("k", pa.string())]), "right=k: string"),
        (pa.schema([("f", pa.float64())]), pa.schema([("f", pa.float64())]), "add or cast one. columns=f: double"),
        (pa.schema([("_rows_0", pa.int64())]), pa.schema([("_rows_0", pa.int64())]), "_rows_0"),
    ],
)
def test_what_cannot_be_compared_is_refused(left: pa.Schema, right: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        SetOperation.build([InputSpec((), left), InputSpec((), right)], "intersect")


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(InvalidPipelineError, match=r"choose one of intersect, .* kind='minus'"):
        SetOperation.build([GROWS, GROWS], "minus")
