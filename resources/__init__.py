"""The configured resources, under the keys that streams ask for."""

from dagster_ckpt import EpochIOManager
from resources.checkpoints import checkpoints
from resources.spark import spark
from resources.state import state

RESOURCES = {
    "checkpoints": checkpoints,
    "state": state,
    "spark": spark,
    "epochs": EpochIOManager(checkpoints=checkpoints),
}

__all__ = ["RESOURCES"]
