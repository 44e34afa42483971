"""What a step ends with: exactly one MaterializeResult, which carries the newest epoch.

Nothing at all would make Dagster skip what is downstream while the run shows success; an Output would call the IO
manager.
"""

from typing import Any

import dagster as dg

from dagster_ckpt.integration.recovery.crash_loop_check import result_passed
from dagster_ckpt.integration.step.epoch_metadata import Metadata, Pace, data_version, epoch_metadata, pace_of
from dagster_ckpt.integration.step.step_events import ReportedEpoch
from dagster_ckpt.protocol.manifest.manifest import Manifest


def final_result(
    instance: dg.DagsterInstance, key: dg.AssetKey, stream: str, manifest: Manifest, told: ReportedEpoch | None
) -> dg.MaterializeResult[Any]:
    """The newest epoch's numbers. `told` is the newest epoch that this step itself committed; None if it made none."""
    version = data_version(stream, manifest)
    if told is not None and told.manifest.epoch == manifest.epoch:
        metadata = epoch_metadata(manifest, told.pace)
    else:
        # Made anew: the event may be of an earlier release, which knew fewer labels.
        metadata = epoch_metadata(manifest, Pace()) | pace_of(_reported_before(instance, key, version), manifest)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=metadata,
        data_version=dg.DataVersion(version),
        check_results=[result_passed(key, manifest.epoch)],
    )


def _reported_before(instance: dg.DagsterInstance, key: dg.AssetKey, version: str) -> Metadata:
    """What an earlier Dagster run said of this very epoch, if anything: how fast it was, the manifest does not say."""
    entry = instance.get_latest_materialization_event(key)
    event = None if entry is None else entry.asset_materialization
    if event is None or (event.tags or {}).get("dagster/data_version") != version:
        return {}
    return dict(event.metadata)
