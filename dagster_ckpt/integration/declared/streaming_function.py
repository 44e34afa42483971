"""The user's function and options, attached to the Dagster asset, and how to find them.

They are an attribute of the op's function, which survives when Dagster prefixes keys, merges definitions or makes jobs.
"""

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import dagster as dg

from dagster_ckpt.delivery.destination import DeliveryMode, Destination, SchemaChanges
from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.dagster_names import STREAM_TAG, job_name_of, stream_name_of
from dagster_ckpt.integration.declared.parameters import Parameters
from dagster_ckpt.integration.declared.stream_options import StreamOptions
from dagster_ckpt.runtime.run_mode import Mode

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


def check_source(function: Callable[..., object]) -> None:
    """Raise `InvalidPipelineError` where the function calls `key_by()` without a column.

    A function without readable source, such as one made at run time, is checked when it is called.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # the last: a lambda, or one within an expression
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _has_no_column(node, node.func):
            raise InvalidPipelineError(
                "key_by needs at least one column; for one row over everything leave key_by out. "
                f"file={inspect.getsourcefile(function)}, line={first + node.lineno - 1}"
            )


def _has_no_column(call: ast.Call, method: ast.Attribute) -> bool:
    """Whether it calls `key_by` without columns. The number of `*columns` is unknown."""
    return method.attr == "key_by" and not call.args and all(given.arg is not None for given in call.keywords)


Job = Any
"""What `dg.define_asset_job` returns: Dagster does not export the type."""


def streaming_job(asset: dg.AssetsDefinition, name: str | None = None) -> Job:
    """The job that runs this stream alone; `name` prefixes the job's name."""
    options = require_streaming(asset).options
    selection: dg.AssetSelection = dg.AssetSelection.assets(asset.key)
    if options.mode is Mode.CONTINUOUS:
        # A check of the user's would wait for the end of the run.
        selection = selection.without_checks() | dg.AssetSelection.checks(*asset.check_keys)
    return dg.define_asset_job(
        job_name_of(asset.op.name, name),
        selection=selection,
        executor_def=dg.in_process_executor,
        tags={**options.run_tags, STREAM_TAG: stream_name_of(asset.key)},
        description=f"Runs the stream {stream_name_of(asset.key)} alone, in the Dagster run's process.",
    )


def require_streaming(asset: object) -> StreamingFunction:
    """The streaming function of an asset. Raises `InvalidPipelineError` for anything else."""
    found = of_asset(asset)
    if found is None:
        what = asset.key.to_user_string() if isinstance(asset, dg.AssetsDefinition) else repr(asset)
        raise InvalidPipelineError(
            "only assets made by @streaming_asset can be given here. Put other assets, also those that read a stream, "
            "in separate definitions: dg.Definitions.merge(build_streaming_definitions(...), "
            f"dg.Definitions(assets=[...])). asset={what}"
        )
    return found
