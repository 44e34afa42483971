"""`@streaming_asset`: a function that returns a `Stream` becomes an ordinary Dagster asset."""

import hashlib
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Unpack, get_overloads, overload

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.asset_options import AssetOptions, check_names, own_options
from dagster_ckpt.integration.dagster_names import IO_MANAGER_KEY, op_name_of
from dagster_ckpt.integration.declared.asset_inputs import upstream_ins
from dagster_ckpt.integration.declared.parameters import read_parameters
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource
from dagster_ckpt.integration.declared.run_config import RESERVED, config_class
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.integration.declared.streaming_function import Function, StreamingFunction, check_source
from dagster_ckpt.integration.streaming_assets import step_asset
from dagster_ckpt.quantities import Duration
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.session import announce_settings

_RESOURCES: Mapping[str, Any] = {
    # Any resource: PySparkResource and LazyPySparkResource have no common base class.
    "spark": dg.ResourceParam[object],
    "checkpoints": CheckpointCoordinatorResource,
    "state": LsmStateBackendResource,
}

_PACKAGE = __name__.partition(".")[0]
_KINDS = ("spark", "streaming")
"""Shown beside the user's kinds."""


@overload
def streaming_asset(function: Function, /) -> dg.AssetsDefinition: ...


@overload
def streaming_asset(
    function: None = None,
    /,
    *,
    mode: str = "available_now",
    checkpoint_interval: Duration | None = None,
    shards: int = 8,
    tasks: int | None = None,
    run_for: Duration = "12 hours",
    autostart: bool = False,
    run_tags: Mapping[str, str] | None = None,
    recovery: Recovery = Recovery(),
    moved: Mapping[str, str] | None = None,
    renamed: Mapping[str, str] | None = None,
    sources: Sequence[dg.AssetSpec] = (),
    primary_key: str | Sequence[str] = (),
    max_epochs_per_batch: int = 100,
    name: str | None = None,
    key_prefix: str | Sequence[str] | None = None,
    key: dg.AssetKey | str | Sequence[str] | None = None,
    deps: Iterable[Any] | None = None,
    ins: Mapping[str, dg.AssetIn] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    description: str | None = None,
    config_schema: Mapping[str, Any] | None = None,
    resource_defs: Mapping[str, object] | None = None,
    hooks: AbstractSet[dg.HookDefinition] | None = None,
    op_tags: Mapping[str, Any] | None = None,
    group_name: str | None = None,
    automation_condition: dg.AutomationCondition[Any] | None = None,
    freshness_policy: Any = None,
    retry_policy: dg.RetryPolicy | None = None,
    code_version: str | None = None,
    owners: Sequence[str] | None = None,
    kinds: AbstractSet[str] | None = None,
    pool: str | None = None,
) -> Callable[[Function], dg.AssetsDefinition]: ...


def streaming_asset(
    function: Function | None = None, /, **options: Unpack[AssetOptions]
) -> dg.AssetsDefinition | Callable[[Function], dg.AssetsDefinition]:
    """Make an asset of a function that returns a `Stream`.

        @streaming_asset(mode="continuous", checkpoint_interval="10s")
        def delay_by_carrier(spark: SparkSession) -> Stream:
            return Stream(departures(spark)).key_by("carrier").aggregate(flights=agg.count())

    Each Dagster run of it opens the stream, processes its sources in exactly-once epochs and ends with the newest one's
    numbers. Its asset check `is_live` fails when it should run and does not, `no_crash_loop` when it is no longer
    restarted, and `has_recovery_sensor` warns where no sensor would restart it.

    Options of a stream:

    - `mode`: "available_now" (process the available input, then end) or "continuous" (an epoch every interval).
    - `checkpoint_interval`: the time between two epochs of a continuous run; None for the coordinator resource's.
    - `shards`: hash partitions of the keys, a power of two, at most 4096; counts only when the stream is created, later
      `dagster-ckpt reshard` changes it.
    - `tasks`: the most tasks that process the shards of an epoch, never more than there are shards; None for as many as
      all executors that the application may have can run at once, with dynamic allocation too.
    - `run_for`: a continuous run ends cleanly after this long, and the recovery sensor starts the next.
    - `autostart`: the sensor also starts a continuous stream that has never run.
    - `run_tags`: tags for the Dagster runs of its job.
    - `recovery`: how it recovers from a crash.
    - `moved`: new addresses of the folders or buckets of its sources, `{"old": "new"}`: the stream continues there.
      Needed for one start; it may stay.
    - `renamed`: new names of columns that the code has renamed, `{"old": "new"}`: the state goes on. Needed for one
      start; it may stay.
    - `sources`: what it reads outside of Dagster (a topic, a folder, a table), as external assets. Each is an upstream
      of the asset, and `build_streaming_definitions` defines it.
    - `primary_key`: the columns that identify a row of its table, where that does not follow from the stream as from a
      query that keeps the columns of its GROUP BY. Two rows of one key end the stream.
    - `max_epochs_per_batch`: the most epochs of an upstream that one of its epochs takes in.

    Options that mean what they mean for `@dg.asset`: `name`, `key_prefix`, `key`, `deps`, `ins`, `metadata`, `tags`,
    `description` (the function's docstring by default), `config_schema`, `resource_defs`, `hooks`, `op_tags`,
    `group_name`, `automation_condition` (not of a continuous stream), `freshness_policy`, `retry_policy`,
    `code_version`, `owners`, `kinds` (beside `spark` and `streaming`) and `pool`. The other options of `@dg.asset` are
    refused with the reason.

    A parameter annotated `Stream` is the table of the upstream streaming asset that it is named after, one annotated
    `DataFrame` that asset's change log; `ins={"parameter": AssetIn(key=...)}` names an asset with another key. Any
    other annotation, such as `pd.DataFrame` or `pa.Table`, is an ordinary asset, loaded by its IO manager when the
    Dagster run starts; a Spark `DataFrame` is one with `ins={"parameter": AssetIn(metadata={"static": True})}`.

    Raises `InvalidPipelineError` for options and parameters that cannot work, `TypeError` for an unknown option.
    """
    check_names(options)

    def decorate(function: Function) -> dg.AssetsDefinition:
        key = _key(function, options)
        with naming(asset=key.to_user_string()):
            return _build(function, key, options)

    return decorate if function is None else decorate(function)


