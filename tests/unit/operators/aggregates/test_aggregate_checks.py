import re

import pyarrow as pa
import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.kinds import sketches
from tests.unit.operators.streams import build

SCHEMA = pa.schema(
    [("k", pa.string()), ("x", pa.float64()), ("route", pa.list_(pa.string())), ("at", pa.timestamp("us"))]
)


@pytest.mark.parametrize(
    ("aggregation", "message"),
    [
        (agg.count_distinct("route"), "count_distinct needs values that have an order"),
        (agg.count_distinct("rout"), "Did you mean 'route'? column=rout, use=aggregate n"),
        (agg.collect("x", 3), "give collect a column as by=, or the stream an event time by with_watermark"),
        (agg.collect("x", 3, by="route"), "by= needs values that have an order. aggregate=n, by=route"),
        (agg.collect("route", 3, by="x"), "collect needs values that have an order"),
        (
            agg.collect("x", 0, by="k"),
            "collect(column, limit), a whole number from 1 on. aggregate=n, column=x, limit=0",
        ),
        (agg.collect("x", True, by="k"), "limit=True"),
        (agg.collect("x", 2.0, by="k"), "limit=2.0"),  # type: ignore[arg-type]
        (agg.approx_count_distinct("route"), "approx_count_distinct needs values that have an order"),
        (agg.approx_count_distinct("x", 0.001), "from 0.005 to 0.25. aggregate=n, column=x, error=0.001"),
        (agg.approx_count_distinct("x", "1 %"), "error='1 %'"),  # type: ignore[arg-type]
        (agg.approx_quantile("k", 0.5), "approx_quantile needs numbers"),
        (agg.approx_quantile("x", 50), "q= is a share from 0 to 1: 0.5 for the median. aggregate=n, column=x, q=50"),
        (agg.approx_quantile("x", float("nan")), "q=nan"),
        (
            agg.approx_quantile("x", 0.5, accuracy=5),
            "a whole number from 10 to 10000. aggregate=n, column=x, accuracy=5",
        ),
        (Aggregation("collect", "x", "k"), "limit=None"),
        (Aggregation("approx_quantile"), "only count() goes without a column"),
    ],
)
def test_an_aggregate_that_cannot_work(aggregation: Aggregation, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketches, "is_installed", lambda: True)
    with pytest.raises(InvalidPipelineError, match=re.escape(message)):
        build(SCHEMA, ("k",), n=aggregation)


@pytest.mark.parametrize("aggregation", [agg.approx_count_distinct("k"), agg.approx_quantile("x", 0.5)])
def test_without_the_library_of_sketches_the_extra_is_named(
    aggregation: Aggregation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sketches, "is_installed", lambda: False)
    with pytest.raises(InvalidPipelineError, match=re.escape("install dagster-ckpt[sketches]")):
        build(SCHEMA, ("k",), n=aggregation)


@pytest.mark.parametrize("key", ["_value", "_n_distinct(x)"])
def test_a_key_that_the_state_needs_for_different_values(key: str) -> None:
    schema = pa.schema([(key, pa.string()), ("x", pa.float64())])
    with pytest.raises(InvalidPipelineError, match=re.escape(f"rename the key before key_by. key={key}")):
        build(schema, (key,), n=agg.count_distinct("x"))


def test_what_older_releases_wrote_is_written_as_it_was() -> None:
    assert agg.last("x", by="k").spelling() == {"function": "last", "column": "x", "by": "k"}
    assert agg.collect("x", 5).spelling() == {"function": "collect", "column": "x", "by": None, "limit": 5}
    for one in (agg.count(), agg.collect("x", 5), agg.approx_count_distinct("x"), agg.approx_quantile("x", 0)):
        assert Aggregation.of({"name": "n", **one.spelling()}) == one
