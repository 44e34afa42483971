"""The key columns of a pipeline's inputs."""

from typing import Any

from dagster_ckpt.protocol.manifest.manifest import Pipeline

KEYS = "keys"
"""The parameter with the key columns of each input, which are compared in pairs."""


def keys_of_inputs(pipeline: Pipeline) -> tuple[tuple[str, ...], ...]:
    """The key columns of each input."""
    if len(pipeline.inputs) == 1:
        return (pipeline.keys,)
    keys: Any = pipeline.parameters[KEYS]
    return tuple(map(tuple, keys))
