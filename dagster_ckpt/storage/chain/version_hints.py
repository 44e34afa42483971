"""Other evidence of how far a chain goes: lists and leases. They may show a manifest that no longer exists.

A lease is written only after the manifest that began its term, and names an epoch only after its commit. So a number
that it names is used. As advice, a lease may be behind or missing: then a lost newest manifest is not noticed.
"""

from dataclasses import dataclass

from dagster_ckpt.ids import Term, Version
from dagster_ckpt.protocol.object_names import LEASES, MANIFESTS, parse_lease_name, parse_manifest_name
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The greatest version that a list or lease shows, and the newest term that has a lease; 0 if there is none."""

    version: Version
    term: Term


def witness(store: ObjectStore) -> Witnessed:
    """What lists and leases show of the stream in the folder `store`. A list may show what was deleted since."""
    listed = [version for name in store.list(MANIFESTS) if (version := parse_manifest_name(name)) is not None]
    terms = [term for name in store.list(LEASES) if (term := parse_lease_name(name)) is not None]
    newest = max(terms, default=Term(0))
    lease = read_lease(store, newest) if newest else None
    if lease is None:
        newest = Term(0)  # gone meanwhile, or damaged: a name alone proves nothing
    leased = 0 if lease is None else max(lease.term, lease.epoch)
    return Witnessed(Version(max([leased, *listed])), newest)
