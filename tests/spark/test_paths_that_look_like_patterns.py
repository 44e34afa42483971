"""Spark 4.2 reads a micro-batch of several files more than once where one of their paths looks like a pattern."""

import os

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream
from tests.spark.input_files import START_S, drop
from tests.spark.streams import StreamUnderTest

NAMES = ["a[1].parquet", "a1.parquet", "b{c}.parquet", "d*e.parquet", "f\\g.parquet", "plain.parquet"]


def test_files_that_spark_would_read_twice_are_refused_and_read_once_one_at_a_time(stream: StreamUnderTest) -> None:
    inbox = stream.root / "in"

    def function(spark: SparkSession, **options: str) -> Stream:
        return Stream(spark.readStream.schema("k string").options(**options).parquet(str(inbox)))

    for number, name in enumerate(NAMES):
        path = drop(inbox, number, pa.table({"k": [name]})).rename(inbox / name)
        os.utime(path, (START_S + number, START_S + number))
    with pytest.raises(InvalidPipelineError, match=r"maxFilesPerTrigger.*asset=.*file=.*a%5B1%5D\.parquet, files=6"):
        stream.run(function)
    assert stream.rows() == []
    stream.run(lambda spark: function(spark, maxFilesPerTrigger="1"))
    assert sorted(stream.table()["k"].to_pylist()) == sorted(NAMES)
