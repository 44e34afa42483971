from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.protocol.manifest.manifest import DELIVERY, InputSpec, SourceIdentity, StateTableSpec
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes
from tests.worlds.manifests import PIPELINE, ROWS, SOURCE

APPEND = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
EXTRA = ROWS.append(pa.field("extra", pa.int64()))
FEWER = pa.schema([ROWS.field("carrier")])
RETYPED = pa.schema([ROWS.field("carrier"), pa.field("delay", pa.float32())])
STRICT = pa.schema([pa.field("carrier", pa.string(), nullable=False), ROWS.field("delay")], metadata={"a": "b"})
SWAPPED = pa.schema([ROWS.field("delay"), ROWS.field("carrier")])
OTHER_SOURCE = SourceIdentity("kafka", "topic")


BEGINS_NOW = (
    "state table total has no extra, which needs all rows from the beginning; an aggregate with "
    'since="now" begins with the next epoch'
)


def an_input(schema: pa.Schema = ROWS, *sources: SourceIdentity) -> tuple[InputSpec, ...]:
    return (InputSpec(sources or (SOURCE,), schema),)


def a_table(schema: pa.Schema = ROWS, keys: tuple[str, ...] = ("carrier",), name: str = "total") -> Any:
    return (StateTableSpec(name, schema, keys),)


def test_nothing_changed() -> None:
    assert breaking_changes(PIPELINE, PIPELINE) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"inputs": an_input(EXTRA)},
        {"inputs": an_input(SWAPPED)},
        {"inputs": an_input(STRICT)},
        {"output": STRICT},
        {"parameters": {"mean_delay": {"column": "delay", "function": "avg"}}},
    ],
)
def test_what_does_not_touch_the_state_may_change(fields: dict[str, Any]) -> None:
    assert breaking_changes(PIPELINE, replace(PIPELINE, **fields)) == ()


@pytest.mark.parametrize("output", [EXTRA, FEWER, SWAPPED, STRICT])
def test_an_append_only_stream_may_gain_lose_and_reorder_columns(output: pa.Schema) -> None:
    assert breaking_changes(APPEND, replace(APPEND, output=output, inputs=an_input(output))) == ()


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"operator": "window"}, "the operator was aggregate, now it is window"),
        ({"keys": ("origin", "carrier")}, "the key was carrier, now it is origin, carrier"),
        ({"keys": ()}, "the key was carrier, now it is none"),
        ({"parameters": {}}, "mean_delay was removed"),
        ({"parameters": {**PIPELINE.parameters, "worst": {}}}, "worst was added"),
        (
            {"parameters": {"mean_delay": {"function": "max", "column": "delay"}}},
            'mean_delay: function was "avg", now it is "max"',
        ),
        ({"inputs": ()}, "there were 1 inputs, now there are 0"),
        ({"inputs": an_input(ROWS, OTHER_SOURCE)}, "the input no longer reads parquet file:///data/departures"),
        ({"inputs": an_input(ROWS, SOURCE, OTHER_SOURCE)}, "the input now also reads kafka topic"),
        ({"inputs": an_input(RETYPED)}, "the input's column delay was double, now it is float"),
        ({"tables": ()}, "state table total was removed"),
        ({"tables": (*a_table(), *a_table(name="other"))}, "state table other was added"),
        ({"tables": a_table(keys=("delay",))}, "state table total was sorted by carrier, now by delay"),
        ({"tables": a_table(RETYPED)}, "state table total's column delay was double, now it is float"),
        ({"tables": a_table(EXTRA)}, BEGINS_NOW),
        ({"tables": a_table(STRICT)}, "state table total's column carrier could be null, now it cannot"),
        ({"output": RETYPED}, "column delay was double, now it is float"),
    ],
)
def test_each_breaking_change_is_described(fields: dict[str, Any], change: str) -> None:
    assert change in breaking_changes(PIPELINE, replace(PIPELINE, **fields))


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"tables": a_table(EXTRA)}, "state table total's column extra was added"),
        (
            {"tables": a_table(SWAPPED)},
            "state table total's columns were in the order carrier, delay, now delay, carrier",
        ),
        ({"output": EXTRA}, "column extra was added"),
        ({"output": FEWER}, "column delay was removed"),
    ],
)
def test_a_step_whose_rows_have_their_place_by_all_their_columns_keeps_these(
    fields: dict[str, Any], change: str
) -> None:
    top = replace(PIPELINE, operator="top")
    assert change in breaking_changes(top, replace(top, **fields))


def test_an_append_only_column_that_stays_keeps_its_type() -> None:
    changes = breaking_changes(APPEND, replace(APPEND, output=RETYPED))
    assert changes == ("column delay was double, now it is float",)


def test_inputs_are_numbered_where_there_are_several() -> None:
    two = replace(PIPELINE, inputs=an_input() * 2)
    changed = replace(two, inputs=(*an_input(), *an_input(RETYPED)))
    assert breaking_changes(two, changed) == ("input 1's column delay was double, now it is float",)


