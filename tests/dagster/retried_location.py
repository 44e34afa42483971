"""A job that Dagster can load by itself: the stream of the place that the environment names."""

import os
from pathlib import Path

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from tests.dagster.place import Place


def the_job() -> dg.JobDefinition:
    place = Place(
        Path(os.environ["DAGSTER_CKPT_TEST_PLACE"]),
        LazyPySparkResource(spark_config={"spark.master": "local[2]"}),
        dg.DagsterInstance.ephemeral(),
    )
    return place.definitions(streams=[place.counts()]).resolve_job_def("counts_job")
