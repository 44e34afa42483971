"""A stream that does not have the epoch that Dagster has shown last: its folder was restored from a backup."""

import dagster as dg

from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.step.event_totals import Reported
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.holders.upstream_log import NothingFollowsError, UpstreamLog


def observation(
    key: dg.AssetKey, known: Reported | None, manifest: Manifest, chain: ManifestChain
) -> dg.AssetObservation | None:
    """The event that says so of the stream just opened at `manifest`; None where it has that epoch, or may have it.

    `known` is what Dagster has stored. The stream goes on: its sources went back with it, and the next event has the
    difference to what Dagster has shown. What has loaded its table since the backup has rows that it lost.
    """
    if known is None or known.epoch == EMPTY or known.nonce is None:
        return None
    shown = known.position(manifest.uuid)
    try:
        UpstreamLog(chain, manifest.stream).check(shown)
    except NothingFollowsError as error:
        if error.trouble is not Trouble.DIVERGED:
            return None  # a rollback has left it behind, or it was retired long ago
        return _observation(key, shown, UpstreamPosition.behind(manifest))
    return None


def _observation(key: dg.AssetKey, shown: UpstreamPosition, now: UpstreamPosition) -> dg.AssetObservation:
    return dg.AssetObservation(
        asset_key=key,
        description=f"The stream does not have epoch {shown.text}, which Dagster has shown: its folder was restored "
        f"from a backup, or made again. It goes on from epoch {now.text}. Materialize again what has read its table "
        "since the backup; streams and deliveries that follow it tell by themselves whether they can go on.",
        metadata={
            "epoch": dg.MetadataValue.int(now.epoch),
            "epoch_shown_before": dg.MetadataValue.text(shown.text),
            "epoch_now": dg.MetadataValue.text(now.text),
        },
    )
