"""A check's result names the epochs that the check has read through the IO manager."""

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg

from dagster_ckpt.integration.reading.loaded_epochs import epochs_loaded_by


def with_epochs_named(checks: dg.AssetChecksDefinition) -> dg.AssetChecksDefinition:
    """The same checks. The metadata of their results gets `epoch`, or `epoch/<stream>` where they read several."""
    op = checks.op
    compute: Any = op.compute_fn  # what a decorator made of the user's function
    named = dg.OpDefinition(
        compute_fn=compute._replace(decorated_fn=_naming(compute.decorated_fn)),
        name=op.name,
        ins={each.name: dg.In.from_definition(each) for each in op.input_defs},
        outs={each.name: dg.Out.from_definition(each) for each in op.output_defs},
        description=op.description,
        config_schema=op.config_schema,
        required_resource_keys=op.required_resource_keys,
        tags=op.tags,
        retry_policy=op.retry_policy,
        pool=op.pool,
    )
    with warnings.catch_warnings():
        # Dagster includes its beta attributes, and warns any caller who passes them on.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return type(checks)(**{**checks.get_attributes_dict(), "node_def": named})


def _naming(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def check(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return (_with_name(each) for each in result) if inspect.isgenerator(result) else _with_name(result)

    return check


def _with_name(result: Any) -> Any:
    if not isinstance(result, dg.AssetCheckResult):
        return result
    epochs = _epochs()
    labels = {"epoch" if len(epochs) == 1 else f"epoch/{stream}": epoch for stream, epoch in epochs.items()}
    metadata = {label: dg.MetadataValue.int(epoch) for label, epoch in labels.items()}
    return result._replace(metadata={**metadata, **result.metadata})


def _epochs() -> dict[str, int]:
    try:
        context = dg.OpExecutionContext.get()
    except dg.DagsterInvariantViolationError:
        return {}  # called directly, in a test
    return epochs_loaded_by(context.run.run_id, str(context.op_handle))
