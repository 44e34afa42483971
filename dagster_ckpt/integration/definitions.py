"""Everything a code location needs to run streams, in one call."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.asset_options import Source
from dagster_ckpt.integration.check_jobs import check_definitions
from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY, distinct_names
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource, uri_of
from dagster_ckpt.integration.declared.streaming_function import require_streaming
from dagster_ckpt.integration.epoch_checks import EpochChecks
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints
from dagster_ckpt.integration.recovery.sensor import build_recovery_sensor, sensor_name_of
from dagster_ckpt.integration.sql.streaming_sql import streaming_sql
from dagster_ckpt.integration.streaming_assets import StreamingAssetsDefinition
from dagster_ckpt.storage.stores.address import check_reach


def build_streaming_definitions(
    assets: Sequence[dg.AssetsDefinition] = (),
    checkpoints: CheckpointCoordinatorResource | None = None,
    state: LsmStateBackendResource | None = None,
    spark: object | None = None,
    name: str | None = None,
    checks: Sequence[dg.AssetChecksDefinition | EpochChecks] = (),
    sql: str | Path | None = None,
    sources: Mapping[str, Source] | None = None,
) -> dg.Definitions:
    """The assets with checks and sources, a job for each, the recovery sensor and the resources under the right keys.

        defs = build_streaming_definitions(
            assets=[delay_by_carrier, late_carriers],
            checkpoints=CheckpointCoordinatorResource(url="file:///data/checkpoints"),
            spark=LazyPySparkResource(spark_config={"spark.master": "local[*]"}),
        )

    A resource that is None is taken from the location's resources, by the same key: `checkpoints`, `state` (which has a
    default), `spark`. The location's executor is unchanged.

    Several calls in one location merge. The sensor of the call that has the resource `checkpoints` is
    `streaming_recovery`. That of a call without it, or with one that another call has too, begins with the name of its
    first stream: `delay_by_carrier_streaming_recovery`. `name` prefixes the names of the jobs and the sensor instead.

    `checks` are asset checks of these streams, and `epoch_checks(...)` of them. They run in a job for each stream, here
    after every 10 epochs, without touching the stream; those of an available_now stream run at the end of its runs.

    `sql` is a folder of `.sql` files, whose tables are assets too, beside `assets`, which they may read. `sources` are
    what they read by these names: see `streaming_sql`, which also takes options.

    Raises `InvalidPipelineError` for an asset that was not made by @streaming_asset, for two with one key, for a check
    of another asset, for a store that Spark's workers cannot reach, and for a driver away from the Dagster run.
    """
    if sql is not None:
        assets = [*assets, *streaming_sql(sql, sources=sources, assets=assets)]
    elif sources:
        raise InvalidPipelineError(f"sources are for streams in SQL: give sql too. sources={sorted(sources)}")
    assets = _with_distinct_ops(assets)
    _check_deploy_mode(spark)
    checking = check_definitions(assets, checks, name)
    if checkpoints is not None:
        _check_reach(checkpoints, spark)
    is_first = (
        name is not None or not assets or (checkpoints is not None and checkpoints.claim(asset.key for asset in assets))
    )
    sensor_name = None if is_first else sensor_name_of(assets[0].op.name)
    if checkpoints is not None:
        assets = [_with_uri(asset, checkpoints) for asset in assets]
    given = {"checkpoints": checkpoints, "state": state, "spark": spark, IO_MANAGER_KEY: epochs_of_checkpoints}
    # Equal specs of several streams are one asset to Dagster; it refuses different ones with the same key.
    specs = [spec for asset in assets for spec in require_streaming(asset).options.sources]
    return dg.Definitions(
        assets=[*assets, *specs],
        asset_checks=checking.checks,
        sensors=[build_recovery_sensor(assets, name=name, sensor_name=sensor_name), *checking.sensors],
        schedules=checking.schedules,
        resources={key: resource for key, resource in given.items() if resource is not None},
    )


def _with_distinct_ops(assets: Sequence[dg.AssetsDefinition]) -> list[dg.AssetsDefinition]:
    """The assets, with unique op names: the keys `a__b` and `["a", "b"]` share one.

    Raises `InvalidPipelineError` for an asset that is no stream.
    """
    for asset in assets:
        require_streaming(asset)
    keys = [asset.key for asset in assets]
    if twice := sorted({key.to_user_string() for key in keys if keys.count(key) > 1}):
        raise InvalidPipelineError(f"each stream needs a key of its own: rename one of these assets. keys={twice}")
    names = distinct_names({asset.key: asset.op.name for asset in assets})
    return [_with_op(asset, names[asset.key]) for asset in assets]


def _check_reach(checkpoints: CheckpointCoordinatorResource, spark: object) -> None:
    """Raise `InvalidPipelineError` for a store that Spark's workers cannot reach, as far as it is known without Spark.

    What an environment variable has is checked when a stream starts; so is all of a master that is not known here.
    """
    url: object = checkpoints.url
    if not isinstance(url, str) or isinstance(url, dg.EnvVar):
        return
    scheme = url.split(":", maxsplit=1)[0].lower()
    if scheme == "memory":
        raise InvalidPipelineError(
            "Spark's workers are other processes and cannot reach a memory: store: write file:///some/folder or "
            f"s3://bucket/folder (or another server). url={url!r}"
        )
    master = _spark_setting(spark, "spark.master")
    options: object = checkpoints.storage_options
    if type(master) is str and isinstance(options, Mapping):
        check_reach(url, options, master)


def _check_deploy_mode(spark: object) -> None:
    """Raise `InvalidPipelineError` for cluster mode: Spark's launcher would end with an exit status and no reason."""
    mode = _spark_setting(spark, "spark.submit.deployMode")
    if mode == "cluster":
        raise InvalidPipelineError(
            "the driver of a stream is the process of its Dagster step, which Spark calls client mode: remove "
            "spark.submit.deployMode from spark_config, and choose by Dagster's run launcher where the driver runs. "
            f"spark.submit.deployMode={mode}"
        )


def _spark_setting(spark: object, name: str) -> object:
    """What the resource sets in Spark, as far as that is known here."""
    config = getattr(spark, "spark_config", None)
    return config.get(name) if isinstance(config, Mapping) else None


def _with_uri(asset: dg.AssetsDefinition, checkpoints: CheckpointCoordinatorResource) -> dg.AssetsDefinition:
    """The asset with the address of its folder on its page. What an environment variable has is not shown.

    The rows of a delivery are elsewhere.
    """
    if isinstance(checkpoints.url, dg.EnvVar) or require_streaming(asset).delivery is not None:
        return asset
    streaming = asset if isinstance(asset, StreamingAssetsDefinition) else StreamingAssetsDefinition.of(asset)
    return streaming.with_address(uri_of(checkpoints.url, asset.key))


def _with_op(asset: dg.AssetsDefinition, name: str) -> dg.AssetsDefinition:
    if asset.op.name == name:
        return asset
    op = asset.op.with_replaced_properties(name=name)
    return StreamingAssetsDefinition.dagster_internal_init(**{**asset.get_attributes_dict(), "node_def": op})
