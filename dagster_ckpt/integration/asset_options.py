"""The options that `@streaming_asset` takes, and those it refuses, with the reason."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, TypedDict, cast

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.quantities import Duration

Source = Callable[..., object]
"""Makes of a Spark session a streaming DataFrame, or the `Stream` of a feed of changes."""

REFUSED = {
    "partitions_def": "a stream needs no partitions: its epochs are its history",
    "backfill_policy": "a stream is not backfilled: roll it back with `from_epoch` in the run config",
    "io_manager_key": "a stream's table is written by its commits and read through the IO manager 'epochs'",
    "io_manager_def": "a stream's table is written by its commits and read through the IO manager 'epochs'",
    "output_required": "the step always reports the newest epoch, or Dagster would skip what is downstream",
    "dagster_type": "the step yields the metadata of an epoch, never a value that could be checked",
    "required_resource_keys": "name the resources as annotated parameters of the function instead",
    "check_specs": "the function returns a stream and no check results: write an @dg.asset_check that loads its table",
}


class RunOptions(TypedDict, total=False):
    """How a stream runs."""

    checkpoint_interval: Duration | None
    max_epochs_per_batch: int
    shards: int
    tasks: int | None
    mode: str
    run_for: Duration
    autostart: bool
    run_tags: Mapping[str, str] | None
    recovery: Recovery
    moved: Mapping[str, str] | None


class OwnOptions(RunOptions, total=False):
    """The options of a streaming asset that `@dg.asset` does not have."""

    sources: Sequence[dg.AssetSpec]
    renamed: Mapping[str, str] | None
    primary_key: str | Sequence[str]


class SharedOptions(RunOptions, total=False):
    """The options that several streaming assets may have alike."""

    key_prefix: str | Sequence[str] | None
    metadata: Mapping[str, Any] | None
    tags: Mapping[str, str] | None
    hooks: AbstractSet[dg.HookDefinition] | None
    op_tags: Mapping[str, Any] | None
    group_name: str | None
    automation_condition: dg.AutomationCondition[Any] | None
    freshness_policy: Any
    retry_policy: dg.RetryPolicy | None
    code_version: str | None
    owners: Sequence[str] | None
    kinds: AbstractSet[str] | None
    pool: str | None


class AssetOptions(OwnOptions, SharedOptions, total=False):
    """Every option of a streaming asset: ours, and those of `@dg.asset`."""

    name: str | None
    key: dg.AssetKey | str | Sequence[str] | None
    deps: Iterable[Any] | None
    ins: Mapping[str, dg.AssetIn] | None
    description: str | None
    config_schema: Mapping[str, Any] | None
    resource_defs: Mapping[str, object] | None


def check_names(options: Mapping[str, object]) -> None:
    """Raises `InvalidPipelineError` for an option that a stream cannot have, TypeError for an unknown one."""
    for name in options:
        if name in REFUSED:
            raise InvalidPipelineError(f"a streaming asset takes no {name}: {REFUSED[name]}. option={name}")
        if name not in AssetOptions.__annotations__:
            raise TypeError(f"streaming_asset() got an unexpected keyword argument {name!r}")


def own_options(options: AssetOptions) -> OwnOptions:
    """Our part of the options."""
    names = OwnOptions.__annotations__
    return cast(OwnOptions, {name: value for name, value in options.items() if name in names})
