"""Reading a stream's past: no Spark, no Dagster, nothing but the objects in the store.

store = CheckpointStore("file:///data/checkpoints")
store.stream("delay_by_carrier").read()
"""

from dagster_ckpt.history.checkpoint_store import CheckpointStore
from dagster_ckpt.history.epoch_info import EpochInfo
from dagster_ckpt.history.stream_history import StreamHistory

__all__ = ["CheckpointStore", "EpochInfo", "StreamHistory"]
