"""`StreamingComponent`: a streaming asset with everything it needs, declared in YAML."""

from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.asset import streaming_asset
from dagster_ckpt.integration.component.attribute_schema import with_exact_schema
from dagster_ckpt.integration.component.run_attributes import (
    Autostart,
    CheckpointInterval,
    Mode,
    Moved,
    RunFor,
    Shards,
    StreamChecks,
)
from dagster_ckpt.integration.component.scaffolder import StreamingComponentScaffolder
from dagster_ckpt.integration.component.shared_resources import ProjectCheckpoints, ProjectSpark, ProjectState
from dagster_ckpt.integration.component.sources import (
    UPSTREAM,
    Function,
    LoadedFunction,
    Source,
    check_function,
    function_of_source,
    function_of_upstream,
)
from dagster_ckpt.integration.component.steps import Step, check_steps
from dagster_ckpt.integration.component.templates import Scalar, render_all, settings, text, texts_by_name
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.definitions import build_streaming_definitions

_OPTIONS = (
    "mode",
    "checkpoint_interval",
    "autostart",
    "run_for",
    "shards",
    "tasks",
    "max_epochs_per_batch",
    "moved",
    "renamed",
    "primary_key",
    "recovery",
    "run_tags",
    "sources",
    "pool",
    "op_tags",
)
"""The attributes that are options of `streaming_asset`, by the same names."""

_KIND_TAG = "dagster/kind/"


class RecoveryAttributes(dg.Model, dg.Resolvable):
    """How a stream recovers from a crash."""

    max_attempts: Annotated[
        int, dg.Resolver.default(description="How often it is relaunched in a row without a committed epoch.")
    ] = 5
    same_error_max: Annotated[
        int, dg.Resolver.default(description="So many runs in a row with the same error end it earlier.")
    ] = 3
    backoff: Annotated[str, text("The wait before the second relaunch; it doubles.")] = "5s"
    backoff_max: Annotated[str, text("The longest wait between two relaunches.")] = "5min"
    lease_timeout: Annotated[str, text("A writer whose lease was not renewed for so long is taken for dead.")] = "30s"


def _recovery(context: dg.ResolutionContext, given: BaseModel) -> Recovery:
    return Recovery(**render_all(context, given.model_dump(exclude_unset=True)))


ResolvedRecovery = Annotated[
    Recovery | None,
    dg.Resolver(_recovery, model_field_type=RecoveryAttributes.model(), description="How it recovers from a crash."),
]


