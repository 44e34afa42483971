"""A store in which nothing is, although Dagster has seen the stream there: its disk is not mounted, perhaps."""

import dagster as dg

from dagster_ckpt.errors import StoreUnavailableError
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.integration.step.event_totals import reported
from dagster_ckpt.storage.stores.object_store import ObjectStore

_URI = "dagster/uri"


def refuse_empty_store(store: ObjectStore, instance: dg.DagsterInstance, key: dg.AssetKey, uri: str | None) -> None:
    """Raise `StoreUnavailableError` where Dagster knows epochs of the stream at this URI, and the store is empty.

    It would begin again below the mount point of a disk that is missing since a reboot, and read all of its sources a
    second time. One whose own folder alone is gone was deleted.
    """
    if uri is None or not _is_empty(store):
        return
    known = reported(instance, key)
    if known is None or known.epoch == EMPTY or _newest_uri(instance, key) != uri:
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
