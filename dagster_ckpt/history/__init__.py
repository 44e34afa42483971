"""Reads a stream's past, and operates on it: no Spark, no Dagster, only the objects in the store.

`CheckpointStore("file:///data/checkpoints").stream("delay_by_carrier").read()`. Reading order

    checkpoint_store  a store full of streams
    stream_history    one stream: reads and operations
    readable_epochs   the epochs that can be read, and how a question about them is answered
    stream_table      the table that one manifest shows
    epoch_choice      which epoch is meant, by number or time
    change_epochs     the manifests of the epochs after one
    deliveries        what a delivery is not asked for
    drain             asks a writer to end
    swap              lets one stream take the place of another

Several streams
    snapshot          several streams at one moment
    snapshot_search   finds the epochs of a snapshot
    savepoint         pins several streams together, and takes them back

Rooms
    info/             facts about epochs, pins, subscribers and writers
    damage/           what is damaged, and which epoch does not need it
"""

from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.history.damage.verification import Finding, Verification
from dagster_ckpt.history.drain import Draining
from dagster_ckpt.history.info.epoch_info import EpochInfo
from dagster_ckpt.history.info.pin_info import PinInfo
from dagster_ckpt.history.info.subscriber_info import SubscriberInfo
from dagster_ckpt.history.info.upstream_info import UpstreamInfo
from dagster_ckpt.history.info.writer_info import WriterInfo, WriterWatch
from dagster_ckpt.history.snapshot import Snapshot
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.storage.operations.collector import Collected

__all__ = [
    "CheckpointStore",
    "Collected",
    "Draining",
    "EpochInfo",
    "Finding",
    "PinInfo",
    "Snapshot",
    "StreamHistory",
    "SubscriberInfo",
    "UpstreamInfo",
    "Verification",
    "WriterInfo",
    "WriterWatch",
]
