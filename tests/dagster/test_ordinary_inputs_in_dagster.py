"""Ordinary assets as inputs of a stream: loaded by their IO manager when the Dagster run starts."""

import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import Stream, streaming_asset
from tests.dagster.place import Place


class Files(dg.IOManager):
    """Each table in a Parquet file, loaded as the input's annotation says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def handle_output(self, context: dg.OutputContext, table: pd.DataFrame) -> None:
        self.folder.mkdir(exist_ok=True)
        table.to_parquet(self.folder / f"{context.asset_key.path[-1]}.parquet")

    def load_input(self, context: dg.InputContext) -> object:
        file = str(self.folder / f"{context.asset_key.path[-1]}.parquet")
        if context.dagster_type.typing_type is DataFrame:
            return SparkSession.builder.getOrCreate().read.parquet(file)
        return pd.read_parquet(file)


@pytest.mark.filterwarnings("ignore:Parameter .data_version.")
def test_a_stream_joins_ordinary_assets_as_of_the_start_of_its_dagster_run(place: Place) -> None:
    names, files = {"a": "Alpha"}, place.folder / "tables"

    @dg.asset(io_manager_key="files")
    def airlines():  # type: ignore[no-untyped-def]
        yield dg.Output(
            pd.DataFrame({"k": [*names], "name": [*names.values()]}), data_version=dg.DataVersion(names["a"])
        )

    @dg.asset(io_manager_key="files")
    def rates() -> pd.DataFrame:
        return pd.DataFrame({"k": ["a"], "rate": [len(names["a"])]})

    @streaming_asset(ins={"rates": dg.AssetIn(metadata={"static": True})})
    def named(spark: SparkSession, airlines: pd.DataFrame, rates: DataFrame) -> Stream:
        shutil.rmtree(files)  # nothing reads the files again, whatever becomes of them
        return Stream(place.read(spark).join(spark.createDataFrame(airlines), "k").join(rates, "k"))

    def run_all() -> Any:
        mine = place.definitions(airlines, rates, streams=[named])
        everything = dg.Definitions.merge(mine, dg.Definitions(resources={"files": Files(files)}))
        job = everything.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(instance=place.instance, raise_on_error=False)

    place.drop(("a", 1), ("b", 1))
    place.drop(("a", 2))
    assert run_all().success
    names["a"] = "Aleph 0"
    place.drop(("a", 3))
    assert run_all().success
    rows = place.history("named").read(columns=["v", "name", "rate"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(1, "Alpha", 5), (2, "Alpha", 5), (3, "Aleph 0", 7)]
    versions = [event.metadata["input_data_version/airlines"].value for event in place.events("named")]
    assert list(dict.fromkeys(versions)) == ["Alpha", "Aleph 0"]
