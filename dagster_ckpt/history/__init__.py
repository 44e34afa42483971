"""Reading a stream's past: no Spark, no Dagster, nothing but the objects in the store.

store = CheckpointStore("file:///data/checkpoints")
store.stream("delay_by_carrier").read()
"""

from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.history.draining import Draining
from dagster_ckpt.history.epoch_info import EpochInfo
from dagster_ckpt.history.pin_info import PinInfo
from dagster_ckpt.history.snapshot import Snapshot
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.history.subscriber_info import SubscriberInfo
from dagster_ckpt.history.verification import Finding, Verification
from dagster_ckpt.history.writer_info import WriterInfo, WriterWatch
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
    "Verification",
    "WriterInfo",
    "WriterWatch",
]
