"""The two resources of a streaming location: the store and its commits, and the state engine of the workers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.quantities import milliseconds, size_bytes
from dagster_ckpt.storage.stores.address import StoreAddress, check_options, check_url

_NO_OPTIONS: Any = Field(default_factory=dict, repr=False)
_DURATIONS = ("checkpoint_interval", "event_interval", "timeout", "grace_period")
_LEAST_BYTES = {"memory_limit": 1024**2, "cache_limit": 0}
_BOUNDS: Mapping[str, tuple[int, int]] = {
    "tolerable_failures": (0, 1_000_000),
    "retained": (1, 1_000_000),
    "max_lag": (1, 1_000_000_000),
    "io_threads": (1, 64),
}
_INT_ENV_VAR = type(dg.EnvVar.int("ANY"))


def _check_bound(given: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """The field's number; the value of an environment variable is checked where the resource is used."""
    number = handler(given)
    least, greatest = _BOUNDS[info.field_name or ""]
    if not isinstance(given, _INT_ENV_VAR) and not least <= number <= greatest:
        raise ValueError(f"{info.field_name} must be a number from {least} to {greatest}. {info.field_name}={number}")
    return number


class CheckpointCoordinatorResource(dg.ConfigurableResource[Any]):
    """Where the streams of a code location are stored, and how often an epoch is committed.

        CheckpointCoordinatorResource(url="file:///data/checkpoints", checkpoint_interval="5s", retained=100)

    Durations are texts such as "10s" or "1 hour". Raises `InvalidPipelineError` or pydantic's `ValidationError` for
    values that cannot work, those of environment variables where the resource is used.

    `storage_options` are a dependency, not config, because Dagster's UI shows config. Values may be `dg.EnvVar`.
    """

    model_config = ConfigDict(extra="forbid")

    url: str = Field(description="The store, such as file:///data/checkpoints.")
    storage_options: dg.ResourceDependency[Mapping[str, Any]] = _NO_OPTIONS
    checkpoint_interval: str = Field(
        default="10s", description="The time between two epochs; an asset may override it."
    )
    event_interval: str = Field(
        default="30s", description="The least time between two events that a running stream logs to Dagster."
    )
    timeout: str = Field(default="10 minutes", description="An epoch that takes longer is abandoned.")
    tolerable_failures: int = Field(
        default=3, description="How many epochs in a row may fail before the Dagster run fails."
    )
    retained: int = Field(default=20, description="How many epochs can be read and rolled back to.")
    grace_period: str = Field(
        default="1 hour",
        description="How long an epoch's files stay after it is no longer retained: longer than any reader takes, and "
        "than the store's listings may lag.",
    )
    max_lag: int = Field(
        default=10_000,
        description="How many epochs a downstream stream may lag. Beyond that, the change log is no longer kept for "
        "it, and it must be backfilled.",
    )

    _claimed_by: frozenset[dg.AssetKey] = PrivateAttr(default=frozenset())
    _bounds = field_validator("tolerable_failures", "retained", "max_lag", mode="wrap")(_check_bound)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: dict[str, Any]) -> dict[str, Any]:
        for option in _DURATIONS:
            # The value of an environment variable is known, and checked, only where the resource is used.
            if option in given and not isinstance(given[option], dg.EnvVar):
                milliseconds(given[option], option)
        url = given.get("url")
        if isinstance(url, str) and not isinstance(url, dg.EnvVar):
            check_url(url)
            options = given.get("storage_options")
            if isinstance(options, Mapping):
                check_options(url, _without_variables(options))
        return given

    def claim(self, keys: Iterable[dg.AssetKey]) -> bool:
        """Whether these streams are the first that are declared with this object, or were declared with it before.

        Dagster merges definitions that share a resource only if it is one object. So this tells the calls of one
        location apart, without a name for each.
        """
        streams = frozenset(keys)
        if not self._claimed_by:
            self._claimed_by = streams
        return not self._claimed_by.isdisjoint(streams)

    @property
    def address(self) -> StoreAddress:
        """The store's address, which other processes can open."""
        options = {name: _as_it_is(name, value) for name, value in self.storage_options.items()}
        return StoreAddress(self.url, options)

    def store(self) -> CheckpointStore:
        """The store, to read from."""
        address = self.address
        return CheckpointStore(address.url, address.options)

    @property
    def checkpoint_interval_ms(self) -> int:
        return milliseconds(self.checkpoint_interval, "checkpoint_interval")

    @property
    def event_interval_ms(self) -> int:
        return milliseconds(self.event_interval, "event_interval")

    @property
    def timeout_ms(self) -> int:
        return milliseconds(self.timeout, "timeout")

    @property
    def grace_ms(self) -> int:
        return milliseconds(self.grace_period, "grace_period")


