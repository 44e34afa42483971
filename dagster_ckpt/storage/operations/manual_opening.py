"""Opening and closing a stream by hand, outside of any Dagster run."""

from dagster_ckpt.protocol.lease import Lease, LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.writer.opening import Opening, Takeover

ROLLBACK = "rollback"
LEASE_TIMEOUT_MS = 30_000
"""How long to wait for a writer without a readable lease. A lease names its time-out."""


def opening_by_hand(chain: ManifestChain, newest: Manifest, what_for: str, take_over: Takeover) -> Opening:
    """An opening of the stream with this newest manifest that keeps its owner and its pipeline."""
    return Opening(
        stream=newest.stream,
        owner=newest.owner,
        pipeline=newest.pipeline,
        shards=newest.shards,
        holder=_holder(newest),
        root_run=f"{what_for}-{chain.clock.unique()}",  # a second command is no retry of the first
        lease_timeout_ms=LEASE_TIMEOUT_MS,
        take_over=take_over,
    )


def is_by_hand(root_run: str) -> bool:
    """Whether a rollback was requested by hand; if not, `root_run` is the root Dagster run that requested it."""
    return root_run.startswith(f"{ROLLBACK}-")


def close_by_hand(chain: ManifestChain, manifest: Manifest, why: str) -> None:
    """Write a closed lease for the manifest's term, so that the next writer need not wait."""
    lease = Lease(manifest.term, _holder(manifest), LEASE_TIMEOUT_MS, manifest.epoch)
    LeaseHeartbeat(chain.store, lease, chain.clock).end(why)


def _holder(manifest: Manifest) -> LeaseHolder:
    return LeaseHolder("", manifest.owner.instance, this_process())
