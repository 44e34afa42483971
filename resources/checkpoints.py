"""Where and how often the streams commit."""

from dagster_ckpt import CheckpointCoordinatorResource
from resources.places import STORE

checkpoints = CheckpointCoordinatorResource(url=STORE, checkpoint_interval="2s", event_interval="5s")
