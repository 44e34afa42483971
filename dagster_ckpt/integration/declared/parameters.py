"""The parameters of a streaming function, read once when it is decorated."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import dagster as dg
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.stream import Stream

_RESOURCE_MARK = get_args(dg.ResourceParam[object])[1]
STATIC = "static"
"""The metadata of an `AssetIn` that declares a parameter annotated as a Spark DataFrame as an ordinary asset."""

_NO_INPUT = (None, dg.AssetExecutionContext, dg.OpExecutionContext)
_SCALARS = (bool, int, float, str, bytes)
"""Most likely an option of the function, which belongs into its Config: an asset only if `ins` names it."""
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Parameters:
    """A streaming function's parameters by the kind of their arguments.

    `resources` maps a resource key to its annotation, `upstreams` the name of an upstream stream to its annotation:
    `Stream` or `DataFrame`, and `inputs` the name of an ordinary asset to its annotation.
    """

    context: str | None
    sparks: tuple[str, ...]
    config: str | None
    config_type: type[dg.Config] | None
    resources: Mapping[str, Any]
    upstreams: Mapping[str, type[Stream] | type[DataFrame]]
    inputs: Mapping[str, Any]

    def arguments(
        self,
        context: dg.AssetExecutionContext,
        spark: SparkSession,
        config: dg.Config | None,
        resources: Mapping[str, object],
        upstreams: Mapping[str, object],
        inputs: Mapping[str, object],
    ) -> dict[str, object]:
        """The arguments of the function's call."""
        arguments: dict[str, object] = {name: resources[name] for name in self.resources}
        arguments.update({name: inputs[name] for name in self.inputs})
        arguments.update({name: upstreams[name] for name in self.upstreams})
        arguments.update(dict.fromkeys(self.sparks, spark))
        if self.context is not None:
            arguments[self.context] = context
        if self.config is not None:
            arguments[self.config] = config
        return arguments


def read_parameters(function: Callable[..., object], ins: Mapping[str, dg.AssetIn]) -> Parameters:
    """The parameters of a streaming function. Raises `InvalidPipelineError` for an unsupported one.

    `ins` are those of the decorator. A Spark DataFrame is an upstream's change log, unless they declare it as static.
    """
    hints = _hints(function)
    context: str | None = None
    config: tuple[str, type[dg.Config]] | None = None
    sparks: list[str] = []
    resources: dict[str, Any] = {}
    upstreams: dict[str, type[Stream | DataFrame]] = {}
    inputs: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _BY_NAME:
            raise InvalidPipelineError(
                f"a streaming function is called by the names of its parameters: name each one. parameter={parameter}"
            )
        hint = hints.get(name)
        if is_resource(hint) and name not in {"context", "config"}:
            # First: a ConfigurableResource is a Config as well.
            resources[name] = hint
        elif hint is Stream or (hint is DataFrame and not is_static(ins.get(name))):
            upstreams[name] = hint
        elif hint is SparkSession or (name == "spark" and hint is None):
            sparks.append(name)
        elif name == "context":
            context = name
        elif isinstance(hint, type) and issubclass(hint, dg.Config):
            if config is not None:
                raise InvalidPipelineError(
                    f"a streaming function takes one Config: put the fields together. parameters={config[0]}, {name}"
                )
            config = (name, hint)
        elif name == "config" or hint in _NO_INPUT or (hint in _SCALARS and name not in ins):
            raise InvalidPipelineError(_refusal(name, hint))
        else:
            inputs[name] = hint
    config_name, config_type = config or (None, None)
    return Parameters(context, tuple(sparks), config_name, config_type, resources, upstreams, inputs)


def is_static(given: dg.AssetIn | None) -> bool:
    """Whether an `AssetIn` declares a Spark DataFrame as an ordinary asset: `AssetIn(metadata={"static": True})`."""
    return given is not None and (given.metadata or {}).get(STATIC) is True


def is_resource(hint: object) -> bool:
    """Whether this is the annotation of a Dagster resource."""
    if isinstance(hint, type) and issubclass(hint, dg.ConfigurableResource | dg.ConfigurableIOManager):
        return True
    return getattr(hint, "__metadata__", None) == (_RESOURCE_MARK,)


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidPipelineError(
            "an annotation names something that is not imported where the function is defined: import it at run time, "
            f"not only for type checkers. name={error.name}"
        ) from error


def _refusal(name: str, hint: object) -> str:
    if hint is None:
        return (
            "a parameter has no annotation: name it `context` or `spark`, or annotate it as SparkSession, a resource, "
            "a dg.Config, for an upstream streaming asset Stream (its table) or DataFrame (its change log), or for an "
            "ordinary asset the type that its IO manager loads. For an upstream asset that is not read here use "
            f"deps=[...]. parameter={name}"
        )
    return (
        "unsupported parameter annotation: put options into a dg.Config, name the context `context`, and name an asset "
        f"of this type by ins={{{name!r}: dg.AssetIn(...)}}. parameter={name}, annotation={hint}"
    )