# inspect.signature() and help() follow the implementation, whose options are one name.
vars(streaming_asset)["__signature__"] = inspect.signature(get_overloads(streaming_asset)[-1])


def _key(function: Function, options: AssetOptions) -> dg.AssetKey:
    key, name, prefix = options.get("key"), options.get("name"), options.get("key_prefix")
    if key is None:
        prefixes = [prefix] if isinstance(prefix, str) else list(prefix or [])
        return dg.AssetKey([*prefixes, name or str(getattr(function, "__name__", ""))])
    if name or prefix:
        raise InvalidPipelineError(
            f"a key includes name and prefix: leave out these, or the key. key={key}, name={name}, key_prefix={prefix}"
        )
    return dg.AssetKey.from_coercible(key)


def _build(function: Function, key: dg.AssetKey, options: AssetOptions) -> dg.AssetsDefinition:
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise InvalidPipelineError(f"a streaming function returns its Stream; it cannot yield or await. function={key}")
    check_source(function)
    parameters = read_parameters(function, options.get("ins") or {})
    streaming = StreamingFunction(function, parameters, stream_options(**own_options(options)))
    _check(streaming, options)
    # A resource may start Spark before the step's first line runs: from here on, a new JVM has the settings it needs.
    announce_settings(os.environ)
    own_config = config_class(streaming.parameters.config_type, streaming.options.mode, op_name_of(key))
    user_schema = options.get("config_schema")
    arguments = {} if user_schema is not None else {"config": own_config}
    arguments |= {**_RESOURCES, **streaming.parameters.resources, **streaming.parameters.inputs}
    return step_asset(
        key,
        streaming,
        arguments,
        partial(_output, function, options),
        deps=[*(options.get("deps") or ()), *streaming.options.sources],
        ins=upstream_ins(streaming.parameters, options.get("ins")),
        config_schema=None if user_schema is None else {**own_config.to_fields_dict(), **user_schema},
        resource_defs=options.get("resource_defs"),
        hooks=options.get("hooks"),
        op_tags=options.get("op_tags"),
        retry_policy=options.get("retry_policy"),
        pool=options.get("pool"),
    )


def _check(streaming: StreamingFunction, options: AssetOptions) -> None:
    parameters = streaming.parameters
    for name, expected in _RESOURCES.items():
        if name in parameters.inputs:
            raise InvalidPipelineError(
                f"the name {name!r} is reserved by streaming assets: rename the parameter, and name its asset by "
                f"ins={{...: dg.AssetIn({name!r})}}. parameter={name}"
            )
        given = parameters.resources.get(name, expected)
        if name != "spark" and given is not expected:
            raise InvalidPipelineError(
                f"the resource key {name!r} is reserved by streaming assets: give yours another. annotation={given}"
            )
    if options.get("automation_condition") is not None and streaming.options.mode is Mode.CONTINUOUS:
        raise InvalidPipelineError(
            "a continuous stream takes no automation_condition: it could start a second Dagster run beside the live "
            "one; the recovery sensor keeps it running. option=automation_condition"
        )
    user_schema = options.get("config_schema")
    if user_schema is not None and parameters.config_type is not None:
        raise InvalidPipelineError(
            f"declare the config once: as a config_schema or as a parameter. parameter={parameters.config}"
        )
    taken = sorted(set(RESERVED) & set(user_schema or ()))
    if taken:
        raise InvalidPipelineError(
            f"these config fields are reserved by streaming assets: rename yours. fields={taken}"
        )


def _output(function: Function, options: AssetOptions, key: dg.AssetKey) -> dg.AssetOut:
    return dg.AssetOut(
        key=key,
        io_manager_key=IO_MANAGER_KEY,
        description=options.get("description") or inspect.getdoc(function),
        metadata=options.get("metadata"),
        tags=options.get("tags"),
        group_name=options.get("group_name"),
        code_version=options.get("code_version") or _source_version(function),
        automation_condition=options.get("automation_condition"),
        freshness_policy=options.get("freshness_policy"),
        owners=options.get("owners"),
        kinds={*(options.get("kinds") or ()), *_KINDS},
    )


def _source_version(function: Function) -> str | None:
    """A digest of the function's own source, with its decorator; None where there is none, or where it is not a user's.

    What the function calls is not in it.
    """
    if str(getattr(function, "__module__", "")).partition(".")[0] == _PACKAGE:
        return None  # of a component, whose definition is not in its source
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None  # of a session, or of a callable object
    return hashlib.sha256(source.encode()).hexdigest()[:16]
