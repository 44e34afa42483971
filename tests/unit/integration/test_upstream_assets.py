"""Upstream assets as arguments of a streaming function, and what an unsuitable one says."""

from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt import InvalidPipelineError, Stream, streaming_asset
from dagster_ckpt.integration.declared.asset_inputs import read_upstreams
from dagster_ckpt.integration.declared.parameters import read_parameters
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.storage.stores.address import StoreAddress
from tests.worlds.clock import StillClock


def of_a_log(spark: SparkSession, airlines: DataFrame) -> Stream:
    raise NotImplementedError


def of_rows(spark: SparkSession) -> Stream:
    raise NotImplementedError


def of_a_table(spark: SparkSession, airlines: Stream) -> Stream:
    raise NotImplementedError


@pytest.mark.parametrize(("function", "hints"), [(of_a_log, True), (of_a_table, False)])
def test_a_dataframe_of_no_stream_says_how_to_declare_an_ordinary_asset(function: Any, hints: bool) -> None:
    assets = SimpleNamespace(keys_by_input_name={"airlines": dg.AssetKey("airlines")})
    context: Any = SimpleNamespace(assets_def=assets)
    downstream = Downstream(StoreAddress("memory://upstreams"), "enriched", epochs_max=1, tasks=1)
    session: Any = None
    with pytest.raises(InvalidPipelineError, match=r"never materialized.*stream=airlines") as refused:
        read_upstreams(read_parameters(function, {}), context, session, downstream, 0, StillClock())
    assert ('ins={"airlines": dg.AssetIn(metadata={"static": True})}' in str(refused.value)) == hints


def test_a_spark_that_cannot_read_streams_as_streams_is_refused_where_the_asset_is_defined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    for function in (of_a_log, of_a_table):
        with pytest.raises(InvalidPipelineError, match=r"needs Spark 4\.2.*pyspark=4\.1\.4"):
            streaming_asset(function)
    assert streaming_asset(of_rows).key == dg.AssetKey("of_rows")
