"""Jobs that Dagster can load by itself, in this process or a child: on the place that the environment names."""

import os
from pathlib import Path

import dagster as dg
import pandas as pd
from dagster_pyspark import LazyPySparkResource

from tests.dagster.place import Place

PLACE = "DAGSTER_CKPT_TEST_PLACE"
FORKED = {"start_method": {"forkserver": {"preload_modules": [__name__]}}}
"""Each step in a process of its own, which need not import everything again."""


def _place() -> Place:
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    return Place(Path(os.environ[PLACE]), LazyPySparkResource(spark_config=settings), dg.DagsterInstance.ephemeral())


def one_stream() -> dg.JobDefinition:
    place = _place()
    return place.definitions(streams=[place.counts()]).resolve_job_def("counts_job")


def a_stream_of_two_instances() -> dg.JobDefinition:
    """`one_stream` for another test: Dagster loads each function once in a process, with the place of that moment."""
    return one_stream()


def two_streams_and_a_report() -> dg.JobDefinition:
    """As the asset page runs a selection: with Dagster's multiprocess executor."""
    place = _place()

    @dg.asset
    def report(one: pd.DataFrame, two: pd.DataFrame) -> None:
        (place.folder / "report").write_text(f"{one['total'].sum()} {two['total'].sum()}")

    streams = [place.counts(name=name, mode="continuous") for name in ("one", "two")]
    executor = dg.multiprocess_executor.configured(FORKED)
    everything = dg.Definitions(jobs=[dg.define_asset_job("everything", "*", executor_def=executor)])
    return dg.Definitions.merge(place.definitions(report, streams=streams), everything).resolve_job_def("everything")
