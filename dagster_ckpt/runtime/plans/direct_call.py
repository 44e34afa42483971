"""A streaming function called outside of Dagster, with tables of the caller's for its upstreams."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, get_type_hints

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.declared.step_parts import Upstream
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans.returned import stream_returned
from dagster_ckpt.runtime.plans.stand_ins import stand_ins_of
from dagster_ckpt.runtime.spark.session import NEEDED, announce_settings


class TablesByName(Protocol):
    """What the parameters that are upstreams get, by their names."""

    def frame(self, name: str) -> DataFrame:
        """The rows of a change log."""
        ...

    def stream(self, name: str) -> Stream:
        """The rows of a table."""
        ...


def call_directly(
    asset: str,
    function: Callable[..., object],
    session: SparkSession,
    arguments: Mapping[str, object],
    upstreams: TablesByName,
) -> Stream:
    """What a streaming function returns, as a stream. `arguments` are those of parameters without another meaning.

    `asset` is the name in errors.

    Raises `InvalidPipelineError` for a parameter without an argument, and for what is no stream.
    """
    with stand_ins_of(session):
        given = _arguments(function, session, arguments, upstreams)
        return stream_returned(asset, function(**given), session, given)


def _arguments(
    function: Callable[..., object], session: SparkSession, arguments: Mapping[str, object], upstreams: TablesByName
) -> dict[str, object]:
    hints = get_type_hints(function)
    given: dict[str, object] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in arguments:
            given[name] = arguments[name]
        elif name == "spark" or hints.get(name) is SparkSession:
            given[name] = session
        elif hints.get(name) is DataFrame:
            given[name] = upstreams.frame(name)
        elif hints.get(name) is Stream:
            given[name] = upstreams.stream(name)
        elif parameter.default is inspect.Parameter.empty:
            raise InvalidPipelineError(
                f"a parameter of the asset has no value: pass it in arguments=. parameter={name}"
            )
    return given


def stream_of_rows(name: str, frame: DataFrame, keys: Sequence[str] | None) -> Stream:
    """The table of an upstream: rows that are added, or, with its key, changes. Raises `InvalidPipelineError`."""
    if (CHANGE_TYPE in frame.columns) != (keys is not None):
        raise InvalidPipelineError(
            f"an upstream that updates rows needs {CHANGE_TYPE} in its columns and its key in keys=, others neither. "
            f"upstream={name}, columns={frame.columns}, keys={keys}"
        )
    return Stream(frame, upstream=Upstream(name, None if keys is None else tuple(keys)))


def local_session() -> SparkSession:
    """The active session, else a new local one."""
    announce_settings(os.environ)
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # Set here too: a JVM that has had a context before no longer reads the announced settings.
    builder = SparkSession.builder.master("local[2]").appName("dagster-ckpt").config(map=dict(NEEDED))
    return builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
