"""What a streaming asset is beside a Dagster asset, and how it is found again.

It hangs on the function of the op, which Dagster keeps when it prefixes keys, merges definitions or makes a job.
"""

from collections.abc import Callable
from dataclasses import dataclass

import dagster as dg

from dagster_ckpt.integration.declared.parameters import Parameters
from dagster_ckpt.integration.declared.stream_options import StreamOptions

Function = Callable[..., object]

_ATTRIBUTE = "dagster_ckpt_streaming_function"


@dataclass(frozen=True)
class StreamingFunction:
    """The user's function, what it asks for, and its options. No stream's name: Dagster may yet prefix the key."""

    function: Function
    parameters: Parameters
    options: StreamOptions


def attach(compute: Callable[..., object], streaming: StreamingFunction) -> None:
    """Hang it on the function that the op will compute."""
    vars(compute)[_ATTRIBUTE] = streaming


def of_asset(asset: object) -> StreamingFunction | None:
    """The streaming function of an asset; None for any other asset."""
    return of_op(asset.node_def) if isinstance(asset, dg.AssetsDefinition) and asset.is_executable else None


def of_op(op: object) -> StreamingFunction | None:
    """The streaming function that an op computes; None for any other op."""
    function = getattr(getattr(op, "compute_fn", None), "decorated_fn", None)
    found = getattr(function, _ATTRIBUTE, None)
    return found if isinstance(found, StreamingFunction) else None
