import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.errors import CorruptStateError, InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import Row, Stream, in_any_order, replayed

KIND = pa.field("_change_type", pa.string(), nullable=False)
SCHEMA = pa.schema([("k", pa.string()), ("i", pa.int64()), ("n", pa.int16()), ("d", pa.decimal128(38, 2)), KIND])
AGGREGATES = {
    "rows": agg.count(),
    "values": agg.count("i"),
    "total": agg.sum("n"),
    "mean": agg.avg("i"),
    "exact": agg.sum("d"),
    "exact_mean": agg.avg("d"),
}
OTHERS = [
    agg.approx_count_distinct("i"),
    agg.approx_quantile("n", 0.5),
]


def stream(schema: pa.Schema = SCHEMA, **aggregations: Aggregation) -> Stream:
    operator = RunningAggregate.build(("k",), aggregations or AGGREGATES, InputSpec((), schema), updating=True)
    return Stream(operator, distinct=1)


def batch(*rows: tuple[str, str | None, int | None]) -> pa.Table:
    kinds = {"+": "insert", "-": "delete", "<": "update_preimage", ">": "update_postimage"}
    return pa.Table.from_pylist(
        [
            {"k": k, "i": v, "n": v, "d": None if v is None else Decimal(v), "_change_type": kinds[kind]}
            for kind, k, v in rows
        ],
        schema=SCHEMA,
    )


def row(k: str | None, rows: int, *values: int) -> Row:
    total, n = sum(values), len(values)
    return {
        "k": k,
        "rows": rows,
        "values": n,
        "total": total if n else None,
        "mean": total / n if n else None,
        "exact": Decimal(total).quantize(Decimal("0.01")) if n else None,
        "exact_mean": (Decimal(total) / n).quantize(Decimal("0.000001")) if n else None,
    }


def test_an_update_takes_back_what_was_and_adds_what_is() -> None:
    one = stream()
    table = replayed([], one.epoch(batch(("+", "a", 1), ("+", "a", 2), ("+", "b", None))))
    table = replayed(table, one.epoch(batch(("<", "a", 1), (">", "a", 10), ("<", "b", None), (">", "b", -3))))
    assert in_any_order(table) == in_any_order([row("a", 2, 10, 2), row("b", 1, -3)])
    assert in_any_order(one.table()) == in_any_order(table)


def test_a_row_that_moves_to_another_key_leaves_the_first_one() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1)))
    assert [(change["k"], change["_change_type"]) for change in one.epoch(batch(("<", "a", 1), (">", None, 1)))] == [
        (None, "insert"),
        ("a", "delete"),
    ]
    assert one.held() == {"groups": 1}


def test_the_rows_of_an_epoch_come_in_any_order_and_cut() -> None:
    rows = [("-", "a", 7), ("+", "a", 7), ("<", "b", 5), (">", "b", 6), ("+", "b", 5), ("-", "c", 1), ("+", "c", 1)]
    for order in (rows, rows[::-1]):
        for size in (1, 2, 7):
            one = stream()
            changes = one.epoch(*(batch(*order[start : start + size]) for start in range(0, 7, size)))
            assert changes == [{**row("b", 1, 6), "_change_type": "insert"}]
            assert one.held() == {"groups": 1}


def test_a_key_that_went_and_came_again_is_as_if_new() -> None:
    one = stream()
    one.epoch(batch(("+", "a", 1)))
    one.epoch(batch(("-", "a", 1)))
    assert one.table() == []
    assert one.epoch(batch(("+", "a", 5))) == [{**row("a", 1, 5), "_change_type": "insert"}]


def test_totals_that_outgrow_64_bits_for_a_mean_are_taken_back_exactly() -> None:
    one = stream(mean=agg.avg("i"))
    most = 2**62 + 12345
    one.epoch(batch(("+", "a", 1)))
    table = pa.table(
        {"k": ["a"] * 6, "i": [most] * 6, "n": pa.nulls(6, pa.int16()), "d": pa.nulls(6, SCHEMA.field("d").type)}
    )
    one.epoch(table.append_column(KIND, pa.array(["insert"] * 6)))
    one.epoch(table.append_column(KIND, pa.array(["delete"] * 6)))
    assert one.table() == [{"k": "a", "mean": 1.0}]


def test_what_a_row_is_may_be_written_as_a_dictionary() -> None:
    kind = pa.field("_change_type", pa.dictionary(pa.int32(), pa.string()))
    schema = pa.schema([*list(SCHEMA)[:-1], kind])
    one = stream(schema, rows=agg.count())
    rows = batch(("+", "a", 1), ("+", "a", 1), ("-", "a", 1))
    one.epoch(rows.set_column(4, kind, rows.column(4).dictionary_encode()))
    assert one.table() == [{"k": "a", "rows": 1}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([("+", "b", 1)], [("-", "a", 1)]),
        ([("+", "a", 1)], [("-", "a", 1), ("-", "a", 1)]),
        ([("+", "a", None), ("+", "a", 1)], [("-", "a", 1), ("<", "a", 1), (">", "a", None)]),
        ([("+", "a", 1), ("+", "a", 2)], [("-", "a", 2), ("-", "a", 2)]),
    ],
)
def test_retracting_rows_that_were_never_added_is_an_error(first: list[Any], second: list[Any]) -> None:
    one = stream()
    one.epoch(batch(*first))
    with pytest.raises(CorruptStateError, match=r"rows were retracted that were never added, .* table=groups, rows=1"):
        one.epoch(batch(*second))


