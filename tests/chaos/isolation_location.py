"""Two chains that have nothing in common but the host, one of which can be made to fail for ever."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    Recovery,
    Stream,
    agg,
    build_streaming_definitions,
    streaming_asset,
)
from tests.chaos.lanes import SCHEMA, checkpoints_in
from tests.chaos.small_parts import place, rows_of_inbox, small_spark

POISON = place() / "poison"
"""While it is there, the chain `broken` fails at each epoch."""

FOR_EVER = Recovery(lease_timeout="3s", backoff="1s", backoff_max="10s", max_attempts=10_000, same_error_max=20_000)


def _chain(name: str, poison: Path | None) -> list[dg.AssetsDefinition]:
    def fail_if_poisoned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if poison is not None and poison.exists():
                raise ValueError("poisoned")
            yield batch

    @streaming_asset(name=f"{name}_totals", mode="continuous", autostart=True, shards=2, recovery=FOR_EVER)
    def totals(spark: SparkSession) -> Stream:
        rows = rows_of_inbox(spark).mapInArrow(fail_if_poisoned, SCHEMA)
        return Stream(rows).key_by("key").aggregate(total=agg.sum("value"))

    @streaming_asset(
        name=f"{name}_positive",
        ins={"upstream": dg.AssetIn(key=totals.key)},
        mode="continuous",
        autostart=True,
        shards=2,
        recovery=FOR_EVER,
    )
    def positive(upstream: Stream) -> Stream:
        return upstream.where("total > 0")

    return [totals, positive]


defs = build_streaming_definitions(
    assets=[*_chain("sound", None), *_chain("broken", POISON)],
    checkpoints=CheckpointCoordinatorResource(
        url=checkpoints_in(place()), event_interval="2s", checkpoint_interval="2s", tolerable_failures=0
    ),
    spark=small_spark(),
)
