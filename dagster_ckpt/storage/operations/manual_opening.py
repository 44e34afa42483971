"""Opening, rolling back and closing a stream by hand, outside of any Dagster run."""

from dataclasses import replace

from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.lease import Lease, LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.writer.opening import Opening, Takeover, find_target, open_manifest

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


def roll_back(chain: ManifestChain, epoch: Epoch, take_over: Takeover) -> Manifest:
    """Make an existing stream show an older epoch. Returns the manifest that does. The stream keeps its owner.

    Works also if the newest manifest, or what it needs, is damaged. Raises `FencedError` while a writer lives, unless
    it may be fenced, and `InvalidPipelineError` for a missing epoch. A crash leaves the rollback or nothing of it.
    """
    prove_atomic_create(chain.store, chain.clock)
    end = chain.end()
    assert end is not None, "the stream exists"
    newest = newest_known(end)
    opening = replace(opening_by_hand(chain, newest, ROLLBACK, take_over), from_epoch=epoch)
    if epoch != EMPTY:
        opening = replace(opening, pipeline=find_target(chain, newest, epoch).pipeline)
    manifest = open_manifest(chain, opening)
    close_by_hand(chain, manifest, f"rolled back to epoch {epoch}")
    return manifest
