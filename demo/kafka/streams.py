"""The code location: the topic `flights` becomes two streams, and each of them is delivered to two destinations."""

import os

import dagster as dg
import pyspark.sql.functions as F
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import DataFrame, SparkSession

from assets.flights import SCHEMA
from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    deliver,
    streaming_asset,
)
from dagster_ckpt.destinations import DeltaLake, Iceberg, Kafka, Postgres
from demo.kafka.places import BROKER, DATABASE, DELAYS, DEPARTURES, FLIGHTS, Places

PLACES = Places.of_environment()
RECOVERY = Recovery(lease_timeout="5s", backoff="1s")


def departed_flights(spark: SparkSession) -> DataFrame:
    """The flights that left, from the JSON in the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ[BROKER])
        .option("subscribe", FLIGHTS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 50_000)
        .load()
    )
    flight = F.from_json(F.col("value").cast("string"), SCHEMA)
    return records.select(flight.alias("flight")).select("flight.*").where("departed_at is not null")


@streaming_asset(name=DEPARTURES, mode="continuous", autostart=True, shards=2, recovery=RECOVERY)
def departures(spark: SparkSession) -> Stream:
    """Every departure once."""
    return Stream(departed_flights(spark))


@streaming_asset(name=DELAYS, mode="continuous", autostart=True, shards=2, recovery=RECOVERY)
def delay_by_route(spark: SparkSession) -> Stream:
    """How late every carrier leaves on every route: flights, mean and worst delay in minutes."""
    return (
        Stream(departed_flights(spark))
        .key_by("origin", "destination", "carrier")
        .aggregate(flights=agg.count(), mean_delay=agg.avg("dep_delay"), worst_delay=agg.max("dep_delay"))
    )


DELIVERIES = [
    deliver(
        delay_by_route,
        to=Postgres(dg.EnvVar(DATABASE), table=DELAYS),
        name="delays_in_postgres",
        recovery=RECOVERY,
    ),
    deliver(
        delay_by_route,
        to=DeltaLake(str(PLACES.delta)),
        name="delays_in_delta",
        recovery=RECOVERY,
    ),
    deliver(
        departures,
        to=Kafka(dg.EnvVar(BROKER), topic=DEPARTURES),
        mode="append",
        name="departures_in_kafka",
        recovery=RECOVERY,
    ),
    deliver(
        departures,
        to=Iceberg(PLACES.iceberg, properties=PLACES.catalog),
        mode="append",
        name="departures_in_iceberg",
        recovery=RECOVERY,
    ),
]

defs = build_streaming_definitions(
    assets=[departures, delay_by_route, *DELIVERIES],
    checkpoints=CheckpointCoordinatorResource(url=PLACES.store, checkpoint_interval="1s", event_interval="5s"),
    spark=LazyPySparkResource(
        spark_config={
            "spark.master": "local[2]",
            "spark.driver.memory": "768m",
            "spark.driver.extraClassPath": f"{os.environ['DAGSTER_CKPT_TEST_JARS']}/connector/*",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
        }
    ),
)
