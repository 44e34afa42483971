from collections.abc import Callable, Iterator

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.query_plan import analysed_plan, refuse_stateful_steps


class Passing(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None: ...

    def handleInputRows(self, key, rows, timer_values):  # type: ignore[no-untyped-def]  # noqa: N802
        yield from rows

    def close(self) -> None: ...


def nothing(key: object, rows: object, state: object) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame()


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


STATEFUL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "dropDuplicates": lambda df: df.dropDuplicates(["value"]),
    "dropDuplicatesWithinWatermark": lambda df: df.dropDuplicatesWithinWatermark(["value"]),
    "distinct": lambda df: df.distinct(),
    "groupBy": lambda df: df.groupBy("value").count(),
    "limit": lambda df: df.limit(3),
    "a join of two streams": lambda df: df.join(df.select("value"), "value"),
    "withWatermark": lambda df: df.withWatermark("timestamp", "5 seconds"),
    "applyInPandasWithState": lambda df: df.groupBy("value").applyInPandasWithState(
        nothing, "a long", "b long", "append", "NoTimeout"
    ),
    "applyInPandas": lambda df: df.groupBy("value").applyInPandas(lambda rows: rows, df.schema),
    "transformWithState": lambda df: df.groupBy("value").transformWithState(Passing(), "a long", "update", "none"),
    "intersect": lambda df: df.select("value").intersect(df.select("value")),
    "orderBy": lambda df: df.orderBy("value"),
    "a function over": lambda df: df.selectExpr("row_number() over (partition by value order by timestamp) n"),
}


@pytest.mark.parametrize("step", STATEFUL)
def test_a_step_that_keeps_state_is_refused_by_its_name(spark: SparkSession, step: str) -> None:
    plan = analysed_plan("flights/delays", STATEFUL[step](rate(spark)))
    with pytest.raises(InvalidPipelineError, match=rf"asset=flights/delays, step=.*{step}.*, instead=") as error:
        refuse_stateful_steps("flights/delays", plan)
    assert "stateless steps only" in str(error.value)


def test_a_stateful_step_is_found_below_others_and_in_sql(spark: SparkSession) -> None:
    rate(spark).createOrReplaceTempView("ticks")
    frame = spark.sql("select c + 1 d from (select value, count(*) c from ticks group by value) where c > 2")
    with pytest.raises(InvalidPipelineError, match="step=groupBy"):
        refuse_stateful_steps("a", analysed_plan("a", frame))


def test_stateless_steps_and_static_tables_with_any_step_pass(spark: SparkSession) -> None:
    static = spark.range(5).withColumnRenamed("id", "value").groupBy("value").count().distinct().limit(3)
    frame = (
        rate(spark)
        .where("value > 0")
        .join(static, "value", "left")
        .selectExpr("*", "explode(array(1, 2)) n")
        .mapInArrow(lambda batches: batches, "timestamp timestamp, value long, count long, n int")
        .hint("broadcast")
        .coalesce(1)
    )
    refuse_stateful_steps("a", analysed_plan("a", frame.union(frame)))


def test_what_does_not_stream_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidPipelineError, match=r"spark\.readStream, not spark\.read\. asset=a"):
        analysed_plan("a", spark.range(3))
    with pytest.raises(InvalidPipelineError, match=r"Stream takes a DataFrame .* asset=a, found=builtins.int"):
        analysed_plan("a", 3)
