"""A stream with a crash on each server: worker processes with a cache on disk, readers outside of Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from dagster_ckpt.storage.stores.address import StoreAddress
from tests.spark.stream_with_a_crash import restarts_where_it_was_and_equals_a_batch


def test_a_keyed_stream_restarts_where_it_was_and_equals_a_batch(
    spark_of_all: SparkSession, tmp_path: Path, root: StoreAddress
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    store = StoreAddress(f"{root.url}/{tmp_path.name}", root.options)
    restarts_where_it_was_and_equals_a_batch(spark_of_all, tmp_path, inbox, store)
