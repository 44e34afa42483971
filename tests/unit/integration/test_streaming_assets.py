"""A location, or `dg.materialize`, that has nothing under `state` and `epochs`."""

import inspect
from collections.abc import Callable
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from dagster_ckpt import CheckpointCoordinatorResource, EpochIOManager, LsmStateBackendResource, Stream, streaming_asset
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints
from dagster_ckpt.integration.streaming_assets import DEFAULT_STATE

CHECKPOINTS = CheckpointCoordinatorResource(url="file:///tmp/nowhere")
NEEDED = {"checkpoints": CHECKPOINTS, "spark": LazyPySparkResource(spark_config={"spark.master": "local[1]"})}


def a_stream(name: str, **options: Any) -> dg.AssetsDefinition:
    def never_called(spark: SparkSession) -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    asset: dg.AssetsDefinition = decorate(name=name, **options)(never_called)
    return asset


@dg.asset
def reader(a: pa.Table) -> None: ...


def resources_of(*assets: dg.AssetsDefinition, **resources: Any) -> Any:
    defs = dg.Definitions(assets=assets, resources={**NEEDED, **resources})
    dg.Definitions.validate_loadable(defs)
    return defs.resolve_implicit_global_asset_job_def().resource_defs


def test_streams_and_their_readers_need_only_checkpoints_and_spark() -> None:
    found = resources_of(a_stream("a"), a_stream("b"), reader)
    assert found["state"] == DEFAULT_STATE.get_resource_definition()
    assert found["epochs"] is epochs_of_checkpoints


def test_resources_of_the_location_replace_the_defaults() -> None:
    mine, reads = LsmStateBackendResource(memory_limit="1 GiB"), EpochIOManager(checkpoints=CHECKPOINTS)
    found = resources_of(a_stream("a"), reader, state=mine, epochs=reads)
    assert found["state"].configurable_resource_cls is LsmStateBackendResource
    assert found["state"] != DEFAULT_STATE.get_resource_definition()
    assert found["epochs"] is not epochs_of_checkpoints


@pytest.mark.filterwarnings("ignore:Parameter .resource_defs. of function .multi_asset.")
def test_resources_of_the_asset_replace_the_defaults() -> None:
    mine = LsmStateBackendResource(memory_limit="1 GiB").get_resource_definition()
    assert resources_of(a_stream("a", resource_defs={"state": mine}))["state"] == mine


@pytest.mark.parametrize(
    "copied",
    [
        lambda asset: asset.with_attributes(asset_key_replacements={asset.key: asset.key.with_prefix("eu")}),
        lambda asset: asset.map_asset_specs(lambda spec: spec.replace_attributes(group_name="eu")),
        lambda asset: dg.map_asset_specs(lambda spec: spec.merge_attributes(tags={"a": "b"}), [asset])[0],
    ],
)
def test_copies_of_a_stream_have_the_defaults(copied: Callable[[dg.AssetsDefinition], dg.AssetsDefinition]) -> None:
    assert {"state", "epochs"} <= resources_of(copied(a_stream("a"))).keys()


def test_a_missing_store_stays_an_error() -> None:
    defs = dg.Definitions(assets=[a_stream("a")], resources={"spark": NEEDED["spark"]})
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="checkpoints"):
        dg.Definitions.validate_loadable(defs)


@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_source_code_references_lead_to_the_users_function() -> None:
    more = dg.CodeReferencesMetadataValue(code_references=[dg.UrlCodeReference(url="https://example.org/runbook")])
    [linked] = dg.with_source_code_references([a_stream("a", metadata={"dagster/code_references": more})])
    assert isinstance(linked, dg.AssetsDefinition)
    runbook, code = linked.get_asset_spec().metadata["dagster/code_references"].code_references
    assert runbook == more.code_references[0]
    line = inspect.getsourcelines(a_stream)[1] + 1
    assert (code.file_path, code.line_number) == (__file__, line)
    assert {"state", "epochs"} <= resources_of(linked).keys(), "it is still a streaming asset"