class LsmStateBackendResource(dg.ConfigurableResource[Any]):
    """The state engine in each of Spark's Python workers.

        LsmStateBackendResource(memory_limit="1 GiB", cache_dir="/fast/disk/streams", cache_limit="200 GiB")

    Sizes are texts such as "256 MiB", or numbers of bytes.

    `memory_limit` covers what an epoch has written and not yet stored, and the input rows in process. The interpreter,
    Arrow and Spark need memory besides, and so does a table that is read.

    `cache_dir` and `cache_limit` are for remote stores; a local disk needs no cache. All workers of a host share the
    folder and its limit.
    """

    model_config = ConfigDict(extra="forbid")

    memory_limit: str = Field(
        default="256 MiB",
        description="How much of an epoch one of Spark's Python workers may hold in memory; above it, it writes to the "
        "store first. At least 1 MiB.",
    )
    io_threads: int = Field(
        default=4,
        description="How many files a worker writes at once, and reads at once from a remote store; at most 64.",
    )
    cache_dir: str | None = Field(
        default=None,
        description="A folder on the workers' local fast disk, private to their user, that caches state of a remote "
        "store. By default one below the system's temporary folder.",
    )
    cache_limit: str = Field(default="4 GiB", description="How much of the disk that folder may take; 0: no cache.")

    _bounds = field_validator("io_threads", mode="wrap")(_check_bound)

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: dict[str, Any]) -> dict[str, Any]:
        known = {name: value for name, value in given.items() if not isinstance(value, dg.EnvVar)}
        for option, least in _LEAST_BYTES.items():
            if option in known:
                size_bytes(known[option], option, least)
        folder = known.get("cache_dir")
        if folder is not None and not _is_absolute(folder):
            raise InvalidPipelineError(
                f"cache_dir must be an absolute folder, such as /var/cache/streams: a relative one would depend on "
                f"where a worker was started. cache_dir={folder!r}"
            )
        # Config is text: a number that was given as one is written down.
        return {**given, **{option: str(known[option]) for option in _LEAST_BYTES if option in known}}

    @property
    def memory_limit_bytes(self) -> int:
        return size_bytes(self.memory_limit, "memory_limit", _LEAST_BYTES["memory_limit"])

    @property
    def cache_limit_bytes(self) -> int:
        return size_bytes(self.cache_limit, "cache_limit", _LEAST_BYTES["cache_limit"])


def _as_it_is(option: str, value: object) -> object:
    """A value of `storage_options`, with environment variables replaced by their values."""
    if isinstance(value, dg.EnvVar):
        held = value.get_value()
        if held is None:
            # s3fs would look for credentials elsewhere, and perhaps find another user's.
            raise InvalidPipelineError(
                "an environment variable of storage_options is not set: set it where the streams run, and where the "
                f"sensor does. option={option}, variable={value.env_var_name}"
            )
        return held
    if isinstance(value, Mapping):
        return {name: _as_it_is(f"{option}.{name}", inner) for name, inner in value.items()}
    return value


def _without_variables(options: Mapping[str, object]) -> dict[str, object]:
    """The options without those that are environment variables, whose values are known where the resource is used."""
    return {
        name: _without_variables(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if not isinstance(value, dg.EnvVar)
    }


def _is_absolute(folder: object) -> bool:
    return isinstance(folder, str) and "\0" not in folder and Path(folder).is_absolute()


def uri_of(url: str, key: dg.AssetKey) -> str:
    """The address of a stream's folder in the store at `url`. No address has credentials (`check_url`)."""
    return f"{url.rstrip('/')}/{folder_of(key.path)}"


def spark_session(resource: object) -> SparkSession:
    """The session of dagster-pyspark's PySparkResource or LazyPySparkResource, or the session itself.

    Raises `InvalidPipelineError` for anything else.
    """
    found = resource if isinstance(resource, SparkSession) else getattr(resource, "spark_session", None)
    if found is None:
        raise InvalidPipelineError(
            "the resource 'spark' has no Spark session: use dagster-pyspark's PySparkResource or LazyPySparkResource. "
            f"spark={type(resource).__name__}"
        )
    session: SparkSession = found
    return session
