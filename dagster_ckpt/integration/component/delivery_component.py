"""`DeliveryComponent`: a stream exactly once into another system, declared in YAML."""

from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from dagster_ckpt.integration.component.attribute_schema import with_exact_schema
from dagster_ckpt.integration.component.destinations import ResolvedDestination
from dagster_ckpt.integration.component.run_attributes import RunFor
from dagster_ckpt.integration.component.scaffolder import DeliveryComponentScaffolder
from dagster_ckpt.integration.component.shared_resources import ProjectCheckpoints
from dagster_ckpt.integration.component.streaming_component import ResolvedRecovery
from dagster_ckpt.integration.component.templates import text, texts, texts_by_name
from dagster_ckpt.integration.definitions import build_streaming_definitions
from dagster_ckpt.integration.deliver import deliver

_OF_THE_PROJECT = {"checkpoints"}
"""The attributes that are no options of `deliver`."""


@dg.scaffold_with(DeliveryComponentScaffolder)
class DeliveryComponent(dg.Component, dg.Model, dg.Resolvable):
    """A delivery: a stream's table or its changes, exactly once into another system.

        DeliveryComponent.from_attributes_dict(
            attributes={
                "stream": "delay_by_carrier",
                "to": {"postgres": {"url": "postgresql://db/shop", "table": "delays"}},
            }
        )

    In a `defs.yaml` they are the `attributes` of `type: dagster_ckpt.DeliveryComponent`.

    Makes the asset with its checks, its job and a recovery sensor. The attributes are the options of `deliver`. The
    stream may be declared in YAML, in Python or in another code location. It is named by its key, so the delivery does
    not know whether it is continuous: say so. Raises `InvalidPipelineError` for what cannot work.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    stream: dg.ResolvedAssetKey = Field(description="The key of the stream.")
    to: ResolvedDestination
    mode: Annotated[
        Literal["upsert", "append"],
        dg.Resolver.default(description="Keep the destination's table equal to the stream's, or add every change."),
    ] = "upsert"
    interval: Annotated[str | None, text("The time between two transactions of a continuous delivery.")] = None
    max_epochs: Annotated[
        int, dg.Resolver.default(description="The most epochs of the stream that one transaction takes.")
    ] = 100
    schema_changes: Annotated[
        Literal["add", "replace"],
        dg.Resolver.default(description="Add columns there; or also replace them where all rows are replaced."),
    ] = "add"
    name: Annotated[str | None, text("The asset's name; without, the stream's and the kind of the destination.")] = None
    key: Annotated[
        dg.ResolvedAssetKey | None, dg.Resolver.default(description="The whole asset key, in place of a name.")
    ] = None
    continuous: Annotated[
        bool, dg.Resolver.default(description="Deliver until it is stopped; else what is there, and end.")
    ] = False
    autostart: Annotated[
        bool, dg.Resolver.default(description="The sensor also starts a continuous delivery that has never run.")
    ] = False
    run_for: RunFor = "12 hours"
    run_tags: Annotated[dict[str, str], texts_by_name("Tags of the Dagster runs of its job.")] = Field(
        default_factory=dict
    )
    recovery: ResolvedRecovery = None
    description: Annotated[str | None, text("The asset's description.")] = None
    group_name: Annotated[str | None, text("The asset's group.")] = None
    tags: Annotated[dict[str, str], texts_by_name("The asset's tags.")] = Field(default_factory=dict)
    owners: Annotated[list[str], texts("The asset's owners.", examples=[["team:shop"]])] = Field(default_factory=list)
    kinds: Annotated[list[str], texts("Shown beside the kind of the destination.")] = Field(default_factory=list)

    checkpoints: ProjectCheckpoints = None

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="A stream's table or its changes, exactly once into another system.",
            tags=["spark", "streaming"],
        )

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The model of the YAML attributes. Its JSON schema leads `dg check yaml` to the place of a mistake."""
        return with_exact_schema(super().model())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The delivery's asset, checks, job, recovery sensor and resource."""
        options: dict[str, Any] = {name: getattr(self, name) for name in self.model_fields_set - _OF_THE_PROJECT}
        return build_streaming_definitions([deliver(**options)], checkpoints=self.checkpoints)
