"""Assets as parameters: as inputs of the Dagster op, and as arguments of the function.

Dagster's IO managers load ordinary ones when the step starts. A stream joins them as static tables: all epochs of a
Dagster run see the rows that were loaded at its start.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pyspark
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.integration.declared.parameters import STATIC, Parameters
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.upstreams.downstream import Downstream, check_spark
from dagster_ckpt.runtime.upstreams.upstream_stream import newest_manifest, read_changes, read_table


def upstream_ins(parameters: Parameters, given: Mapping[str, dg.AssetIn] | None) -> dict[str, dg.AssetIn]:
    """Each upstream as an input of the op: an edge in the asset graph.

    A stream passes no value, so no IO manager is called; an ordinary asset is loaded as its `AssetIn` says. Raises
    `InvalidPipelineError` if `given`, the decorator's `ins`, has more than a key for a stream, or names another
    parameter, and where the installed Spark cannot read a stream as a stream.
    """
    if parameters.upstreams:
        check_spark(pyspark.__version__)
    ins = {name: (given or {}).get(name, dg.AssetIn()) for name in parameters.inputs}
    for name, one in (given or {}).items():
        if name in parameters.inputs:
            continue
        if name not in parameters.upstreams:
            there = [*parameters.upstreams, *parameters.inputs]
            raise InvalidPipelineError(
                f"no parameter of this name reads an upstream: annotate it `Stream` or `DataFrame`, or with the type "
                f"that an ordinary asset is loaded as.{did_you_mean(name, there)} ins={name}, parameters={there}"
            )
        if one != dg.AssetIn(key=one.key, key_prefix=one.key_prefix):
            raise InvalidPipelineError(
                f"an upstream stream is read by its epochs, so its AssetIn can have only a key: leave out the rest, or "
                f'declare a DataFrame of an ordinary asset by metadata={{"{STATIC}": True}}. ins={name}'
            )
    for name in parameters.upstreams:
        prefix = given[name].key_prefix if given and name in given else None
        key = given[name].key if given and name in given else None
        if key is None:
            prefixes = [prefix] if isinstance(prefix, str) else list(prefix or [])
            key = dg.AssetKey([*prefixes, name])
        ins[name] = dg.AssetIn(key=key, dagster_type=dg.Nothing)
    return ins


def read_upstreams(
    parameters: Parameters,
    context: dg.AssetExecutionContext,
    spark: SparkSession,
    downstream: Downstream,
    wait_ms: int,
    clock: Clock,
) -> dict[str, Stream | DataFrame]:
    """The argument of each upstream parameter.

    Raises `InvalidPipelineError` for a stream that was never materialized, also not within `wait_ms`.
    """
    keys = context.assets_def.keys_by_input_name  # with the prefixes that Dagster has given them since
    read: dict[str, Stream | DataFrame] = {}
    for name, kind in parameters.upstreams.items():
        try:
            newest = newest_manifest(downstream, keys[name].path, clock, wait_ms)
        except InvalidPipelineError as error:
            if kind is Stream:
                raise
            raise InvalidPipelineError(
                "a parameter annotated DataFrame is the change log of an upstream stream; if the asset is an ordinary "
                f'one, declare it by ins={{"{name}": dg.AssetIn(metadata={{"{STATIC}": True}})}}. reason={error}'
            ) from error
        read[name] = (
            read_table(spark, downstream, newest) if kind is Stream else read_changes(spark, downstream, newest)
        )
    return read


_DATA_VERSION = "dagster/data_version"


def read_inputs(parameters: Parameters, spark: SparkSession, loaded: Mapping[str, object]) -> dict[str, object]:
    """The argument of each ordinary input. `loaded` has what its IO manager returned, by the parameter's name.

    Spark would read a DataFrame again in each epoch, and in each retry of one, while its files may change. So its rows
    are collected here, once, and kept in the driver; `spark` is the stream's session.
    """
    return {name: _outlasting(loaded[name], spark) for name in parameters.inputs}


def _outlasting(value: object, spark: SparkSession) -> object:
    return spark.createDataFrame(value.toArrow(), value.schema) if isinstance(value, DataFrame) else value


def versions_of_inputs(context: dg.AssetExecutionContext, parameters: Parameters) -> dict[str, dg.MetadataValue[Any]]:
    """Metadata with the data version of each ordinary input; none for an asset that Dagster never saw materialized."""
    versions: dict[str, dg.MetadataValue[Any]] = {}
    for name in parameters.inputs:
        key = context.assets_def.keys_by_input_name[name]
        entry = context.instance.get_latest_materialization_event(key)
        event = None if entry is None else entry.asset_materialization
        version = None if event is None else (event.tags or {}).get(_DATA_VERSION)
        if version is not None:
            versions[f"input_data_version/{key.to_user_string()}"] = dg.MetadataValue.text(version)
    return versions