@pytest.mark.parametrize("size", [1, 2])
def test_a_distinct_value_is_counted_until_its_last_row_goes(size: int) -> None:
    one = stream(kinds=agg.count_distinct("i"))
    one.epoch(batch(("+", "a", 1), ("+", "a", 1), ("+", "a", 2), ("+", "a", None)))
    assert one.table() == [{"k": "a", "kinds": 2}]
    assert one.epoch(batch(("-", "a", 1))) == [], "another row has the value"
    rows = [("-", "a", 1), ("-", "a", 3), ("+", "a", 3), ("<", "a", 2), (">", "a", 4)]
    one.epoch(*(batch(*rows[start : start + size]) for start in range(0, 5, size)))
    assert one.table() == [{"k": "a", "kinds": 1}]
    assert one.held() == {"groups": 1, "distinct_0": 1}


def test_retracting_a_value_that_was_never_added_is_an_error() -> None:
    one = stream(kinds=agg.count_distinct("i"))
    one.epoch(batch(("+", "a", 1), ("+", "a", 2)))
    with pytest.raises(
        CorruptStateError, match=r"rows were retracted that were never added, .* table=distinct_0, rows=1"
    ):
        one.epoch(batch(("-", "a", 3)))


def test_a_row_that_is_neither_coming_nor_going_is_an_error() -> None:
    with pytest.raises(InvalidPipelineError, match="column=_change_type, value='upsert'"):
        stream().epoch(batch(("+", "a", 1)).set_column(4, KIND, pa.array(["upsert"])))


@pytest.mark.parametrize("aggregation", OTHERS, ids=str)
def test_an_aggregate_without_retraction_is_refused(aggregation: Aggregation) -> None:
    message = (
        rf"does not support retraction: .*aggregate=x, function={aggregation.function}, column={aggregation.column}"
    )
    with pytest.raises(InvalidPipelineError, match=message):
        RunningAggregate.build(("k",), {"x": aggregation}, InputSpec((), SCHEMA), updating=True)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (
            pa.schema([("k", pa.string())]),
            {},
            "of the updating stream. column=_change_type, columns=k",
        ),
        (pa.schema([("k", pa.string()), ("_change_type", pa.int8())]), {}, "column=_change_type, type=int8"),
        (
            pa.schema([("k", pa.string()), KIND, ("at", pa.timestamp("us"))]),
            {"event_time": "at", "expire_after_us": 5},
            "leave expire_after out",
        ),
    ],
)
def test_what_cannot_work_is_refused(schema: pa.Schema, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        RunningAggregate.build(("k",), {"n": agg.count()}, InputSpec((), schema), updating=True, **options)


def test_that_the_upstream_updates_is_a_part_of_the_fingerprint() -> None:
    assert stream().operator.pipeline.parameters["updating"] is True
    assert stream().operator.pipeline.inputs[0].schema.names == ["k", "i", "n", "d", "_change_type"]


def test_the_unknown_kind_is_named_among_known_ones() -> None:
    rows = batch(("+", "a", 1), ("-", "a", 1), ("+", "b", 2))
    kinds = pa.array(["insert", "delete", "renamed"])
    with pytest.raises(InvalidPipelineError, match=r"^unknown change type in the rows .* value='renamed'$"):
        stream().epoch(rows.set_column(len(rows.column_names) - 1, KIND, kinds))


def test_more_values_taken_back_than_came_are_noticed_in_whichever_column() -> None:
    for first, second in (("i", "n"), ("n", "i")):
        one = stream(a=agg.count(first), b=agg.count(second))
        came = batch(("+", "a", 1), ("+", "a", 2))
        none = pa.nulls(2, SCHEMA.field("i").type)
        one.epoch(came.set_column(1, SCHEMA.field("i"), none))
        with pytest.raises(CorruptStateError, match=r"^rows were retracted that were never added"):
            one.epoch(batch(("-", "a", 1)))


def test_an_exact_total_of_fractions_that_does_not_come_to_nothing_is_noticed() -> None:
    schema = pa.schema([("k", pa.string()), ("f", pa.float64()), KIND])

    def changes(*rows: tuple[str, float]) -> pa.Table:
        return pa.table(
            {"k": ["a"] * len(rows), "f": [f for _, f in rows], KIND.name: [kind for kind, _ in rows]}, schema
        )

    one = stream(schema, total=agg.sum("f"))
    one.epoch(changes(("insert", 1.5), ("insert", 0.1)))
    one.epoch(changes(("delete", 0.1), ("delete", 1.5)))
    assert one.table() == []
    one.epoch(changes(("insert", 1.5)))
    with pytest.raises(CorruptStateError, match=r"^rows were retracted that were never added"):
        one.epoch(changes(("delete", 2.5)))
