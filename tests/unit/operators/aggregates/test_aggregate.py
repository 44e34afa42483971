from datetime import UTC, date, datetime
from decimal import Decimal
from math import inf, isnan, nan, sqrt
from statistics import variance
from typing import Any

import pyarrow as pa
import pytest

from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from tests.unit.operators.streams import Streamed, aggregated, build


def rows(type_: pa.DataType, *values: tuple[object, object]) -> pa.Table:
    return pa.table(
        {"k": pa.array([key for key, _ in values], pa.string()), "v": pa.array([value for _, value in values], type_)}
    )


def test_count_without_a_column_counts_rows_and_with_one_counts_values() -> None:
    table = rows(pa.int32(), ("a", 1), ("a", None), ("b", None))
    assert aggregated(table, n=agg.count()) == {"a": 2, "b": 1}
    assert aggregated(table, n=agg.count("v")) == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    "aggregation", [agg.sum("v"), agg.min("v"), agg.max("v"), agg.avg("v"), agg.stddev("v"), agg.variance("v")]
)
@pytest.mark.parametrize("type_", [pa.int16(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2)])
def test_an_aggregate_of_nothing_but_nulls_is_null(aggregation: Aggregation, type_: pa.DataType) -> None:
    table = rows(type_, ("a", None), ("b", 1), ("a", None))
    assert aggregated(table, x=aggregation)["a"] is None


def test_a_null_key_is_a_key() -> None:
    assert aggregated(rows(pa.int64(), (None, 1), ("a", 2), (None, 3)), x=agg.sum("v")) == {None: 4, "a": 2}


