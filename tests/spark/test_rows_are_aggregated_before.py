"""Where keys have many rows in an epoch, Spark aggregates them before it shuffles: the state must not show it."""

import math
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.aggregate import GROUPS, RunningAggregate
from dagster_ckpt.operators.partial_aggregate import PartialAggregate, can_be_partial, partial_aggregate
from dagster_ckpt.operators.step import OperatorStep
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.streaming_query import EpochQuery
from dagster_ckpt.runtime.micro_batch import epoch_plans
from dagster_ckpt.runtime.micro_batch.epoch_plans import EpochPlans, Shuffled
from dagster_ckpt.runtime.plans.returned import stream_returned
from tests.spark.input_files import drop
from tests.spark.streams import StreamUnderTest
from tests.spark.ways import SPARK
from tests.unit.operators.dict_state import DictState
from tests.unit.operators.streams import context
from tests.worlds.examples import examples

COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("s", pa.int16()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(20, 2)),
        ("w", pa.decimal128(38, 0)),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
    ]
)
OF_ALL: Mapping[str, Aggregation] = {
    "rows": agg.count(),
    "values": agg.count("d"),
    "n_sum": agg.sum("n"),
    "n_avg": agg.avg("n"),
    "s_sum": agg.sum("s"),
    "s_avg": agg.avg("s"),
    "d_sum": agg.sum("d"),
    "d_avg": agg.avg("d"),
    "d_spread": agg.stddev("d"),
    "m_sum": agg.sum("m"),
    "m_avg": agg.avg("m"),
    "w_sum": agg.sum("w"),
    "true": agg.count_if("b"),
    "all": agg.bool_and("b"),
    "any": agg.bool_or("b"),
    "and": agg.bit_and("n"),
    "or": agg.bit_or("s"),
    "xor": agg.bit_xor("n"),
    **{f"{name}_least": agg.min(name) for name in COLUMNS.names if name != "k"},
    **{f"{name}_most": agg.max(name) for name in COLUMNS.names if name != "k"},
}
EDGES: Mapping[str, list[Any]] = {
    "n": [2**63 - 1, -(2**63), 2**62, 0, -1],
    "s": [2**15 - 1, -(2**15), 0, -1],
    "d": [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.25, 1e100],
    "f": [math.nan, math.inf, -0.0, 0.5],
    "m": [Decimal("999999999999999999.99"), Decimal("-0.01"), Decimal("0.00")],
    "w": [Decimal(10**38 - 1), Decimal(-(10**38) + 1), Decimal(7)],
    "b": [True, False],
    "t": [0, 10**15, -(10**15)],
    "day": [0, 20_000, -20_000],
}


@st.composite
def some_rows(draw: st.DrawFn) -> pa.Table:
    """Rows of few keys, with the values at which types end, and with totals that may leave them."""
    size, chance = draw(st.integers(1, 40)), np.random.default_rng(draw(st.integers(0, 2**32)))
    wild = draw(st.booleans())
    columns: list[pa.Array] = []
    for field in COLUMNS:
        if field.name == "k":
            values: list[Any] = [("a", "b", "", "ä", None)[place] for place in chance.integers(0, 5, size)]
        else:
            pool = [*EDGES[field.name], None]
            if not wild and field.name in ("n", "w"):
                pool = [each for each in pool if each is None or abs(each) < 2**62]
            values = [pool[place] for place in chance.integers(0, len(pool), size)]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=COLUMNS)


@given(first=some_rows(), second=some_rows())
@examples(25, usual=8)
def test_the_state_is_that_of_the_rows(spark_of_all: SparkSession, first: pa.Table, second: pa.Table) -> None:
    operator = RunningAggregate.build(("k",), OF_ALL, InputSpec((), COLUMNS))
    of_rows = _state_after(operator, [first, second])
    aggregated = partial_aggregate(OperatorStep.of(operator))
    of_partials = _state_after(aggregated, [_in_spark(spark_of_all, aggregated, each) for each in (first, second)])
    if isinstance(of_rows, str) or isinstance(of_partials, str):
        assert of_rows == of_partials, "a total outgrows its type in both, or in none"
        return
    assert of_rows.keys() == of_partials.keys()
    for key, row in of_rows.items():
        for name, value in row.items():
            assert _alike(of_partials[key][name], value), (key, name)


