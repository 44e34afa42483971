"""One job for each stream: in the worker's process, so that a killed worker leaves no writer behind."""

from typing import Any

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.dagster_names import STREAM_TAG, job_name_of, stream_name_of
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction, of_asset
from dagster_ckpt.runtime.run_mode import Mode

Job = Any
"""What `dg.define_asset_job` returns: Dagster does not export the type."""


def streaming_job(asset: dg.AssetsDefinition, name: str | None = None) -> Job:
    """The job that runs this stream alone; `name` prefixes the job's name."""
    options = require_streaming(asset).options
    selection: dg.AssetSelection = dg.AssetSelection.assets(asset.key)
    if options.mode is Mode.CONTINUOUS:
        # A check of the user's would wait for the end of the run.
        selection = selection.without_checks() | dg.AssetSelection.checks(*asset.check_keys)
    return dg.define_asset_job(
        job_name_of(asset.op.name, name),
        selection=selection,
        executor_def=dg.in_process_executor,
        tags={**options.run_tags, STREAM_TAG: stream_name_of(asset.key)},
        description=f"Runs the stream {stream_name_of(asset.key)} alone, in the Dagster run's process.",
    )


def require_streaming(asset: object) -> StreamingFunction:
    """The streaming function of an asset. Raises `InvalidPipelineError` for anything else."""
    found = of_asset(asset)
    if found is None:
        what = asset.key.to_user_string() if isinstance(asset, dg.AssetsDefinition) else repr(asset)
        raise InvalidPipelineError(
            "only assets made by @streaming_asset can be given here. Put other assets, also those that read a stream, "
            "in separate definitions: dg.Definitions.merge(build_streaming_definitions(...), "
            f"dg.Definitions(assets=[...])). asset={what}"
        )
    return found
