"""A source that is declared in SQL: `CREATE TEMPORARY VIEW orders (id BIGINT) USING parquet OPTIONS (path '/in')`."""

import os
import re

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.integration.declared.file_formats import NEED_SCHEMA, is_absolute
from dagster_ckpt.integration.sql.statements import SqlSourceView
from dagster_ckpt.runtime.declared.sources import DeclaredSource, source

_VARIABLE = re.compile(r"\$\{env:([^}]+)\}")
"""As Spark writes an environment variable in SQL."""


def declared_source(view: SqlSourceView) -> DeclaredSource:
    """The source, under the name of the view, for `run_batches` too. It is unbounded.

    Raises `InvalidPipelineError` for what Spark would refuse when the stream starts.
    """
    path = next((value for name, value in view.options.items() if name.lower() == "path"), None)
    if view.format.lower() in NEED_SCHEMA and not (path and view.schema):
        raise view.place.error(
            "files need columns and a path: CREATE TEMPORARY VIEW name (id BIGINT, ...) USING parquet OPTIONS "
            "(path '/data/orders').",
            source=view.name,
        )
    if path is not None and not is_absolute(path) and not _VARIABLE.match(path):
        raise view.place.error(
            "a relative path would depend on where a process was started: write it in full, as a URL, or from an "
            f"environment variable: '${{env:DATA}}/{path}'.",
            source=view.name,
            path=path,
        )

    def read(spark: SparkSession) -> DataFrame:
        options = {name: _with_variables(value, view) for name, value in view.options.items()}
        reader = spark.readStream.format(view.format).options(**options)
        if view.schema is not None:
            reader = reader.schema(view.schema)
        return reader.load()

    return source(view.name, read)


def _with_variables(text: str, view: SqlSourceView) -> str:
    """The text with environment variables in place of their names. They are read when the stream starts."""
    for name in _VARIABLE.findall(text):
        if name not in os.environ:
            raise view.place.error("this environment variable is not set: set it.", variable=name, source=view.name)
    return _VARIABLE.sub(lambda found: os.environ[found[1]], text)
