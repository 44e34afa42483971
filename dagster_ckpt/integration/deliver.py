"""`deliver`: a stream's table or its changes, exactly once into a system outside of the store, as an asset."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

import dagster as dg

from dagster_ckpt.delivery.destination import DeliveryMode, Destination, SchemaChanges
from dagster_ckpt.destinations.secrets import UnsetVariableError
from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.dagster_names import op_name_of
from dagster_ckpt.integration.declared.parameters import Parameters
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource
from dagster_ckpt.integration.declared.run_config import config_class
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.integration.declared.streaming_function import DeliveryOptions, StreamingFunction, of_asset
from dagster_ckpt.integration.events.epoch_metadata import Metadata
from dagster_ckpt.integration.events.table_metadata import TablePlace
from dagster_ckpt.integration.streaming_assets import step_asset
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
    schema_changes: str = "add",
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
    - `max_epochs`: the most epochs of the stream that one transaction takes. It takes fewer where they have many rows.
    - `schema_changes`: "add" adds columns to the destination's table, and refuses what rewrites or loses something.
      "replace" also replaces columns and key where all rows are replaced, after a rollback of the stream.
    - `name`, `key`: of the asset; by default the stream's with the kind of the destination, `delays_in_postgres`.
    - `continuous`, `autostart`: by default as the stream. If not continuous, a run delivers what is there and ends.
    - The others mean what they mean for `streaming_asset`.

    A delivery begins with the stream's whole table, so the destination's must be empty. Raises `InvalidPipelineError`
    for options that cannot work, and for a mode that the destination does not have.
    """
    upstream = stream.key if isinstance(stream, dg.AssetsDefinition) else dg.AssetKey.from_coercible(stream)
    own = _key(upstream, name, key, to)
    with naming(asset=own.to_user_string()):
        of_stream = of_asset(stream)
        if isinstance(stream, dg.AssetsDefinition) and (of_stream is None or of_stream.delivery is not None):
            raise InvalidPipelineError(
                f"only a stream can be delivered: give an asset made by @streaming_asset. stream={upstream}"
            )
        if own == upstream:
            raise InvalidPipelineError(f"a delivery is an asset beside its stream: give it another name. stream={own}")
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
        delivery = DeliveryOptions(to, _mode(mode, to), _epochs(max_epochs), _schema_changes(schema_changes))
        streaming = StreamingFunction(deliver, _NO_PARAMETERS, options, delivery)
        out = partial(
            _output,
            description=description or f"`{upstream.to_user_string()}` in {to.kind}, exactly once.",
            group_name=group_name,
            tags=tags,
            owners=owners,
            kinds={*(kinds or ()), to.kind},
            metadata=_place(to),
        )
        arguments = {
            "config": config_class(None, options.mode, op_name_of(own)),
            "checkpoints": CheckpointCoordinatorResource,
        }
        return step_asset(own, streaming, arguments, out, deps=[upstream])


def _output(key: dg.AssetKey, **options: Any) -> dg.AssetOut:
    return dg.AssetOut(key=key, dagster_type=dg.Nothing, **options)


def _place(to: Destination) -> Metadata:
    """The destination's table, as Dagster's lineage shows it.

    The environment variables that the destination names may be set only where the delivery runs: then its first event
    has the place.
    """
    try:
        return TablePlace(to.address, to.table_name).metadata()
    except UnsetVariableError:
        return {}


def _key(
    upstream: dg.AssetKey, name: str | None, key: dg.AssetKey | str | Sequence[str] | None, to: Destination
) -> dg.AssetKey:
    if key is not None:
        if name is not None:
            raise InvalidPipelineError(f"give a name or a key, not both. name={name}, key={key}")
        return dg.AssetKey.from_coercible(key)
    *prefix, last = upstream.path
    return dg.AssetKey([*prefix, name or f"{last}_in_{to.kind}"])


def _mode(mode: str, to: Destination) -> DeliveryMode:
    try:
        found = DeliveryMode(mode)
    except ValueError:
        raise InvalidPipelineError(f"unknown mode: use 'upsert' or 'append'. mode={mode!r}") from None
    to.check_mode(found)
    return found


def _schema_changes(changes: str) -> SchemaChanges:
    try:
        return SchemaChanges(changes)
    except ValueError:
        raise InvalidPipelineError(
            f"unknown schema_changes: use 'add' or 'replace'. schema_changes={changes!r}"
        ) from None


def _epochs(epochs: object) -> int:
    if type(epochs) is not int or epochs < 1:
        raise InvalidPipelineError(
            f"max_epochs is the most epochs that one transaction takes: 1 or more. max_epochs={epochs!r}"
        )
    return epochs
