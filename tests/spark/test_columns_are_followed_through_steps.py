"""What Spark does with columns between the steps of a stream, as its plans say."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt import Stream, agg
from dagster_ckpt.runtime.declared.column_origins import work_of_inputs
from dagster_ckpt.runtime.declared.step_parts import Upstream


@pytest.fixture
def orders(spark: SparkSession, inbox: Path) -> Stream:
    """Stands for the table of an upstream, which only grows."""
    schema = "order long, shop string, amount long, parts array<int>"
    return Stream(spark.readStream.schema(schema).parquet(str(inbox)), upstream=Upstream("orders"))


def test_a_column_is_computed_from_those_in_its_expressions(orders: Stream) -> None:
    renamed = orders.select("shop AS at", "amount + order AS sum", "1 AS one", "parts", "amount").where("amount > 3")
    worked = renamed.with_column("sum", "sum * length(at)").transform(
        lambda rows: rows.select("at", "sum", "one", F.explode("parts").alias("part"), F.rand().alias("chance"))
    )
    assert work_of_inputs(worked) == (
        ({"at": ("shop",), "sum": ("amount", "order", "shop"), "one": (), "part": ("parts",), "chance": ()},),
    )


def test_the_columns_of_another_table_are_from_nothing_that_the_stream_reads(
    spark: SparkSession, orders: Stream
) -> None:
    shops = spark.createDataFrame([("a", "Rome")], "shop string, city string")
    joined = orders.transform(lambda rows: rows.join(F.broadcast(shops), "shop", "left"))
    named = joined.select("shop", "concat(city, amount) AS what", "city")
    assert work_of_inputs(named) == (({"shop": ("shop",), "what": ("amount",), "city": ()},),)


def test_what_a_function_in_python_returns_has_no_known_origin(orders: Stream) -> None:
    def copied(rows: DataFrame) -> DataFrame:
        return rows.mapInArrow(lambda batches: batches, rows.schema).select("shop", "amount")

    assert work_of_inputs(orders.transform(copied)) == (({},),)
    named = F.udf(lambda shop: shop, "string")("shop").alias("named")
    assert work_of_inputs(orders.transform(lambda rows: rows.select("amount", named))) == (
        ({"amount": ("amount",), "named": ("shop",)},),
    )


def test_each_input_of_each_step_begins_with_what_it_reads(spark: SparkSession, inbox: Path, orders: Stream) -> None:
    totals = orders.key_by("shop").aggregate(total=agg.sum("amount"), n=agg.count())
    means = totals.select("shop", "total / n AS mean")
    own = Stream(spark.readStream.schema("shop string, city string").parquet(str(inbox)))
    joined = means.key_by("shop").join(own.key_by("shop")).with_column("cities", "upper(city)")
    assert work_of_inputs(joined.top(1, by="mean desc")) == (
        ({name: (name,) for name in ("order", "shop", "amount", "parts")},),
        ({"shop": ("shop",), "mean": ("n", "total"), "_change_type": ("_change_type",)}, None),
        (
            {
                **{name: (name,) for name in ("shop", "mean", "city", "_change_type")},
                "cities": ("city",),
            },
        ),
    )


def test_two_streams_that_spark_joins_have_no_known_origin(spark: SparkSession, inbox: Path, orders: Stream) -> None:
    other = spark.readStream.schema("shop string, price long").parquet(str(inbox))
    assert work_of_inputs(orders.transform(lambda rows: rows.join(other, "shop"))) == (({},),)
