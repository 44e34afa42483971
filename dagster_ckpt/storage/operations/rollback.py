"""Rolling a stream back to an older epoch by hand, outside of any Dagster run."""

from dataclasses import replace

from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.manual_opening import ROLLBACK, close_by_hand, opening_by_hand
from dagster_ckpt.storage.stores.probe import prove_atomic_create
from dagster_ckpt.storage.writer.opening import Takeover, open_manifest, target_of


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
        opening = replace(opening, pipeline=target_of(chain, newest, epoch).pipeline)
    manifest = open_manifest(chain, opening)
    close_by_hand(chain, manifest, f"rolled back to epoch {epoch}")
    return manifest
