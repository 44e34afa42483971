"""Who else knows how far a chain goes: lists, and leases. They may know of a manifest that is not there any more.

A lease is written only after the manifest with which its term began, and names an epoch only after that was committed.
So a number that it names is used. Being advice, a lease can tell of less than there is, or be gone: then a lost newest
manifest is not noticed, as without it.
"""

from dataclasses import dataclass

from dagster_ckpt.ids import Term, Version
from dagster_ckpt.protocol.object_names import LEASES, MANIFESTS, parse_lease_name, parse_manifest_name
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The greatest version that anything tells of, and the newest term that has a lease; 0 where nothing does."""

    version: Version
    term: Term


def witnessed(store: ObjectStore) -> Witnessed:
    """What lists and leases tell of the stream in the folder `store`. A list may show what has been deleted since."""
    listed = [version for name in store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None]
    terms = [term for name in store.list(LEASES) if (term := parse_lease_name(name)) is not None]
    newest = max(terms, default=Term(0))
    lease = read_lease(store, newest) if newest else None
    if lease is None:
        newest = Term(0)  # gone meanwhile, or damaged: a name alone proves nothing
    leased = 0 if lease is None else max(lease.term, lease.epoch)
    return Witnessed(Version(max([leased, *listed])), newest)
