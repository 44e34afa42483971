from decimal import Decimal

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.step import OperatorStep, one_group
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.keyed_streams import DictWorld, Row, Stream, replayed
from tests.unit.operators.streams import colliding, context

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC")), KIND])
KINDS = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
AGGREGATES = {"least": agg.min("v"), "newest": agg.last("v", by="at")}


def batch(*rows: tuple[str, str, int | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": k, "v": v, "at": at, "_change_type": KINDS[kind]} for kind, k, v, at in rows], schema=SCHEMA
    )


def stream() -> Stream:
    return Stream(RunningAggregate.build(("k",), AGGREGATES, InputSpec((), SCHEMA), updating=True), distinct=1)


def row(k: str, least: int | None, newest: int | None) -> Row:
    return {"k": k, "least": least, "newest": newest}


def test_the_next_value_comes_up_when_the_first_is_deleted() -> None:
    one = stream()
    table = replayed([], one.epoch(batch(("+", "a", 1, 30), ("+", "a", 2, 20), ("+", "a", 3, 10))))
    assert table == [row("a", 1, 1)]
    table = replayed(table, one.epoch(batch(("-", "a", 1, 30))))
    assert table == [row("a", 2, 2)]
    assert one.epoch(batch(("-", "a", 3, 10))) == [], "a value that was not the first"
    assert replayed(table, one.epoch(batch(("-", "a", 2, 20)))) == []
    assert set(one.held().values()) == {0}, "nothing is kept of a key without rows"


def test_a_value_that_is_there_twice_is_there_until_both_are_deleted() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1, 5), ("+", "a", 1, 5), ("+", "a", 2, 1)))
    assert one.epoch(batch(("-", "a", 1, 5))) == []
    assert one.epoch(batch(("-", "a", 1, 5)))[1] == {**row("a", 2, 2), "_change_type": "update_postimage"}


def test_a_row_goes_before_it_comes_within_one_epoch() -> None:
    one = stream()
    assert replayed([], one.epoch(batch(("-", "a", 1, 5)), batch(("+", "a", 1, 5), ("+", "a", 2, 1)))) == [
        row("a", 2, 2)
    ]


def test_an_update_that_changes_the_key_moves_the_value() -> None:
    one = stream()
    table = replayed([], one.epoch(batch(("+", "a", 1, 5), ("+", "b", 2, 1))))
    table = replayed(table, one.epoch(batch(("<", "a", 1, 5), (">", "b", 1, 5))))
    assert table == [row("b", 1, 1)]


def test_a_group_of_nulls_has_no_first_value() -> None:
    one = stream()
    assert replayed([], one.epoch(batch(("+", "a", None, 5), ("+", "a", 7, None)))) == [row("a", 7, None)]
    assert one.table() == [row("a", 7, None)]


def test_an_epoch_may_be_cut_into_many_parts() -> None:
    one = stream()
    batches = [batch(*(("+", "a", v, v) for v in range(start, start + 40))) for start in range(0, 400, 40)]
    assert replayed([], one.epoch(*batches)) == [row("a", 0, 399)]
    gone = [batch(*(("-", "a", v, v) for v in range(start, start + 40))) for start in range(0, 360, 40)]
    assert replayed([row("a", 0, 399)], one.epoch(*gone)) == [row("a", 360, 399)]


def test_retracting_a_value_that_was_never_added_is_an_error() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1, 5), ("+", "a", 2, 5)))
    with pytest.raises(CorruptStateError, match=r"retracted that were never added.*table=values_0, rows=1"):
        one.epoch(batch(("-", "a", 3, 5)))


def test_a_step_without_keys_has_the_first_value_of_all() -> None:
    schema = pa.schema([SCHEMA.field("v"), KIND])
    operator = OperatorStep.of(
        one_group(
            InputSpec((), schema),
            lambda keys, source: RunningAggregate.build(keys, {"least": agg.min("v")}, source, updating=True),
        )
    )
    state = DictState.of(operator.pipeline)
    for kind, wanted in (("+", [("insert", 4)]), ("-", [("delete", 4)])):
        rows = batch((kind, "a", 4, 1)).select(["v", "_change_type"])
        operator.on_rows(0, colliding(rows), rows, state, context())
        changes = [each for piece in operator.finish(state, context()) for each in piece.rows.to_pylist()]
        assert [(each["_change_type"], each["least"]) for each in changes] == wanted
        state.next_epoch()
    assert DictWorld(state).live("groups").num_rows == 0


def test_every_type_with_an_order_has_a_first_value() -> None:
    values = {
        "b": (pa.bool_(), [True, False, None]),
        "s": (pa.string(), ["b", "a", ""]),
        "y": (pa.binary(), [b"\xff", b"", None]),
        "d": (pa.decimal128(38, 2), [Decimal("-1.10"), Decimal("1e30"), None]),
        "t": (pa.timestamp("us", "UTC"), [5, -5, None]),
        "f": (pa.float32(), [float("nan"), -0.0, 0.0]),
        "n": (pa.date32(), [3, -4, None]),
    }
    schema = pa.schema([("k", pa.int64()), *((name, type_) for name, (type_, _) in values.items()), KIND])
    columns = [pa.array([1, 1, 1]), *(pa.array(column, type_) for type_, column in values.values())]
    rows = pa.Table.from_arrays([*columns, pa.array(["insert"] * 3)], schema=schema)
    aggregates = {f"{name}_least": agg.min(name) for name in values}
    one = Stream(RunningAggregate.build(("k",), aggregates, InputSpec((), schema), updating=True))
    one.epoch(rows)
    [least] = one.table()
    assert repr(list(least.values())) == repr(
        [1, False, "", b"", Decimal("-1.10"), -5, 0.0, (pa.array([-4], pa.date32()).to_pylist()[0])]
    )


def test_a_value_without_an_order_is_refused() -> None:
    schema = pa.schema([("k", pa.int64()), ("l", pa.list_(pa.int64())), KIND])
    with pytest.raises(InvalidPipelineError, match=r"min needs values that have an order.*column=l"):
        RunningAggregate.build(("k",), {"x": agg.min("l")}, InputSpec((), schema), updating=True)


def test_a_key_column_of_the_tables_name_is_refused() -> None:
    schema = pa.schema([("_value_0", pa.int64()), ("v", pa.int64()), KIND])
    with pytest.raises(InvalidPipelineError, match=r"the state has a column of this name.*key=_value_0"):
        RunningAggregate.build(("_value_0",), {"x": agg.min("v")}, InputSpec((), schema), updating=True)