STRICT_ITEM = pa.struct([pa.field("x", pa.int32(), nullable=False)])
ITEM = pa.struct([pa.field("x", pa.int32())])
WIDENED = [
    (pa.list_(pa.field("element", pa.string(), nullable=False)), pa.list_(pa.string())),
    (STRICT_ITEM, ITEM),
    (pa.list_(STRICT_ITEM), pa.list_(ITEM)),
    (pa.map_(pa.string(), pa.field("value", STRICT_ITEM, nullable=False)), pa.map_(pa.string(), ITEM)),
    (pa.map_(STRICT_ITEM, pa.int32()), pa.map_(ITEM, pa.int32())),
    (pa.list_(pa.field("item", pa.int8(), nullable=False), 3), pa.list_(pa.int8(), 3)),
    (pa.struct([pa.field("a", pa.large_list(STRICT_ITEM), nullable=False)]), pa.struct([("a", pa.large_list(ITEM))])),
]


def of_nested(type_: pa.DataType) -> Any:
    schema = ROWS.append(pa.field("nested", type_))
    return replace(PIPELINE, inputs=an_input(schema), tables=a_table(schema), output=schema)


@pytest.mark.parametrize(("strict", "wide"), WIDENED)
def test_more_within_a_column_may_become_null_and_not_less(strict: pa.DataType, wide: pa.DataType) -> None:
    assert breaking_changes(of_nested(strict), of_nested(wide)) == ()
    assert f"column nested was {wide}, now it is {strict}" in breaking_changes(of_nested(wide), of_nested(strict))


def test_a_nested_column_keeps_its_types_and_names() -> None:
    for other in (pa.struct([("x", pa.int16())]), pa.struct([("y", pa.int32())]), pa.list_(pa.int32())):
        assert f"column nested was {ITEM}, now it is {other}" in breaking_changes(of_nested(ITEM), of_nested(other))


HALVED = pa.schema([("carrier", pa.string()), ("_sum_high(x)", pa.int64()), ("_sum_low(x)", pa.int64())])
TOTALLED = pa.schema([("carrier", pa.string()), ("_sum(x)", pa.int64())])


def with_state(schema: pa.Schema, table: str = "groups", operator: str = "aggregate", *keys: str) -> Any:
    tables = (StateTableSpec(table, schema, keys or ("carrier",)),)
    aggregates = [{"name": "mean", "function": "avg", "column": "x"}]
    return replace(PIPELINE, operator=operator, parameters={"aggregates": aggregates}, tables=tables)


@pytest.mark.parametrize("table", ["groups", "windows", "open"])
def test_halves_are_made_of_a_total_and_not_the_other_way_round(table: str) -> None:
    before, after = with_state(TOTALLED, table), with_state(HALVED, table)
    assert breaking_changes(before, after) == ()
    [change] = breaking_changes(after, before)
    assert f"state table {table} has no _sum(x), which needs all rows" in change


@pytest.mark.parametrize("type_", [pa.float64(), pa.decimal128(20, 0)], ids=str)
def test_halves_are_not_made_of_a_total_of_other_numbers(type_: pa.DataType) -> None:
    before = with_state(TOTALLED.set(1, pa.field("_sum(x)", type_)))
    assert len(breaking_changes(before, with_state(HALVED))) == 2


@pytest.mark.parametrize(
    "place",
    [
        ("late_0", "aggregate"),
        ("groups", "deduplicate"),
        ("groups", "aggregate", "_sum(x)"),
    ],
)
def test_a_column_of_the_user_is_no_total_whatever_its_name(place: tuple[str, ...]) -> None:
    both = pa.unify_schemas([TOTALLED, HALVED])
    assert len(breaking_changes(with_state(TOTALLED, *place), with_state(both, *place))) == 2


DELIVERS = replace(APPEND, operator=DELIVERY, parameters={"kind": "sqlite", "address": "sqlite:a", "mode": "upsert"})


def test_what_a_delivery_writes_and_where_is_judged_by_its_destination() -> None:
    moved = {**DELIVERS.parameters, "address": "sqlite:b", "key": ["carrier"]}
    after = replace(DELIVERS, parameters=moved, output=RETYPED, inputs=an_input(RETYPED))
    assert breaking_changes(DELIVERS, after) == ()


def test_a_delivery_stays_one_of_its_stream_and_mode() -> None:
    append = replace(DELIVERS, parameters={**DELIVERS.parameters, "mode": "append"})
    assert breaking_changes(DELIVERS, append) == ('mode was "upsert", now it is "append"',)
    other = replace(DELIVERS, inputs=an_input(ROWS, OTHER_SOURCE))
    assert breaking_changes(DELIVERS, other)[-1] == "the input now also reads kafka topic"
    assert breaking_changes(DELIVERS, APPEND) == ("the operator was delivery, now it is append",)


def test_the_watermark_of_a_later_step_never_goes_back() -> None:
    def reading(behind_us: int) -> Any:
        later = replace(PIPELINE, inputs=(InputSpec((), ROWS, step=0, behind_us=behind_us),))
        return replace(later, before=(PIPELINE,))

    assert breaking_changes(reading(5_000_000), reading(2_000_000)) == ()
    [change] = breaking_changes(reading(5_000_000), reading(7_500_000))
    assert change.startswith("step 2: the input was at most 5 s behind the watermark of step 1, now it is 7.5 s")
