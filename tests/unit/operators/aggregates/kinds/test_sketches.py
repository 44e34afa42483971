from datetime import date
from math import inf, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.kinds.sketches import DistinctSketch, QuantileSketch
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.keyed_streams import Stream

pytest.importorskip("datasketches", reason="needs dagster-ckpt[sketches]")


def running(schema: pa.Schema, **aggregations: agg.Aggregation) -> Stream:
    return Stream(RunningAggregate.build(("k",), aggregations, InputSpec((), schema)), distinct=1)


def rows(type_: pa.DataType, values: Any, key: str = "a") -> pa.Table:
    return pa.table({"k": pa.array([key] * len(values), pa.string()), "v": pa.array(values, type_)})


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int16(), [1, 2, 1, None]),
        (pa.float64(), [nan, 0.0, -0.0, -nan, None]),
        (pa.string(), ["a", "", "a", None]),
        (pa.binary(), [b"a", b"", None]),
        (pa.bool_(), [True, False, True, None]),
        (pa.date32(), [date(1, 1, 1), date(2013, 1, 1), None]),
        (pa.decimal128(9, 2), [1, 2, 2, None]),
    ],
)
def test_few_different_values_of_every_type_are_counted_exactly(type_: pa.DataType, values: list[Any]) -> None:
    one = running(rows(type_, []).schema, n=agg.approx_count_distinct("v"))
    one.epoch(rows(type_, values), rows(type_, [None], "b"))
    one.epoch(rows(type_, values[::-1]))
    assert {row["k"]: row["n"] for row in one.table()} == {"a": 2, "b": 0}


@pytest.mark.parametrize("error", [0.01, 0.05])
def test_many_different_values_are_counted_within_the_error_and_the_same_however_they_came(error: float) -> None:
    values = np.arange(10_000) * 7919
    counts = set()
    for cuts in (1, 7, 30):
        for order in (values, values[::-1]):
            one = running(rows(pa.int64(), []).schema, n=agg.approx_count_distinct("v", error))
            for part in np.array_split(order, cuts):
                one.epoch(rows(pa.int64(), np.concatenate([part, part[:100]])))
            counts |= {row["n"] for row in one.table()}
    [count] = counts
    assert count == pytest.approx(10_000, rel=3 * error)


@pytest.mark.parametrize("error", [0.005, 0.05, 0.25])
def test_a_sketch_of_distinct_values_has_the_documented_size(error: float) -> None:
    one = running(rows(pa.int64(), []).schema, n=agg.approx_count_distinct("v", error))
    one.epoch(rows(pa.int64(), np.arange(20_000)))
    [data] = one.world.live("groups").column(DistinctSketch.within("v", error).name).to_pylist()
    assert len(data) <= 2.2 / error**2 + 100


def test_quantiles_are_within_their_error() -> None:
    values = np.random.default_rng(5).normal(size=20_000)
    asked = {f"q{number}": q for number, q in enumerate([0.0, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0])}
    one = running(rows(pa.float64(), []).schema, **{name: agg.approx_quantile("v", q) for name, q in asked.items()})
    for part in np.array_split(values, 20):
        one.epoch(*(rows(pa.float64(), piece) for piece in np.array_split(part, 3)))
    [row] = one.table()
    assert [row["q0"], row["q6"]] == [values.min(), values.max()]
    for name, q in asked.items():
        assert (values < row[name]).mean() == pytest.approx(q, abs=0.008)
    assert one.world.live("groups").schema.names == ["k", "_rows", "_tdigest_500(v)", "_last_time"], "one for all"
    [data] = one.world.live("groups").column("_tdigest_500(v)").to_pylist()
    assert len(data) <= 21 * 500


@pytest.mark.parametrize("type_", [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(20, 2)])
def test_a_quantile_of_few_numbers_of_any_kind(type_: pa.DataType) -> None:
    one = running(rows(type_, []).schema, least=agg.approx_quantile("v", 0), most=agg.approx_quantile("v", 1))
    one.epoch(rows(type_, [3, None, 1]), rows(type_, [None], "b"))
    one.epoch(rows(type_, [7, 2]))
    assert {row["k"]: (row["least"], row["most"]) for row in one.table()} == {"a": (1.0, 7.0), "b": (None, None)}


def test_nan_and_infinities_have_no_place_among_quantiles() -> None:
    one = running(rows(pa.float64(), []).schema, most=agg.approx_quantile("v", 1))
    one.epoch(rows(pa.float64(), [nan, 2.0, inf, -inf]), rows(pa.float64(), [inf], "b"))
    assert {row["k"]: row["most"] for row in one.table()} == {"a": 2.0, "b": None}


def test_the_same_rows_give_the_same_bytes_in_any_order() -> None:
    values = np.random.default_rng(7).permutation(2_000).astype(np.float64)
    for sketch in (DistinctSketch.within("v", 0.05), QuantileSketch("v", 100)):
        states = set()
        for order in (values, values[::-1]):
            one = running(
                rows(pa.float64(), []).schema, a=agg.approx_quantile("v", 0.5, 100), b=agg.approx_count_distinct("v")
            )
            one.epoch(rows(pa.float64(), order))
            states |= set(one.world.live("groups").column(sketch.name).to_pylist())
        assert len(states) == 1


@pytest.mark.parametrize("sketch", [DistinctSketch("v", 9), QuantileSketch("v", 200)])
@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\xff" * 40, b"\x01\x02\x03"])
def test_bytes_that_are_no_sketch_are_an_error(sketch: Any, data: bytes) -> None:
    state = {sketch.name: pa.array([data], pa.binary())}
    with pytest.raises(IncompatibleStateError, match=r"cannot read a sketch of this state: .* column=v, bytes="):
        sketch.result(state, *([0.5] if isinstance(sketch, QuantileSketch) else []))
