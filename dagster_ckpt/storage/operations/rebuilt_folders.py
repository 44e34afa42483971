"""The folders of streams that were rebuilt alongside a stream and have taken its place: what is left of them.

Their files are the stream's now, and a pin keeps those that it needs (`history.swap`). All else in such a folder is of
no use to anyone: its change logs, its manifests, and in the end its files. No writer is left there to collect it, so
the stream's own collector does. First the folder's stream is emptied: it goes back to epoch 0, and epochs without rows
retire all others. There are as many of these as manifests that no collector deletes. A crash

    before that, or in the middle       leaves epochs that the next pass retires
    after it                            leaves garbage for any collector

A stream that others read, or whose writer may live, stays as it is: another rebuild may go on there for a while, and
its next try has a folder of its own.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.ids import EMPTY, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.epochs.retention import MANIFESTS_KEPT
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.references import references
from dagster_ckpt.protocol.object_names import COLLECTOR, lease_name, parse_file_name
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.operations.manual_opening import opening_by_hand
from dagster_ckpt.storage.retention_refs.ancestors import ancestors_folder
from dagster_ckpt.storage.retention_refs.subscribers import read_subscribers
from dagster_ckpt.storage.stores.object_store import ObjectMissingError, ObjectStore
from dagster_ckpt.storage.writer.opening import Takeover
from dagster_ckpt.storage.writer.stream_writer import open_stream

_log = logging.getLogger(__name__)

_RETIRE = "retire"


def rebuilt_folders(chain: ManifestChain, root: ObjectStore, grace_ms: int) -> Iterator[ManifestChain]:
    """The emptied streams, alongside that of `chain`, whose folders may have garbage: collect each of them.

    Call it after a pass over the stream itself. A writer that has been silent for `grace_ms` counts as ended.
    """
    newest = chain.newest()
    for ancestor in () if newest is None else newest.ancestors:
        if not ancestor.swapped:
            continue
        theirs = replace(chain, store=ancestors_folder(root, ancestor))
        try:
            if not _has_files(theirs):
                continue
            there = theirs.newest()
            if there is None or there.uuid != ancestor.uuid:
                continue
            if _is_emptied(there):
                yield theirs
            elif _is_left(theirs, there, chain, grace_ms):
                _empty(theirs, there)
                yield theirs
        except CheckpointError as error:  # the stream itself is well: another pass tries again
            _log.warning(
                "what is left of a rebuilt stream was not collected. stream=%s, reason=%s", ancestor.stream, error
            )


def _has_files(chain: ManifestChain) -> bool:
    return any(parse_file_name(name) is not None for name in chain.span().list(""))


def _is_emptied(there: Manifest) -> bool:
    """Whether it names no file, retains no epoch that does, and no collector has to keep a manifest that does."""
    retains_itself = [entry.epoch for entry in there.retained] == [there.epoch]
    return retains_itself and next(references(there), None) is None and there.version - there.term >= MANIFESTS_KEPT


def _is_left(chain: ManifestChain, there: Manifest, stream: ManifestChain, grace_ms: int) -> bool:
    """Whether no stream reads it, and no writer is at work there."""
    if read_subscribers(chain):
        return False
    lease = read_lease(chain.span(), there.term)
    if lease is None or lease.closed is not None:
        return True
    try:
        # By the store's clock: the stream's collector has just written there.
        now_ms = stream.span().modified_ms(COLLECTOR)
        return now_ms - chain.span().modified_ms(lease_name(there.term)) > grace_ms
    except ObjectMissingError:
        return False


def _empty(chain: ManifestChain, there: Manifest) -> None:
    """Make it show no rows, retain no epoch with any, and be kept without any."""
    by_hand = opening_by_hand(chain, there, _RETIRE, Takeover.ALWAYS)
    opening = replace(
        by_hand,
        owner=replace(by_hand.owner, location=by_hand.root_run),  # no run of its owner's
        from_epoch=None if there.epoch == EMPTY else EMPTY,
        retained=1,
    )
    writer = open_stream(chain.store, opening, chain.clock)
    try:
        shown = writer.manifest
        steps, shards = range(len(shown.pipeline.steps)), range(shown.shards)
        acks = tuple(ShardAck(Shard(shard), step=step) for step in steps for shard in shards)
        batch_id = 0 if shown.batch_id is None else shown.batch_id
        for _ in range(MANIFESTS_KEPT):
            writer.commit(EpochEdit(acks, shown.sources, batch_id, epoch_ms=0, ran_tasks=False))
    finally:
        writer.close("its files are another stream's")