@dg.scaffold_with(StreamingComponentScaffolder)
class StreamingComponent(dg.Component, dg.Model, dg.Resolvable):
    """An exactly-once, stateful PySpark stream as a Dagster asset, which recovers by itself.

        StreamingComponent.from_attributes_dict(
            attributes={
                "asset": {"key": "delay_by_carrier"},
                "source": {"format": "parquet", "path": "/data", "schema": "carrier string, dep_delay double"},
                "steps": [{"key_by": ["carrier"]}, {"aggregate": {"mean_delay": {"avg": "dep_delay"}}}],
            }
        )

    In a `defs.yaml` they are the `attributes` of `type: dagster_ckpt.StreamingComponent`.

    Makes the asset with its checks, its job and a recovery sensor. It reads one of `source`, `upstream` (another
    stream) and `function` (a Python function that returns a `Stream`). The resources `checkpoints` and `spark` are
    attributes, equal in all components of a project, or resources of the project.

    Subclass it to add attributes or to change `build_defs`. Raises `InvalidPipelineError` for what cannot work.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    asset: dg.ResolvedAssetSpec = Field(description="The asset: its key, description, group and so on.")
    source: Annotated[
        Source | None, dg.Resolver.default(description="What the stream reads outside of Dagster, by Spark.")
    ] = None
    upstream: Annotated[
        dg.ResolvedAssetKey | None,
        dg.Resolver.default(description="The key of another stream, whose table this one follows epoch by epoch."),
    ] = None
    function: Annotated[
        LoadedFunction | None,
        dg.Resolver.default(
            description="The Python path of a function that returns a Stream, for all that steps cannot express. With "
            "a leading dot it is relative to the component's folder.",
            examples=[".streams.delay_by_carrier", "my_project.streams.delay_by_carrier"],
        ),
    ] = None
    ins: Annotated[
        dict[str, dg.ResolvedAssetKey],
        dg.Resolver.default(description="The asset keys of the function's parameters, where they are not their names."),
    ] = Field(default_factory=dict)
    steps: Annotated[
        list[Step],
        dg.Resolver.default(
            description="The steps of the stream, in their order.",
            examples=[[{"key_by": ["carrier"]}, {"aggregate": {"flights": "count()"}}]],
        ),
    ] = Field(default_factory=list)

    mode: Mode = "available_now"
    checkpoint_interval: CheckpointInterval = None
    autostart: Autostart = False
    run_for: RunFor = "12 hours"
    shards: Shards = 8
    tasks: Annotated[
        int | None, dg.Resolver.default(description="The most Spark tasks that process the shards of an epoch.")
    ] = None
    max_epochs_per_batch: Annotated[
        int, dg.Resolver.default(description="The most epochs of an upstream that one epoch takes in.")
    ] = 100
    moved: Moved = Field(default_factory=dict)
    renamed: Annotated[
        dict[str, str],
        texts_by_name("New names of columns that the steps have renamed, by the old ones.", examples=[{"old": "new"}]),
    ] = Field(default_factory=dict)
    primary_key: Annotated[
        list[str],
        dg.Resolver.default(
            description="The columns that identify a row of its table, where that follows from nothing."
        ),
    ] = Field(default_factory=list)
    recovery: ResolvedRecovery = None
    run_tags: Annotated[dict[str, str], texts_by_name("Tags of the Dagster runs of its job.")] = Field(
        default_factory=dict
    )
    sources: Annotated[
        list[dg.ResolvedAssetSpec],
        dg.Resolver.default(description="What it reads outside of Dagster, as external assets upstream of it."),
    ] = Field(default_factory=list)
    pool: Annotated[str | None, text("The Dagster pool of its step.")] = None
    op_tags: Annotated[dict[str, Scalar], settings("Tags of its op.")] = Field(default_factory=dict)
    checks: StreamChecks = Field(default_factory=list)

    checkpoints: ProjectCheckpoints = None
    state: ProjectState = None
    spark: ProjectSpark = Field(default=None, repr=False)

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="An exactly-once, stateful PySpark stream as an asset that recovers by itself.",
            tags=["spark", "streaming"],
        )

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The model of the YAML attributes. Its JSON schema leads `dg check yaml` to the place of a mistake."""
        return with_exact_schema(super().model())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The stream's asset, checks, job, recovery sensor and resources."""
        with naming(asset=self.asset.key.to_user_string()):
            function, ins = self._function()
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS if name in self.model_fields_set}
        asset = streaming_asset(**_asset_options(self.asset), **options, ins=ins)(function)
        return build_streaming_definitions(
            [asset], checkpoints=self.checkpoints, state=self.state, spark=self.spark, checks=self.checks
        )

    def _function(self) -> tuple[Function, dict[str, dg.AssetIn]]:
        """The streaming function and its inputs."""
        given = [name for name in ("source", "upstream", "function") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidPipelineError(
                f"a stream reads one of source, upstream and function: give one of them. given={given}"
            )
        if self.function is not None:
            if self.steps:
                raise InvalidPipelineError(
                    "function and steps exclude each other: move the steps into the function. given=steps"
                )
            return check_function(self.function), {name: dg.AssetIn(key) for name, key in self.ins.items()}
        if self.ins:
            raise InvalidPipelineError(
                f"ins names the parameters of a function: give function, or leave ins out. ins={list(self.ins)}"
            )
        check_steps(self.steps)
        if self.upstream is not None:
            return function_of_upstream(self.steps), {UPSTREAM: dg.AssetIn(self.upstream)}
        assert self.source is not None
        self.source.check()
        return function_of_source(self.source, self.steps), {}


def _asset_options(spec: dg.AssetSpec) -> dict[str, Any]:
    """The options of `streaming_asset` for an asset with this spec. It refuses those that a stream cannot have."""
    options: dict[str, Any] = {
        "key": spec.key,
        "deps": spec.deps,
        "description": spec.description,
        "metadata": spec.metadata,
        "tags": {name: value for name, value in spec.tags.items() if not name.startswith(_KIND_TAG)},
        "kinds": spec.kinds,
        "owners": spec.owners,
        "group_name": spec.group_name,
        "code_version": spec.code_version,
        "automation_condition": spec.automation_condition,
        "freshness_policy": spec.freshness_policy,
    }
    refused = {"partitions_def": spec.partitions_def, "output_required": False if spec.skippable else None}
    return options | {name: value for name, value in refused.items() if value is not None}
