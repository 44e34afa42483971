"""Opening a stream by a person's word, outside of any Dagster run."""

from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.storage.chain import ManifestChain
from dagster_ckpt.storage.opening import Opening, Takeover
from dagster_ckpt.storage.processes import this_process

LEASE_TIMEOUT_MS = 30_000
"""How long a writer whose lease says nothing is waited for; one that says more has its own time."""


def opening_by_hand(chain: ManifestChain, newest: Manifest, what_for: str, take_over: Takeover) -> Opening:
    """What opens the stream whose newest manifest this is, and leaves it to its owner with the pipeline it has."""
    return Opening(
        stream=newest.stream,
        owner=newest.owner,
        pipeline=newest.pipeline,
        shards=newest.shards,
        holder=LeaseHolder("", newest.owner.instance, this_process()),
        root_run=f"{what_for}-{chain.clock.unique()}",  # a second word of a person is no retry of the first
        lease_timeout_ms=LEASE_TIMEOUT_MS,
        take_over=take_over,
    )
