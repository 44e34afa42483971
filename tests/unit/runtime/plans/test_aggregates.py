"""Spark's aggregates become the engine's, over columns that are built for them, without the JVM."""

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.runtime.catalyst.values import Expression, SparkType
from dagster_ckpt.runtime.plans.aggregates import call_of
from tests.unit.runtime.plans.written_plans import (
    DOUBLE,
    LCASE,
    LONG,
    TEXT,
    aggregate,
    column,
    function,
    literal,
    term,
    texts,
    written,
)

K, PRICE, SURE = column("k"), column("price"), column("sure", nullable=False)
PAIR = SparkType("struct", (("a", LONG), ("b", TEXT)))
LISTS = SparkType("array", element=SparkType("array", element=LONG))
TIMES = SparkType("array", element=SparkType("timestamp"))


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        ("Sum", [PRICE], agg.sum("x0")),
        ("Average", [PRICE], agg.avg("x0")),
        ("Max", [PRICE], agg.max("x0")),
        ("Corr", [PRICE, K], agg.corr("x0", "x1")),
    ],
)
def test_a_function_of_the_same_columns(kind: str, columns: list[Expression], expected: object) -> None:
    call = call_of(written(), aggregate(function(kind, *columns)))
    assert texts(call.arguments) == [each.name for each in columns]
    assert call.aggregations([f"x{place}" for place in range(len(columns))]) == [expected]


def test_a_filter_makes_nulls_of_the_rows_that_it_skips() -> None:
    call = call_of(written(), aggregate(function("Sum", PRICE), where=column("large")))
    assert texts(call.arguments) == ["when(large, price)"]


@pytest.mark.parametrize(
    ("columns", "arguments", "expected"),
    [
        ([literal(1)], [], agg.count()),
        ([SURE], [], agg.count()),
        ([PRICE], ["price"], agg.count("x0")),
        ([PRICE, SURE], ["price"], agg.count("x0")),
        ([PRICE, K], ["all_of([is_not_null(price), is_not_null(k)])"], agg.count_if("x0")),
    ],
)
def test_a_count_reads_what_may_be_null(columns: list[Expression], arguments: list[str], expected: object) -> None:
    call = call_of(written(), aggregate(function("Count", *columns)))
    assert texts(call.arguments) == arguments
    assert call.aggregations(["x0"]) == [expected]


def test_a_count_of_distinct_pairs_is_one_of_structs_where_none_is_null() -> None:
    call = call_of(written(), aggregate(function("Count", PRICE, K), distinct=True))
    [argument] = call.arguments
    assert str(argument).startswith("when(all_of([is_not_null(price), is_not_null(k)]), struct(")
    assert call.aggregations(["x0"]) == [agg.count_distinct("x0")]


def test_the_greatest_struct_is_the_last_row_by_its_fields() -> None:
    call = call_of(written(), aggregate(function("Max", column("pair", PAIR))))
    assert texts(call.arguments[1:]) == ["field(pair, 0)", "field(pair, 1)"]
    assert call.aggregations(["t", "a", "b"]) == [agg.last(["a", "b"], by="t")]


def test_lists_of_nested_values_are_lists_of_their_texts() -> None:
    call = call_of(written(lists=LISTS), aggregate(function("CollectList", column("lists", LISTS))))
    assert texts(call.arguments) == ["json_of(one_zero_within(lists))"]


@pytest.mark.parametrize(("reverse", "share"), [(False, 0.25), (True, 0.75)])
def test_a_percentile_from_the_other_end(*, reverse: bool, share: float) -> None:
    quarter = Expression("Literal", type=DOUBLE, constant=0.25, foldable=True)  # type: ignore[arg-type]
    call = call_of(written(), aggregate(function("Percentile", PRICE, quarter, literal(1), reverse=reverse)))
    assert call.aggregations(["x0"]) == [agg.percentile("x0", share)]


def test_a_text_with_a_collation_is_counted_by_its_key() -> None:
    catalyst = written()
    by_key = aggregate(function("Count", column("key", SparkType("binary"))), distinct=True)
    catalyst.read_expressions = lambda built: [by_key] if "by_collation(name)" in built else []
    call = call_of(catalyst, aggregate(function("Count", column("name", LCASE)), distinct=True))
    assert texts(call.arguments) == ["key"]


@pytest.mark.parametrize(
    ("refused", "instead"),
    [
        (aggregate(function("Kurtosis", PRICE), distinct=True), "DISTINCT is for count.*found=DISTINCT kurtosis"),
        (aggregate(function("HistogramNumeric", PRICE)), "GROUP BY floor"),
        (aggregate(function("Percentile", PRICE, literal(1), literal(2))), "frequencies are not supported"),
        (aggregate(function("PercentileDisc", PRICE, literal(1), reverse=True)), "it ascends alone"),
        (aggregate(function("Mode", PRICE, reverseOpt=False)), "it gives the least"),
        (aggregate(function("MaxBy", PRICE, K, literal(3))), "it gives one value"),
        (aggregate(function("CollectList", column("times", TIMES))), "it takes no such nested values"),
        (aggregate(function("ListAgg", PRICE, literal(None, TEXT))), "it joins text alone"),
        (
            aggregate(
                function(
                    "ListAgg",
                    column("name", TEXT),
                    literal(None, TEXT),
                    term(PRICE, nulls_first=True),
                    term(K, ascends=False, nulls_first=False),
                )
            ),
            "all ascend with NULLS FIRST",
        ),
    ],
)
def test_what_cannot_be_kept_up_to_date_is_refused(refused: Expression, instead: str) -> None:
    with pytest.raises(InvalidPipelineError, match=instead):
        call_of(written(times=TIMES), refused)  # type: ignore[arg-type]
