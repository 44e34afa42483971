"""What a person's word does to a stream outside of any Dagster run: opens it, and says when nobody writes it."""

from dagster_ckpt.protocol.lease import Lease, LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.opening import Opening, Takeover

LEASE_TIMEOUT_MS = 30_000
"""How long a writer whose lease says nothing is waited for; one that says more has its own time."""


def opening_by_hand(chain: ManifestChain, newest: Manifest, what_for: str, take_over: Takeover) -> Opening:
    """What opens the stream whose newest manifest this is, and leaves it to its owner with the pipeline it has."""
    return Opening(
        stream=newest.stream,
        owner=newest.owner,
        pipeline=newest.pipeline,
        shards=newest.shards,
        holder=_holder(newest),
        root_run=f"{what_for}-{chain.clock.unique()}",  # a second word of a person is no retry of the first
        lease_timeout_ms=LEASE_TIMEOUT_MS,
        take_over=take_over,
    )


def close_by_hand(store: ObjectStore, manifest: Manifest, why: str) -> None:
    """Write the lease of a manifest's term closed, so that the next writer need not wait for whoever created that."""
    LeaseHeartbeat(store, Lease(manifest.term, _holder(manifest), LEASE_TIMEOUT_MS, manifest.epoch)).end(why)


def _holder(manifest: Manifest) -> LeaseHolder:
    return LeaseHolder("", manifest.owner.instance, this_process())
