"""The result of a step: exactly one MaterializeResult, with the newest epoch.

Without a result, Dagster would skip what is downstream while the run shows success; an Output would call the IO
manager.
"""

from typing import Any

import dagster as dg

from dagster_ckpt.integration.recovery.crash_loop_check import result_passed
from dagster_ckpt.integration.step.epoch_metadata import Metadata, data_version, epoch_metadata, pace_of
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.driver.epoch_driver import CommittedEpoch


def final_result(
    instance: dg.DagsterInstance, key: dg.AssetKey, stream: str, manifest: Manifest, committed: CommittedEpoch | None
) -> dg.MaterializeResult[Any]:
    """The newest epoch's numbers. `committed` is the newest epoch that this step committed; None if it made none."""
    version = data_version(stream, manifest)
    if committed is not None and committed.manifest.epoch == manifest.epoch:
        metadata = epoch_metadata(manifest, committed)
    else:
        # Not the event's: it may be of an earlier release, which had fewer labels.
        metadata = epoch_metadata(manifest) | pace_of(_reported_before(instance, key, version), manifest)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata,
        data_version=dg.DataVersion(version),
        check_results=[result_passed(key, manifest.epoch)],
    )


def _reported_before(instance: dg.DagsterInstance, key: dg.AssetKey, version: str) -> Metadata:
    """The metadata that an earlier Dagster run reported for this epoch, if any: the manifest has no speeds."""
    entry = instance.get_latest_materialization_event(key)
    event = None if entry is None else entry.asset_materialization
    if event is None or (event.tags or {}).get("dagster/data_version") != version:
        return {}
    return dict(event.metadata)
