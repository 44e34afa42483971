"""Everything a code location needs to run streams, in one call."""

from collections.abc import Sequence

import dagster as dg

from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource
from dagster_ckpt.integration.distinct_ops import with_distinct_ops
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints
from dagster_ckpt.integration.recovery.sensor import build_recovery_sensor
from dagster_ckpt.integration.streaming_assets import DEFAULT_STATE


def build_streaming_definitions(
    assets: Sequence[dg.AssetsDefinition],
    checkpoints: CheckpointCoordinatorResource | None = None,
    state: LsmStateBackendResource | None = DEFAULT_STATE,
    spark: object | None = None,
    name: str | None = None,
) -> dg.Definitions:
    """The assets with their checks, a job for each, the recovery sensor and the resources under the keys they need.

    A resource that is None is taken from the location's resources, by the same key: `checkpoints`, `state`, `spark`.
    `name` prefixes the names of the jobs and the sensor, for a second call in one location. The location's executor is
    unchanged. Raises `InvalidPipelineError` for an asset that was not made by @streaming_asset.
    """
    assets = with_distinct_ops(assets)
    given = {"checkpoints": checkpoints, "state": state, "spark": spark, IO_MANAGER_KEY: epochs_of_checkpoints}
    return dg.Definitions(
        assets=assets,
        sensors=[build_recovery_sensor(assets, name=name)],
        resources={key: resource for key, resource in given.items() if resource is not None},
    )
