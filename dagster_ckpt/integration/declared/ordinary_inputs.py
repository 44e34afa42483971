"""Ordinary assets as parameters: Dagster's IO managers load them when the step starts, as any asset's inputs.

A stream joins them as static tables. All epochs of a Dagster run see the rows that were loaded at its start.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.integration.declared.parameters import Parameters

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
