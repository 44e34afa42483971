"""The asset that runs a step: op, signature and checks, which streams and deliveries have alike."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dagster as dg

from dagster_ckpt.integration.dagster_names import is_plain, op_name_of
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction, attach
from dagster_ckpt.integration.events import outdated_changes
from dagster_ckpt.integration.recovery import live_check
from dagster_ckpt.integration.recovery.crash_loop_check import check_spec
from dagster_ckpt.integration.recovery.sensor_check import sensor_check_spec
from dagster_ckpt.integration.step.step import run_step
from dagster_ckpt.integration.streaming_assets import StreamingAssetsDefinition


def step_asset(
    key: dg.AssetKey,
    streaming: StreamingFunction,
    arguments: Mapping[str, Any],
    out: Callable[[dg.AssetKey], dg.AssetOut],
    **of_op: Any,
) -> dg.AssetsDefinition:
    """The asset whose step runs `streaming`. `arguments` are the annotations of what its op is given, by name.

    `out` makes the asset's output from a key, `of_op` are further options of `dg.multi_asset`.
    """
    op_name = op_name_of(key)
    # Dagster makes the name of a check's output from its asset's key, and refuses some keys there. Such an asset is
    # made under the op's name, which Dagster accepts, and gets its key afterwards.
    made_as = key if is_plain(key) else dg.AssetKey(op_name)
    made: dg.AssetsDefinition = dg.multi_asset(
        name=op_name,
        outs={"result": out(made_as)},
        check_specs=[
            check_spec(made_as),
            live_check.check_spec(made_as),
            outdated_changes.check_spec(made_as),
            sensor_check_spec(made_as),
        ],
        **of_op,
    )(_compute(streaming, arguments))
    return StreamingAssetsDefinition.of(made.with_attributes(asset_key_replacements={made_as: key}))


def _compute(streaming: StreamingFunction, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """The op's function. Its signature is made here, because Dagster reads the arguments from it."""

    def compute(
        context: dg.AssetExecutionContext, config: dg.Config | None = None, **resources: object
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield run_step(context, streaming, config, resources)

    annotations: dict[str, Any] = {"context": dg.AssetExecutionContext, **arguments}
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, by_name, annotation=each) for name, each in annotations.items()]
    vars(compute)["__signature__"] = inspect.Signature(parameters)
    attach(compute, streaming)
    compute.__annotations__ = annotations
    compute.__name__ = compute.__qualname__ = getattr(streaming.function, "__name__", "compute")
    compute.__module__ = streaming.function.__module__
    return compute
