"""What a step ends with: exactly one MaterializeResult, which carries the newest epoch.

Nothing at all would make Dagster skip what is downstream while the run shows success; an Output would call the IO
manager.
"""

from typing import Any

import dagster as dg

from dagster_ckpt.integration.events import Told
from dagster_ckpt.integration.metadata import Metadata, Pace, data_version, epoch_metadata
from dagster_ckpt.protocol.manifest import Manifest


def final_result(
    instance: dg.DagsterInstance, key: dg.AssetKey, stream: str, manifest: Manifest, told: Told | None
) -> dg.MaterializeResult[Any]:
    """The newest epoch's numbers. `told` is the newest epoch that this step itself committed; None if it made none."""
    version = data_version(stream, manifest)
    if told is not None and told.manifest.epoch == manifest.epoch:
        metadata = epoch_metadata(manifest, told.pace)
    else:
        metadata = _said_before(instance, key, version) or epoch_metadata(manifest, Pace())
    return dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=dg.DataVersion(version))


def _said_before(instance: dg.DagsterInstance, key: dg.AssetKey, version: str) -> Metadata | None:
    """What an earlier Dagster run said of this very epoch: it knew how fast it was, the manifest does not."""
    entry = instance.get_latest_materialization_event(key)
    event = None if entry is None else entry.asset_materialization
    if event is None or (event.tags or {}).get("dagster/data_version") != version:
        return None
    return dict(event.metadata)
