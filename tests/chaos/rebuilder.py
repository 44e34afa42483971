"""A process that makes a stream, or rebuilds it with other code, and ends. `test_a_killed_rebuild` kills it.

`python -m tests.chaos.rebuilder FOLDER make|rebuild`
"""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from dagster_ckpt import Stream, agg
from dagster_ckpt.runtime.spark.session import announce_settings
from tests.spark.streams import StreamUnderTest

NAME = "totals"


def main(folder: str, what: str) -> None:
    """Run until all files in the folder's inbox are in the stream."""
    root = Path(folder)
    announce_settings(os.environ)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    under_test = StreamUnderTest(spark, root, NAME, shards=2)

    def keyed(session: SparkSession) -> Stream:
        frame = session.readStream.schema("k string, v long").option("maxFilesPerTrigger", "1")
        return Stream(frame.parquet(str(root / "inbox"))).key_by("k")

    if what == "make":
        under_test.run(lambda session: keyed(session).aggregate(n=agg.count(), total=agg.sum("v")))
    else:
        under_test.rebuild(lambda session: keyed(session).aggregate(n=agg.count(), largest=agg.max("v")))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
