"""The user's function and options, attached to the Dagster asset, and how to find them.

They are an attribute of the op's function, which survives when Dagster prefixes keys, merges definitions or makes jobs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dagster_ckpt.delivery.destination import DeliveryMode, Destination, SchemaChanges
from dagster_ckpt.integration.declared.parameters import Parameters
from dagster_ckpt.integration.declared.stream_options import StreamOptions

Function = Callable[..., object]

_ATTRIBUTE = "dagster_ckpt_streaming_function"


@dataclass(frozen=True)
class DeliveryOptions:
    """Where a delivery writes and what, how many epochs a transaction may take, and what may be done to columns."""

    destination: Destination
    mode: DeliveryMode
    epochs_max: int
    schema_changes: SchemaChanges


@dataclass(frozen=True)
class StreamingFunction:
    """The user's function, its parameters and options. Not the stream's name: Dagster may still prefix the key.

    A `delivery` has no function of the user's: `function` is the call that declared it.
    """

    function: Function
    parameters: Parameters
    options: StreamOptions
    delivery: DeliveryOptions | None = None


def attach(compute: Callable[..., object], streaming: StreamingFunction) -> None:
    """Attach it to the function that the op will compute."""
    vars(compute)[_ATTRIBUTE] = streaming


def of_asset(asset: object) -> StreamingFunction | None:
    """The streaming function of an asset; None for any other asset."""
    return of_op(asset.node_def) if isinstance(asset, dg.AssetsDefinition) and asset.is_executable else None


def declared_key(asset: object) -> tuple[str, ...]:
    """The primary key that an asset declares; none for a function."""
    found = of_asset(asset)
    return () if found is None else found.options.primary_key


def of_op(op: object) -> StreamingFunction | None:
    """The streaming function that an op computes; None for any other op."""
    found = getattr(function_of_op(op), _ATTRIBUTE, None)
    return found if isinstance(found, StreamingFunction) else None


def function_of_op(op: object) -> Any:
    """The function that an op computes: for a stream a wrapper of the user's; None for an op without one."""
    return getattr(getattr(op, "compute_fn", None), "decorated_fn", None)