@pytest.mark.parametrize(
    ("aggregation", "type_", "result"),
    [
        (agg.count("v"), pa.string(), pa.int64()),
        (agg.sum("v"), pa.int8(), pa.int64()),
        (agg.sum("v"), pa.int64(), pa.int64()),
        (agg.sum("v"), pa.float32(), pa.float64()),
        (agg.sum("v"), pa.decimal128(9, 2), pa.decimal128(19, 2)),
        (agg.sum("v"), pa.decimal128(30, 2), pa.decimal128(38, 2)),
        (agg.avg("v"), pa.int64(), pa.float64()),
        (agg.avg("v"), pa.float32(), pa.float64()),
        (agg.avg("v"), pa.decimal128(9, 2), pa.decimal128(13, 6)),
        (agg.avg("v"), pa.decimal128(37, 2), pa.decimal128(38, 6)),
        (agg.min("v"), pa.int8(), pa.int8()),
        (agg.max("v"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        (agg.max("v"), pa.timestamp("us"), pa.timestamp("us")),
        (agg.first("v", by="k"), pa.bool_(), pa.bool_()),
        (agg.stddev("v"), pa.decimal128(9, 2), pa.float64()),
        (agg.variance("v"), pa.int32(), pa.float64()),
    ],
)
def test_result_types_are_those_of_spark(aggregation: Aggregation, type_: pa.DataType, result: pa.DataType) -> None:
    schema = pa.schema([("k", pa.string()), ("v", type_)])
    assert build(schema, ("k",), x=aggregation).pipeline.output.field("x").type == result


@pytest.mark.parametrize(
    ("type_", "ascending"),
    [
        (pa.int8(), [-128, 0, 127]),
        (pa.int64(), [-(2**63), -1, 2**63 - 1]),
        (pa.float64(), [-inf, -1.5, 0.0, 1e300, inf]),
        (pa.float32(), [-inf, -1.5, 0.0, 1.5, inf]),
        (pa.string(), ["", "Z", "a", "aa", "é", "\U0001f600"]),
        (pa.large_string(), ["", "a"]),
        (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
        (pa.bool_(), [False, True]),
        (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
        (pa.timestamp("us", "UTC"), [datetime(1900, 1, 1, tzinfo=UTC), datetime(2013, 1, 1, tzinfo=UTC)]),
        (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(2013, 1, 1)]),  # noqa: DTZ001  (a wall-clock time)
        (pa.decimal128(38, 2), [Decimal(-(10**30)), Decimal("-0.01"), Decimal("0.01"), Decimal(10**30)]),
    ],
)
def test_least_and_greatest_of_every_type_in_any_order_and_batch(type_: pa.DataType, ascending: list[Any]) -> None:
    for values in (ascending, ascending[::-1]):
        whole = rows(type_, *(("a", value) for value in values), ("a", None), ("b", None))
        parts = [rows(type_, ("a", value), ("b", None)) for value in values]
        for batches in ([whole], parts):
            operator = build(
                whole.schema,
                ("k",),
                least=agg.min("v"),
                greatest=agg.max("v"),
                f=agg.first("v", by="v"),
                l=agg.last("v", by="v"),
            )
            streamed = Streamed(operator)
            for batch in batches:
                streamed.epoch(batch)
            assert sorted(streamed.table().to_pylist(), key=lambda row: row["k"]) == [
                {"k": "a", "least": ascending[0], "greatest": ascending[-1], "f": ascending[0], "l": ascending[-1]},
                {"k": "b", "least": None, "greatest": None, "f": None, "l": None},
            ]


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_nan_is_greater_than_any_other_number(type_: pa.DataType) -> None:
    table = rows(type_, ("a", nan), ("a", 1.0), ("b", nan), ("b", None), ("a", inf), ("c", -nan), ("c", -1.0))
    greatest = aggregated(table, x=agg.max("v"))
    assert all(isnan(value) for value in greatest.values())
    least = aggregated(table, x=agg.min("v"))
    assert least["a"] == 1.0
    assert least["c"] == -1.0
    assert isnan(least["b"])  # there is nothing else


def test_nan_is_greater_also_across_batches() -> None:
    streamed = Streamed(build(rows(pa.float64()).schema, ("k",), least=agg.min("v"), greatest=agg.max("v")))
    for value in (nan, 1.0, nan, 2.0):
        streamed.epoch(rows(pa.float64(), ("a", value)))
    (row,) = streamed.table().to_pylist()
    assert row["least"] == 1.0
    assert isnan(row["greatest"])


def test_a_sum_with_nan_is_nan_and_opposite_infinities_too() -> None:
    table = rows(pa.float64(), ("a", nan), ("a", 1.0), ("b", inf), ("b", -inf), ("c", inf), ("c", 1.0))
    sums = aggregated(table, x=agg.sum("v"))
    assert [isnan(sums[key]) for key in "abc"] == [True, True, False]
    assert sums["c"] == inf


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_nothing_a_float_column_gives_is_minus_zero_however_its_rows_are_cut(type_: pa.DataType) -> None:
    whole = rows(type_, ("a", -0.0), ("a", None), ("a", 0.0))
    for step in (1, 2, 3):
        streamed = Streamed(
            build(
                whole.schema,
                ("k",),
                sum=agg.sum("v"),
                avg=agg.avg("v"),
                min=agg.min("v"),
                first=agg.first("v", by="k"),
                last=agg.last("v", by="k"),
            )
        )
        changes = [streamed.epoch(whole.slice(start, step)) for start in range(0, 3, step)]
        (row,) = streamed.table().to_pylist()
        assert {name: str(value) for name, value in row.items() if name != "k"} == dict.fromkeys(
            row.keys() - {"k"}, "0.0"
        )
        assert not any(changes[1:]), "0 added to 0 is no change"


def test_columns_whose_names_could_run_into_each_other_are_kept_apart() -> None:
    columns = ["a by b", "c", "a", "b by c", "a%20by%20b"]
    table = pa.table(
        {"k": ["x", "x"], "a by b": [1, 2], "c": [1, 2], "a": [3, 4], "b by c": [2, 1], "a%20by%20b": [5, 6]}
    )
    pairs = [(column, by) for column in columns for by in columns]
    aggregates = {f"{column} {by}": agg.first(column, by=by) for column, by in pairs}
    streamed = Streamed(build(table.schema, ("k",), None, **aggregates))
    for row in range(2):
        streamed.epoch(table.slice(row, 1))
    (found,) = streamed.table().drop_columns(["k"]).to_pylist()
    of = table.to_pydict()
    assert found == {f"{column} {by}": of[column][of[by].index(min(of[by]))] for column, by in pairs}


@pytest.mark.parametrize("name", ["variance", "stddev"])
def test_variance_is_of_a_sample_and_null_for_one_value(name: str) -> None:
    aggregation = getattr(agg, name)("v")
    result = aggregated(rows(pa.int32(), ("a", 1), ("a", 2), ("a", 4), ("b", 5), ("a", None)), x=aggregation)
    expected = 7 / 3
    assert result == {"a": pytest.approx(expected if name == "variance" else sqrt(expected)), "b": None}


def test_variance_keeps_its_digits_far_from_zero() -> None:
    streamed = Streamed(build(rows(pa.float64()).schema, ("k",), x=agg.variance("v")))
    for value in (1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16):
        streamed.epoch(rows(pa.float64(), ("a", value)))
    assert streamed.table().column("x").to_pylist() == [pytest.approx(30.0, rel=1e-12)]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), [2**53 + 1, 5]),
        (pa.int64(), [1_700_000_000_000_000_001, 1_700_000_000_500_000_001, -(2**63)]),
        (pa.int64(), [1_700_000_000_000_000_001]),
        (pa.decimal128(38, 0), [Decimal(10**37 + 1), Decimal(5)]),
    ],
)
def test_spread_of_whole_numbers_that_no_double_holds_is_that_of_the_nearest_doubles(
    type_: pa.DataType, values: list[Any]
) -> None:
    expected = variance([float(value) for value in values]) if len(values) > 1 else None
    streamed = Streamed(build(rows(type_).schema, ("k",), variance=agg.variance("v"), stddev=agg.stddev("v")))
    streamed.epoch(rows(type_, *(("a", value) for value in values), ("a", None)))
    (row,) = streamed.table().to_pylist()
    assert row["variance"] == (expected and pytest.approx(expected, rel=1e-12))
    assert row["stddev"] == (expected and pytest.approx(sqrt(expected), rel=1e-12))