@pytest.mark.parametrize("settings", [(True, True), (False, True), (True, False), (False, False)], ids=str)
@pytest.mark.parametrize(
    "digits", [(38, 0), (38, 6), (38, 19), (38, 20), (38, 38), (29, 0), (29, 29), (28, 4)], ids=str
)
def test_a_total_of_decimals_may_outgrow_them_on_the_way(
    spark_of_all: SparkSession, digits: tuple[int, int], settings: tuple[bool, bool]
) -> None:
    """Whatever the order, and in pieces: Spark's own total has no more than 38 digits at any moment."""
    spark = spark_of_all.newSession()
    for name, value in zip(("ansi.enabled", "decimalOperations.allowPrecisionLoss"), settings, strict=True):
        spark.conf.set(f"spark.sql.{name}", value)
    precision, scale = digits
    most = 10**precision - 1
    parts = [most, most, most, -most, -most, 7, -1, most // 10**9, None, -most // 3, 0, 10**28, -(10**28), 10**20 - 1]
    units = [each for each in parts if each is None or abs(each) <= most]
    values = pa.array([None if each is None else Decimal(f"{each}e-{scale}") for each in units], pa.decimal128(*digits))
    rows = pa.table({"k": ["a"] * len(units), "v": values})
    operator = RunningAggregate.build(("k",), {"total": agg.sum("v")}, InputSpec((), rows.schema))
    aggregated = partial_aggregate(OperatorStep.of(operator))
    of_rows = _state_after(operator, [rows])
    assert of_rows["a"]["_sum(v)"] == Decimal(f"{sum(each or 0 for each in units)}e-{scale}")
    assert _state_after(aggregated, [_in_spark(spark, aggregated, rows)]) == of_rows
    two_on_top = pa.concat_tables([rows, rows.slice(0, 2)])
    if precision == 38:
        assert (
            "outgrew"
            in _state_after(operator, [two_on_top])
            == _state_after(aggregated, [_in_spark(spark, aggregated, two_on_top)])
        )


def _state_after(operator: RunningAggregate | PartialAggregate, batches: list[pa.Table]) -> Any:
    state = DictState.of(operator.pipeline)
    try:
        for batch in batches:
            hashes = np.full(batch.num_rows, 7, dtype=np.uint64)
            operator.on_rows(0, hashes, batch, state, context())
    except OverflowError as error:
        return str(error)
    return {row["k"]: row for row in state.tables[GROUPS].live().to_pylist()}


def _in_spark(spark: SparkSession, aggregated: PartialAggregate, rows: pa.Table) -> pa.Table:
    frame = spark.createDataFrame(rows)
    own = zip(aggregated.schema.names[1:], aggregated.partials({}), strict=True)
    found = frame.groupBy("k").agg(*(F.expr(each.sql).alias(name) for name, each in own)).toArrow()
    return found.cast(aggregated.schema).combine_chunks()


def _alike(found: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return (
            found == wanted or (math.isnan(found) and math.isnan(wanted)) or math.isclose(found, wanted, rel_tol=1e-9)
        )
    return found == wanted


@pytest.mark.parametrize(
    ("columns", "aggregations"),
    [
        ({"v": pa.string()}, {"most": agg.max("v")}),
        ({"v": pa.int64()}, {"values": agg.count_distinct("v")}),
        ({"v": pa.int64(), "at": pa.int64()}, {"last": agg.last("v", by="at")}),
    ],
)
def test_what_needs_the_rows_gets_them(
    columns: Mapping[str, pa.DataType], aggregations: dict[str, Aggregation]
) -> None:
    schema = pa.schema([("k", pa.string()), *columns.items()])
    source = InputSpec((), schema)
    assert not can_be_partial(OperatorStep.of(RunningAggregate.build(("k",), aggregations, source)))
    assert can_be_partial(OperatorStep.of(RunningAggregate.build(("k",), {"rows": agg.count()}, source)))


TEXT = "SELECT shop, count(*) AS n, sum(amount) AS total, max(amount) AS most FROM rows GROUP BY shop"


AS_ROWS, AS_GROUPS, AS_FEW_GROUPS = Shuffled


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Shuffled]:
    """What Spark brought to the tasks of each epoch."""
    ways, on = list[Shuffled](), EpochPlans.on

    def noted(plans: EpochPlans, batch: DataFrame, reads: Any) -> Any:
        found, first = on(plans, batch, reads), plans.stages[0]
        ways.append(
            AS_ROWS if first.partial is None else AS_FEW_GROUPS if first.setup.assignment.tasks == 1 else AS_GROUPS
        )
        return found

    monkeypatch.setattr(EpochPlans, "on", noted)
    return ways


@pytest.mark.ways(SPARK)
@pytest.mark.parametrize(
    ("text", "few", "shuffled"),
    [
        pytest.param(
            TEXT, ((50, 2.5),), [AS_ROWS, *[AS_FEW_GROUPS] * 3, *[AS_ROWS] * 2, AS_FEW_GROUPS], id="keys-of-one-task"
        ),
        pytest.param(TEXT, (), [AS_ROWS, *[AS_GROUPS] * 3, *[AS_ROWS] * 2, AS_GROUPS], id="keys"),
        pytest.param(
            TEXT.replace("shop,", "").replace(" GROUP BY shop", ""),
            ((1, 0.0),),
            [AS_ROWS, *[AS_FEW_GROUPS] * 6],
            id="all-rows",
        ),
    ],
)
def test_each_epoch_is_made_as_the_last_one_should_have_been(
    stream: StreamUnderTest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made: list[Shuffled],
    text: str,
    few: tuple[tuple[int, float], ...],
    shuffled: list[Shuffled],
) -> None:
    monkeypatch.setattr(epoch_plans, "_FEW_AT", few)
    folder = tmp_path / "rows"
    folder.mkdir()
    chance = np.random.default_rng(7)
    epochs = [
        pa.table({"shop": chance.integers(0, keys, 100), "amount": chance.integers(-1000, 1000, 100)})
        for keys in (5, 5, 5, 100_000, 100_000, 5, 5)
    ]
    for number, rows in enumerate(epochs):
        drop(folder, number, rows)

    def function(session: SparkSession) -> Stream:
        reader = session.readStream.schema("shop long, amount long").option("maxFilesPerTrigger", 1)
        return stream_returned("totals", text, session, {"rows": Stream(reader.parquet(str(folder)))})

    plans: list[str] = []
    execution_of_batch = EpochQuery.execution_of_batch

    def noted(query: EpochQuery, frame: DataFrame) -> Any:
        execution: Any = execution_of_batch(query, frame)
        plans.append(str(execution.sparkPlan().toString()))
        return execution

    monkeypatch.setattr(EpochQuery, "execution_of_batch", noted)
    stream.run(function)
    assert plans
    assert all("FileScan parquet" in plan for plan in plans[1:]), "Spark reads and aggregates in one go"
    assert made == shuffled
    counts = [epoch.manifest.statistics.rows_in for epoch in stream.epochs]
    assert [count for count in counts if count] == [100] * len(epochs)
    batch = stream.spark.createDataFrame(pa.concat_tables(epochs))
    batch.createOrReplaceTempView("rows")
    assert stream.rows() == sorted((row.asDict() for row in stream.spark.sql(text).collect()), key=repr)
    assert stream.history().verify().whole


@pytest.mark.ways(SPARK)
def test_rows_are_not_aggregated_where_spark_shuffles_them_to_read_them(
    stream: StreamUnderTest, tmp_path: Path, made: list[Shuffled]
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(3):
        drop(folder, number, pa.table({"shop": [1, 1, 2], "amount": [number, 10, 100]}))

    def function(session: SparkSession) -> Stream:
        reader = session.readStream.schema("shop long, amount long").option("maxFilesPerTrigger", 1)
        names = session.createDataFrame([(1, "one"), (2, "two")], "shop long, name string").hint("merge")
        return Stream(reader.parquet(str(folder)).join(names, "shop")).key_by("name").aggregate(total=agg.sum("amount"))

    stream.run(function)
    assert made == [AS_ROWS] * 3
    assert stream.rows() == [{"name": "one", "total": 33}, {"name": "two", "total": 300}]
