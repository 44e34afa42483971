"""The resources of a project: one object for all components that declare equal ones.

Dagster merges definitions with a resource of one key only if it is one object.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import BaseModel, Field, create_model

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.templates import Scalar, render_all
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource

Resource = TypeVar("Resource")


@dataclass
class _Project:
    """The component tree that this process loads. Each resource has its component, how that declared it, and itself."""

    tree: object = None
    resources: dict[str, tuple[str, Any, Any]] = field(default_factory=dict)


_PROJECT = _Project()


def _attributes(resource: type[BaseModel], **more: Any) -> type[BaseModel]:
    """A model of a resource's config, with its descriptions and defaults."""
    fields: dict[str, Any] = {
        name: (
            _injectable(field.annotation),
            Field(default=... if field.is_required() else field.default, description=field.description),
        )
        for name, field in resource.model_fields.items()
        if name not in more
    }
    return create_model(f"{resource.__name__}Attributes", __base__=dg.Model, **fields, **more)


def _injectable(annotation: Any) -> Any:
    return annotation if annotation is str else annotation | str


_CheckpointAttributes = _attributes(
    CheckpointCoordinatorResource,
    storage_options=(
        dict[str, Any],
        Field(
            default={},
            repr=False,
            description="Options of the store: on a server credentials and an endpoint, as fsspec has them; "
            "`shared: true` for a folder that all hosts mount.",
        ),
    ),
)
_StateAttributes = _attributes(LsmStateBackendResource)


def _checkpoints(context: dg.ResolutionContext, given: BaseModel) -> CheckpointCoordinatorResource:
    return _share(context, "checkpoints", CheckpointCoordinatorResource, given.model_dump(exclude_unset=True))


def _state(context: dg.ResolutionContext, given: BaseModel) -> LsmStateBackendResource:
    return _share(context, "state", LsmStateBackendResource, given.model_dump(exclude_unset=True))


def _spark(context: dg.ResolutionContext, given: Mapping[str, Any]) -> LazyPySparkResource:
    return _share(context, "spark", LazyPySparkResource, {"spark_config": dict(given)})


def _share(context: dg.ResolutionContext, key: str, make: type[Resource], given: Mapping[str, Any]) -> Resource:
    """The resource of this key and config. Raises `InvalidPipelineError` if another component has declared another."""
    loading = dg.ComponentLoadContext.from_resolution_context(context)
    if _PROJECT.tree is not loading.component_tree:
        _PROJECT.tree, _PROJECT.resources = loading.component_tree, {}
    values = render_all(context, given)
    here = os.path.relpath(loading.path, loading.project_root)
    there, others, resource = _PROJECT.resources.setdefault(key, (here, values, None))
    if others != values:
        raise InvalidPipelineError(
            f"the streams of a project share the resource {key!r}: give it equal attributes in each component, or "
            f"declare it once for the project, in defs/resources.py, and leave it out of the components. "
            f"component={here}, other={there}"
        )
    if resource is None:
        resource = make(**values)
        _PROJECT.resources[key] = (here, values, resource)
    shared: Resource = resource
    return shared


# Any, because Dagster looks into a type that it knows, and a resource has fields that YAML cannot have.
Checkpoints = Annotated[Any, dg.Resolver(_checkpoints, model_field_type=_CheckpointAttributes)]
ProjectCheckpoints = Annotated[
    Checkpoints | None,
    dg.Resolver.default(
        description="The store of the project's streams. Leave it out where the project has the resource.",
        examples=[{"url": "s3://bucket/checkpoints"}],
    ),
]
State = Annotated[Any, dg.Resolver(_state, model_field_type=_StateAttributes)]
Spark = Annotated[Any, dg.Resolver(_spark, model_field_type=dict[str, Scalar])]
ProjectState = Annotated[State | None, dg.Resolver.default(description="The state engine in Spark's Python workers.")]
ProjectSpark = Annotated[
    Spark | None,
    dg.Resolver.default(
        description="The Spark configuration. Leave it out where the project has the resource.",
        examples=[{"spark.master": "local[2]"}],
    ),
]
