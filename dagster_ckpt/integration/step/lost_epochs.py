"""A store that lacks what Dagster has shown: it is empty, or the stream in it was restored from a backup."""

import dagster as dg

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.events.event_totals import Reported, read_totals
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError, UpstreamLog
from dagster_ckpt.storage.stores.object_store import ObjectStore


def observation(
    key: dg.AssetKey, known: Reported, manifest: Manifest, chain: ManifestChain
) -> dg.AssetObservation | None:
    """The event that says so of the stream just opened at `manifest`; None where it has that epoch, or may have it.

    `known` is what Dagster has stored. The stream goes on: its sources went back with it, and the next event has the
    difference to what Dagster has shown. What has loaded its table since the backup has rows that it lost.
    """
    if known.epoch == EMPTY or known.nonce is None:
        return None
    shown = known.position(manifest.uuid)
    try:
        UpstreamLog(chain, manifest.stream).check(shown)
    except NothingFollowsError as error:
        if error.trouble is not Trouble.DIVERGED:
            return None  # a rollback has left it behind, or it was retired long ago
        return _observation(key, shown, UpstreamPosition.after(manifest))
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


_URI = "dagster/uri"


def refuse_empty_store(store: ObjectStore, instance: dg.DagsterInstance, key: dg.AssetKey, uri: str | None) -> None:
    """Raise `StoreUnavailableError` where Dagster knows epochs of the stream at this URI, and the store is empty.

    It would begin again below the mount point of a disk that is missing since a reboot, and read all of its sources a
    second time. One whose own folder alone is gone was deleted.
    """
    if uri is None or not _is_empty(store):
        return
    known = read_totals(instance, key)
    if known.epoch == EMPTY or _newest_uri(instance, key) != uri:
        return
    raise StoreUnavailableError(
        "the store is empty: is its disk mounted? If it was deleted on purpose, start the stream with from_epoch: 0 in "
        f"the run config. stream={key.to_user_string()}, epoch={known.epoch}, uri={uri}"
    )


def _newest_uri(instance: dg.DagsterInstance, key: dg.AssetKey) -> object:
    """Where the stream was when it was materialized last; None if never."""
    events = [record.asset_materialization for record in instance.fetch_materializations(key, 1).records]
    found = [event.metadata[_URI].value for event in events if event is not None and _URI in event.metadata]
    return found[0] if found else None


def _is_empty(store: ObjectStore) -> bool:
    """One that does not answer is not: it is waited for where the stream is opened."""
    try:
        return next(iter(store.folders("")), None) is None
    except StoreUnavailableError:
        return False
