"""Reading a stream's past: no Spark, no Dagster, nothing but the objects in the store.

store = CheckpointStore("file:///data/checkpoints")
store.stream("delay_by_carrier").read()
"""

from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.history.epoch_info import EpochInfo
from dagster_ckpt.history.pin_info import PinInfo
from dagster_ckpt.history.stream_history import StreamHistory
from dagster_ckpt.history.verification import Finding, Verification

__all__ = ["CheckpointStore", "EpochInfo", "Finding", "PinInfo", "StreamHistory", "Verification"]
