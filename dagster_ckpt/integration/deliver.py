"""`deliver`: a stream's table or its changes, exactly once into a system outside of the store, as an asset."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import dagster as dg

from dagster_ckpt.delivery.destination import DeliveryMode, Destination
from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.dagster_names import is_plain, op_name_of
from dagster_ckpt.integration.declared.parameters import Parameters
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource
from dagster_ckpt.integration.declared.run_config import config_class
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.integration.declared.streaming_function import DeliveryOptions, StreamingFunction, attach, of_asset
from dagster_ckpt.integration.recovery import live_check
from dagster_ckpt.integration.recovery.crash_loop_check import check_spec
from dagster_ckpt.integration.recovery.sensor_check import sensor_check_spec
from dagster_ckpt.integration.step.step import run_step
from dagster_ckpt.integration.streaming_assets import StreamingAssetsDefinition
from dagster_ckpt.quantities import Duration
from dagster_ckpt.runtime.run_mode import Mode

_NO_PARAMETERS = Parameters(None, (), None, None, {}, {}, {})


def deliver(  # noqa: PLR0913  (options, by name)
    stream: dg.AssetsDefinition | dg.AssetKey | str | Sequence[str],
    *,
    to: Destination,
    mode: str = "upsert",
    interval: Duration | None = None,
    max_epochs: int = 100,
    name: str | None = None,
    key: dg.AssetKey | str | Sequence[str] | None = None,
    continuous: bool | None = None,
    autostart: bool | None = None,
    run_for: Duration = "12 hours",
    run_tags: Mapping[str, str] | None = None,
    recovery: Recovery | None = None,
    description: str | None = None,
    group_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    owners: Sequence[str] | None = None,
    kinds: AbstractSet[str] | None = None,
) -> dg.AssetsDefinition:
    """An asset downstream of a stream, which brings its rows into another system exactly once.

        delays_in_shop = deliver(delay_by_carrier, to=Postgres(dg.EnvVar("SHOP_URL"), table="delays"))

    How far the delivery has come is kept in the destination, in the same transaction as the rows. So whatever is
    killed, no row is lost or doubled, and a destination that is slow or away never stops the stream: the change log is
    kept for the delivery (`max_lag` of the coordinator resource). Give the asset to `build_streaming_definitions` as
    you give the stream; the recovery sensor, `drain`, the checks and the events are those of a stream.

    - `stream`: the stream's asset, or its key where another code location defines it.
    - `to`: the destination, such as `dagster_ckpt.destinations.Postgres`.
    - `mode`: "upsert" makes the destination's table equal to the stream's, row by key. "append" adds every change of
      every epoch as a row with `_epoch` and `_change_type`; of a stream that only appends, its rows.
    - `interval`: the time between two transactions of a continuous run; None for the resource's checkpoint interval.
    - `max_epochs`: the most epochs of the stream that one transaction takes.
    - `name`, `key`: of the asset; by default the stream's with the kind of the destination, `delays_in_postgres`.
    - `continuous`, `autostart`: by default as the stream. If not continuous, a run delivers what is there and ends.
    - The others mean what they mean for `streaming_asset`.

    A delivery begins with the stream's whole table, so the destination's must be empty. Raises `InvalidPipelineError`
    for options that cannot work.
    """
    upstream = stream.key if isinstance(stream, dg.AssetsDefinition) else dg.AssetKey.from_coercible(stream)
    own = _key(upstream, name, key, to)
    with naming(asset=own.to_user_string()):
        of_stream = of_asset(stream)
        if isinstance(stream, dg.AssetsDefinition) and (of_stream is None or of_stream.delivery is not None):
            raise InvalidPipelineError(
                f"only a stream can be delivered: give an asset made by @streaming_asset. stream={upstream}"
            )
        lives = of_stream is not None and of_stream.options.mode is Mode.CONTINUOUS
        continuous = lives if continuous is None else continuous
        starts = of_stream is not None and of_stream.options.autostart and continuous
        options = stream_options(
            mode=Mode.CONTINUOUS if continuous else Mode.AVAILABLE_NOW,
            shards=1,
            run_for=run_for,
            checkpoint_interval=interval,
            autostart=starts if autostart is None else autostart,
            run_tags=run_tags,
            recovery=recovery,
        )
        delivery = DeliveryOptions(to, _mode(mode), _epochs(max_epochs))
        op_name = op_name_of(own)
        made_as = own if is_plain(own) else dg.AssetKey(op_name)
        streaming = StreamingFunction(deliver, _NO_PARAMETERS, options, delivery)
        out = dg.AssetOut(
            key=made_as,
            dagster_type=dg.Nothing,
            description=description or f"`{upstream.to_user_string()}` in {to.kind}, exactly once.",
            group_name=group_name,
            tags=tags,
            owners=owners,
            kinds={*(kinds or ()), to.kind},
        )
        made: dg.AssetsDefinition = dg.multi_asset(
            name=op_name,
            outs={"result": out},
            deps=[upstream],
            check_specs=[check_spec(made_as), live_check.check_spec(made_as), sensor_check_spec(made_as)],
        )(_compute(streaming, op_name))
        return StreamingAssetsDefinition.of(made.with_attributes(asset_key_replacements={made_as: own}))


def _key(
    upstream: dg.AssetKey, name: str | None, key: dg.AssetKey | str | Sequence[str] | None, to: Destination
) -> dg.AssetKey:
    if key is not None:
        if name is not None:
            raise InvalidPipelineError(f"give a name or a key, not both. name={name}, key={key}")
        return dg.AssetKey.from_coercible(key)
    *prefix, last = upstream.path
    return dg.AssetKey([*prefix, name or f"{last}_in_{to.kind}"])


def _mode(mode: str) -> DeliveryMode:
    try:
        return DeliveryMode(mode)
    except ValueError:
        raise InvalidPipelineError(f"unknown mode: use 'upsert' or 'append'. mode={mode!r}") from None


def _epochs(epochs: object) -> int:
    if type(epochs) is not int or epochs < 1:
        raise InvalidPipelineError(
            f"max_epochs is the most epochs that one transaction takes: 1 or more. max_epochs={epochs!r}"
        )
    return epochs


def _compute(streaming: StreamingFunction, op_name: str) -> Any:
    def compute(
        context: dg.AssetExecutionContext, config: dg.Config, checkpoints: CheckpointCoordinatorResource
    ) -> Iterator[dg.MaterializeResult[Any]]:
        yield run_step(context, streaming, config, {"checkpoints": checkpoints})

    annotations: dict[str, Any] = {
        "context": dg.AssetExecutionContext,
        "config": config_class(None, streaming.options.mode, op_name),
        "checkpoints": CheckpointCoordinatorResource,
    }
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(each, by_name, annotation=kind) for each, kind in annotations.items()]
    vars(compute)["__signature__"] = inspect.Signature(parameters)
    compute.__annotations__ = annotations
    compute.__name__ = compute.__qualname__ = op_name
    attach(compute, streaming)
    return compute