def test_variance_with_an_infinity_is_nan() -> None:
    (found,) = aggregated(rows(pa.float64(), ("a", inf), ("a", 1.0)), x=agg.variance("v")).values()
    assert isnan(found)


def test_the_mean_of_integers_is_exact_where_their_total_does_not_fit_64_bits() -> None:
    huge = 2**62
    streamed = Streamed(build(rows(pa.int64()).schema, ("k",), x=agg.avg("v")))
    for _ in range(5):
        streamed.epoch(rows(pa.int64(), *(("a", huge + step) for step in (-1024, 1024)), ("b", -huge), ("b", -huge)))
    assert streamed.table().sort_by("k").column("x").to_pylist() == [float(huge), float(-huge)]
    low = streamed.state.tables["groups"].live().column("_sum_low(v)").to_pylist()
    assert all(0 <= half < 2**32 for half in low), "the low half never grows"


def test_the_mean_of_decimals_rounds_half_up_as_spark_does() -> None:
    table = rows(pa.decimal128(9, 0), ("a", 1), ("a", 1), ("a", 0), ("b", -1), ("b", -1), ("b", 0))
    assert aggregated(table, x=agg.avg("v")) == {"a": Decimal("0.6667"), "b": Decimal("-0.6667")}
    eighths = rows(pa.decimal128(9, 1), *(("a", Decimal("0.1")),), *((("a", Decimal(0)),) * 31))
    assert aggregated(eighths, x=agg.avg("v")) == {"a": Decimal("0.00313")}  # 0.003125


def test_decimals_are_summed_exactly() -> None:
    table = rows(pa.decimal128(38, 2), ("a", Decimal("0.01")), ("a", Decimal(10**35)), ("a", Decimal(-(10**35))))
    assert aggregated(table, x=agg.sum("v")) == {"a": Decimal("0.01")}


@pytest.mark.parametrize(
    ("type_", "value"), [(pa.int64(), 2**62), (pa.int64(), -(2**62) - 1), (pa.decimal128(38, 0), Decimal(6 * 10**37))]
)
def test_a_sum_that_does_not_fit_is_an_error_and_never_wraps_round(type_: pa.DataType, value: object) -> None:
    schema = rows(type_).schema
    with pytest.raises(OverflowError, match="column=v, aggregate=sum"):
        Streamed(build(schema, ("k",), x=agg.sum("v"))).epoch(rows(type_, ("a", value), ("a", value)))
    streamed = Streamed(build(schema, ("k",), x=agg.sum("v")))
    streamed.epoch(rows(type_, ("a", value)))
    with pytest.raises(OverflowError, match="column=v, aggregate=sum"):
        streamed.epoch(rows(type_, ("a", value)))


def test_a_sum_that_just_fits_is_summed() -> None:
    table = rows(
        pa.int64(), ("a", 2**62), ("a", 2**62 - 1), ("b", -(2**62)), ("b", -(2**62)), ("c", 2**63 - 1), ("c", 0)
    )
    assert aggregated(table, x=agg.sum("v")) == {"a": 2**63 - 1, "b": -(2**63), "c": 2**63 - 1}


def test_first_and_last_go_by_the_event_time_and_ties_by_the_value() -> None:
    at = [3, 1, 1, 1, 3, 3, None, 2]
    value = ["x", "b", "a", None, "z", None, "first?", "m"]
    table = pa.table({"k": ["a"] * 8, "v": value, "t": pa.array(at, pa.timestamp("us", "UTC"))})
    operator = build(table.schema, ("k",), "t", first=agg.first("v"), last=agg.last("v"))
    for step in range(1, 9):
        streamed = Streamed(operator)
        for start in range(0, 8, step):
            streamed.epoch(table.slice(start, step))
        assert streamed.table().to_pylist() == [{"k": "a", "first": "a", "last": "z"}]
