"""A process that counts a topic in small epochs: python -m tests.kafka.a_stream_to_kill BROKER TOPIC FOLDER."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.runtime.spark.session import announce_settings
from tests.kafka.cluster import Cluster
from tests.kafka.conftest import jars
from tests.servers.kafka import Broker
from tests.spark.streams import FAST, StreamUnderTest


class Elsewhere(Broker):
    """A broker that another process has started."""

    def __init__(self, address: str) -> None:
        self._elsewhere = address

    @property
    def address(self) -> str:
        return self._elsewhere


def main(address: str, topic: str, folder: str) -> None:
    announce_settings(os.environ)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.jars", jars("connector")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    totals = Cluster(spark, Elsewhere(address)).totals(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20
    )
    StreamUnderTest(spark, Path(folder)).run(totals, FAST, JobHooks())


main(*sys.argv[1:])
