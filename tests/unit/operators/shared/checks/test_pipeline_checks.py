import re

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import AppendOnly, RunningAggregate, agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.streams import build

SCHEMA = pa.schema(
    [
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("route", pa.list_(pa.string())),
        ("leg", pa.struct([("origin", pa.string())])),
        ("at", pa.timestamp("us", "UTC")),
        ("_sum(delay)", pa.string()),
        ("twice", pa.string()),
        ("twice", pa.string()),
    ]
)
ROWS = {"rows": agg.count()}


@pytest.mark.parametrize(
    ("keys", "aggregations", "event_time", "message"),
    [
        (
            ("Carrier",),
            ROWS,
            None,
            "no such column. Did you mean 'carrier'? column=Carrier, use=key, columns=carrier, delay",
        ),
        (("tail",), ROWS, None, "no such column. column=tail, use=key"),
        (("twice",), ROWS, None, "several columns of this name: rename them. column=twice"),
        ((3,), ROWS, None, "name the column with a string. use=key, got=3"),
        ((), ROWS, None, "call key_by"),
        (("carrier", "carrier"), ROWS, None, "key only once. key=carrier"),
        (("delay",), ROWS, None, "cast this column, or choose another. key=delay, type=double"),
        (("route",), ROWS, None, "key=route, type=list"),
        (("leg",), ROWS, None, "key=leg, type=struct"),
        (("_sum(delay)",), {"x": agg.sum("delay")}, None, "rename the key before key_by. key=_sum(delay)"),
        (("carrier",), {}, None, "aggregates=()"),
        (("carrier",), {"x": "sum"}, None, "write an aggregate as agg.sum('column'). aggregate=x, got='sum'"),
        (("carrier",), {"x": Aggregation("sum")}, None, "only count() goes without a column. aggregate=x"),
        (("carrier",), {"_x": agg.count()}, None, "begins with _ is the engine's own: choose another. aggregate=_x"),
        (("carrier",), {"": agg.count()}, None, "aggregate="),
        (
            ("carrier",),
            {"carrier": agg.count()},
            None,
            "a column of this name already: choose another. aggregate=carrier",
        ),
        (("carrier",), {"CARRIER": agg.count()}, None, "a column of this name already"),
        (("carrier",), {"x": agg.sum("delays")}, None, "Did you mean 'delay'? column=delays, use=aggregate x"),
        (("carrier",), {"x": agg.sum("carrier")}, None, "sum needs numbers"),
        (("carrier",), {"x": agg.avg("at")}, None, "avg needs numbers"),
        (("carrier",), {"x": agg.max("route")}, None, "max needs values that have an order"),
        (("carrier",), {"x": agg.first("leg", by="delay")}, None, "first needs values that have an order"),
        (
            ("carrier",),
            {"x": agg.last("delay", by="leg")},
            None,
            "by= needs values that have an order. aggregate=x, by=leg",
        ),
        (("carrier",), {"x": agg.last("delay")}, None, "give last a column as by="),
        (("carrier",), ROWS, "delay", "event time must be a timestamp: cast the column. column=delay, type=double"),
        (("carrier",), ROWS, "when", "no such column. column=when, use=event time"),
    ],
)
def test_an_aggregate_that_cannot_work(
    keys: tuple[str, ...], aggregations: dict[str, Aggregation], event_time: str | None, message: str
) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        build(SCHEMA, keys, event_time, **aggregations)


@pytest.mark.parametrize("name", ["_epoch", "_change_type", "_EPOCH", "_Change_Type"])
def test_a_column_that_the_change_log_adds_itself(name: str) -> None:
    schema = pa.schema([(name, pa.string()), ("v", pa.int64())])
    with pytest.raises(InvalidPipelineError, match=f"column={name}"):
        AppendOnly.build(InputSpec((), schema))
    with pytest.raises(InvalidPipelineError, match=f"column={name}"):
        build(schema, (name,), rows=agg.count())


def test_columns_of_an_append_only_stream_that_spark_cannot_distinguish() -> None:
    with pytest.raises(InvalidPipelineError, match="columns=v, V"):
        AppendOnly.build(InputSpec((), pa.schema([("v", pa.int64()), ("V", pa.int64())])))


NOTHING = pa.struct([])


@pytest.mark.parametrize(
    "type_",
    [
        NOTHING,
        pa.struct([("a", pa.int64()), ("b", NOTHING)]),
        pa.list_(NOTHING),
        pa.map_(pa.string(), pa.list_(NOTHING)),
    ],
)
def test_an_append_only_stream_with_a_struct_of_nothing_which_parquet_cannot_hold(type_: pa.DataType) -> None:
    with pytest.raises(InvalidPipelineError, match=r"a struct without fields: .*leave the column out. column=v, type="):
        AppendOnly.build(InputSpec((), pa.schema([("k", pa.int64()), ("v", type_)])))


@pytest.mark.parametrize(
    "type_", [pa.struct([("a", pa.int64())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.null())]
)
def test_an_append_only_stream_takes_other_nested_columns(type_: pa.DataType) -> None:
    schema = pa.schema([("v", type_)])
    assert AppendOnly.build(InputSpec((), schema)).pipeline.output == schema


@pytest.mark.parametrize(
    "type_",
    [
        pa.int8(),
        pa.int64(),
        pa.string(),
        pa.binary(),
        pa.bool_(),
        pa.date32(),
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(20, 3),
    ],
)
def test_every_other_type_may_be_a_key(type_: pa.DataType) -> None:
    operator = build(pa.schema([pa.field("k", type_, nullable=False)]), ("k",), rows=agg.count())
    assert operator.pipeline.output.field("k").type == type_


def test_columns_that_nothing_reads_are_not_asked_for_whatever_they_are() -> None:
    operator = RunningAggregate.build(("carrier",), {"x": agg.max("delay")}, InputSpec((), SCHEMA), "at")
    assert operator.pipeline.inputs[0].schema.names == ["carrier", "delay", "at"]
