"""What a stream reads: a format of Spark's, another stream, or whatever a Python function reads.

Each makes the function that `streaming_asset` takes.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.steps import Step, apply_steps
from dagster_ckpt.integration.component.templates import Scalar, load_object, settings, text
from dagster_ckpt.integration.declared.file_formats import NEED_SCHEMA, is_absolute
from dagster_ckpt.runtime.declared.sources import source
from dagster_ckpt.runtime.declared.stream import Stream

Function = Callable[..., object]

SOURCE = "source"
"""The name of the declared source, for `run_batches`."""

UPSTREAM = "upstream"
"""The parameter that is the upstream's table."""

LoadedFunction = Annotated[Function, dg.Resolver(load_object, model_field_type=str)]


class Source(dg.Model, dg.Resolvable):
    """A source that Spark reads: `spark.readStream.format(format).schema(schema).options(**options).load(path)`."""

    format: Annotated[
        str,
        text(
            "The format: parquet, json, csv, orc, text, rate, kafka, or another that Spark can stream.",
            examples=["parquet", "kafka"],
        ),
    ]
    path: Annotated[
        str | None,
        text(
            "The folder, as an absolute path or a URL.",
            examples=["{{ context.project_root }}/data/departures", "s3a://bucket/departures"],
        ),
    ] = None
    schema_: Annotated[
        str | None,
        text("The columns and their types, as Spark's DDL.", examples=["carrier string, dep_delay double"]),
    ] = Field(default=None, alias="schema")
    options: Annotated[
        dict[str, Scalar],
        settings(
            "The options of the format, by Spark's names.",
            examples=[{"maxFilesPerTrigger": 100}, {"kafka.bootstrap.servers": "host:9092", "subscribe": "departures"}],
        ),
    ] = Field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Raise `InvalidPipelineError` for what Spark would refuse when the stream starts."""
        if self.format.lower() in NEED_SCHEMA and not (self.path and self.schema_):
            raise InvalidPipelineError(
                "files need a path and a schema, such as path: /data/departures and schema: carrier string, dep_delay "
                f"double. format={self.format}, path={self.path}, schema={self.schema_}"
            )
        if self.path is not None and not is_absolute(self.path):
            raise InvalidPipelineError(
                "a relative path would depend on where a process was started: write "
                f"{{{{ context.project_root }}}}/{self.path}, or a URL. path={self.path}"
            )

    def read(self, spark: SparkSession) -> DataFrame:
        """The unbounded DataFrame."""
        reader = spark.readStream.format(self.format).options(**self.options)
        if self.schema_ is not None:
            reader = reader.schema(self.schema_)
        return reader.load(self.path)


def function_of_source(given: Source, steps: Sequence[Step]) -> Function:
    """The streaming function that reads a source."""
    declared = source(SOURCE, given.read)

    def stream(spark: SparkSession) -> Stream:
        return apply_steps(Stream(declared(spark)), steps)

    return stream


def function_of_upstream(steps: Sequence[Step]) -> Function:
    """The streaming function that reads another stream: its parameter `upstream`."""

    def stream(upstream: Stream) -> Stream:
        return apply_steps(upstream, steps)

    return stream


def check_function(function: Function) -> Function:
    """The user's function. Raises `InvalidPipelineError` for an asset, which can be called too."""
    if isinstance(function, dg.AssetsDefinition):
        raise InvalidPipelineError(
            "function names a Python function that returns a Stream, without @streaming_asset: the component makes the "
            f"asset. function={function.key.to_user_string()}"
        )
    return function
