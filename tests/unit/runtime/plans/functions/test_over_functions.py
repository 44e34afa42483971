"""Spark's functions over a partition become the engine's, without the JVM."""

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import over
from dagster_ckpt.runtime.catalyst.values import SparkType
from dagster_ckpt.runtime.plans.functions.over_functions import arguments_of, function_of
from tests.unit.runtime.plans.written_plans import (
    END,
    LONG,
    ROW,
    START,
    TEXT,
    aggregate,
    column,
    function,
    literal,
    term,
    texts,
    written,
)
from tests.unit.runtime.plans.written_plans import over as called

K, PRICE = column("k"), column("price")
DAY_US = 24 * 60 * 60 * 1_000_000


def test_ranks_read_no_column() -> None:
    assert arguments_of(written(), function("Rank")) == []
    assert function_of(written(), called(function("Rank"), term(K)), []) == over.rank()
    assert function_of(written(), called(function("NTile", literal(4)), term(K)), []) == over.ntile(4)


@pytest.mark.parametrize(("kind", "make"), [("Lag", over.lag), ("Lead", over.lead)])
def test_the_row_before_and_the_one_after(kind: str, make: object) -> None:
    call = called(function(kind, PRICE, literal(2), literal(None), ignoreNulls=False), term(K))
    assert texts(arguments_of(written(), call.function)) == ["price"]
    assert function_of(written(), call, ["price"]) == {"Lag": over.lag, "Lead": over.lead}[kind]("price", 2, None)


def test_an_aggregate_of_a_frame_reads_its_column_where_its_filter_holds() -> None:
    of = aggregate(function("Sum", PRICE), where=column("large"))
    assert texts(arguments_of(written(), of)) == ["when(large, price)"]
    assert function_of(written(), called(of, term(K), frame=(-2, ROW)), ["x"]) == over.sum("x", rows=(-2, 0))
    assert function_of(written(), called(of, term(K), frame=(START, END)), ["x"]) == over.sum("x", rows=(None, None))


def test_a_count_of_all_rows_reads_no_column() -> None:
    assert arguments_of(written(), aggregate(function("Count", literal(1)))) == []
    assert texts(arguments_of(written(), aggregate(function("Count", PRICE)))) == ["price"]


def test_a_distance_of_days_between_dates_is_a_number_of_days() -> None:
    days, date = SparkType("interval day to second"), column("day", SparkType("date"))
    call = called(
        aggregate(function("Sum", PRICE)), term(date), frame=(-3 * DAY_US, ROW), by_rows=False, distances=days
    )
    assert function_of(written(), call, ["price"]) == over.sum("price", range=(-3, 0))


@pytest.mark.parametrize("type_", [TEXT, SparkType("decimal(8,2)"), SparkType("date")])
def test_a_distance_of_another_type_than_the_order_is_refused(type_: SparkType) -> None:
    call = called(aggregate(function("Sum", PRICE)), term(column("o", type_)), frame=(-3, ROW), by_rows=False)
    with pytest.raises(InvalidPipelineError, match=r"RANGE with a distance of this type.*found=AggregateExpression"):
        function_of(written(), call, ["price"])


@pytest.mark.parametrize(
    "refused",
    [
        function("Lag", PRICE, literal(1), literal(None), ignoreNulls=True),
        aggregate(function("Sum", PRICE), distinct=True),
        aggregate(function("Percentile", PRICE)),
        aggregate(function("Last", PRICE, ignoreNulls=True)),
        aggregate(function("First", PRICE, ignoreNulls=False), where=column("large")),
    ],
)
def test_what_the_engine_has_not_is_refused(refused: object) -> None:
    call = called(refused, term(K))  # type: ignore[arg-type]
    with pytest.raises(InvalidPipelineError, match="over a partition this cannot be kept up to date: use row_number"):
        function_of(written(), call, ["price"])


def test_a_bound_that_is_no_number_is_refused() -> None:
    call = called(function("NTile", column("n", LONG)), term(K))
    with pytest.raises(InvalidPipelineError, match="neither a whole number nor an interval"):
        function_of(written(), call, [])
