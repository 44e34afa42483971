"""The two resources of a streaming location: where epochs are kept and how often, and how state is held at work."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import Field, model_validator
from pyspark.sql import SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.history import CheckpointStore
from dagster_ckpt.quantities import milliseconds, size_bytes
from dagster_ckpt.storage.address import StoreAddress

_NO_OPTIONS: Any = Field(default_factory=dict, repr=False)
_DURATIONS = ("checkpoint_interval", "event_interval", "timeout")


class CheckpointCoordinatorResource(dg.ConfigurableResource[Any]):
    """Where the streams of a code location are kept, and how often an epoch is committed.

    `storage_options` are a dependency, not config, because Dagster's UI shows config. Values may be `dg.EnvVar`.
    """

    url: str = Field(description="The store, such as file:///data/checkpoints.")
    storage_options: dg.ResourceDependency[Mapping[str, Any]] = _NO_OPTIONS
    checkpoint_interval: str = Field(default="10s", description="The time between two epochs; an asset's own beats it.")
    event_interval: str = Field(
        default="30s", description="Dagster hears of an epoch at most this often while a stream runs."
    )
    timeout: str = Field(default="10 minutes", description="An epoch that takes longer is given up.")
    tolerable_failures: int = Field(
        default=3, ge=0, description="How many epochs in a row may fail before the Dagster run does."
    )
    retained: int = Field(default=20, ge=1, description="How many epochs can be read and rolled back to.")

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: dict[str, Any]) -> dict[str, Any]:
        for option in _DURATIONS:
            # What an environment variable holds is known, and checked, only where the resource is used.
            if option in given and not isinstance(given[option], dg.EnvVar):
                milliseconds(given[option], option)
        return given

    @property
    def address(self) -> StoreAddress:
        """The store's address, which other processes can open."""
        options = {
            name: value.get_value() if isinstance(value, dg.EnvVar) else value
            for name, value in self.storage_options.items()
        }
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


class LsmStateBackendResource(dg.ConfigurableResource[Any]):
    """How the state engine works in Spark's Python workers.

    `memory_limit` does not bound a worker as a whole: input rows are worked in chunks of about an eighth of it, so that
    a chunk and what is made of it fit. What an epoch changes is held besides until the epoch ends: for each
    distinct key its row before and after. Bound that by the source, as with Spark's `maxFilesPerTrigger`.
    """

    memory_limit: str = Field(
        default="256 MiB",
        description="About the most that the input rows which one of Spark's Python workers takes in at once may need "
        "while they are worked. The distinct keys of an epoch come on top: the source's limits bound those.",
    )

    @model_validator(mode="before")
    @classmethod
    def _check(cls, given: dict[str, Any]) -> dict[str, Any]:
        if "memory_limit" in given and not isinstance(given["memory_limit"], dg.EnvVar):
            size_bytes(given["memory_limit"], "memory_limit")
        return given

    @property
    def memory_limit_bytes(self) -> int:
        return size_bytes(self.memory_limit, "memory_limit")


def spark_session(resource: object) -> SparkSession:
    """The session of dagster-pyspark's PySparkResource or LazyPySparkResource, or of a session given as it is.

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
