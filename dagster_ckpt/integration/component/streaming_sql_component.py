"""`StreamingSqlComponent`: a folder of streams in SQL, declared in YAML."""

from typing import Annotated, Any

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field

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
from dagster_ckpt.integration.component.scaffolder import StreamingSqlComponentScaffolder
from dagster_ckpt.integration.component.shared_resources import ProjectCheckpoints, ProjectSpark, ProjectState
from dagster_ckpt.integration.component.sources import LoadedFunction
from dagster_ckpt.integration.component.streaming_component import ResolvedRecovery
from dagster_ckpt.integration.component.templates import text, texts, texts_by_name
from dagster_ckpt.integration.definitions import build_streaming_definitions
from dagster_ckpt.integration.sql.streaming_sql import streaming_sql

_OPTIONS = (
    "mode",
    "checkpoint_interval",
    "autostart",
    "run_for",
    "shards",
    "moved",
    "recovery",
    "run_tags",
    "key_prefix",
    "group_name",
    "tags",
    "owners",
    "kinds",
)
"""The attributes that are options of `streaming_sql`, by the same names."""


@dg.scaffold_with(StreamingSqlComponentScaffolder)
class StreamingSqlComponent(dg.Component, dg.Model, dg.Resolvable):
    """Streams in SQL: a folder of `.sql` files whose tables are exactly-once streaming assets.

        StreamingSqlComponent(path="models")

    In a `defs.yaml` its fields are the `attributes` of `type: dagster_ckpt.StreamingSqlComponent`. Makes the assets
    with their checks, a job for each and a recovery sensor, as `streaming_sql` and `build_streaming_definitions` do.
    Options of one table are in its TBLPROPERTIES. Raises `InvalidPipelineError`, with file and line, for what cannot
    work.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    path: Annotated[
        str,
        text("The folder of .sql files, or one of them; relative to the component's folder.", examples=["models"]),
    ] = "."
    sources: Annotated[
        dict[str, LoadedFunction],
        dg.Resolver.default(
            description="What queries read by these names: the Python paths of sources, or of functions that make a "
            "streaming DataFrame of a Spark session.",
            examples=[{"departures": ".sources.departures"}],
        ),
    ] = Field(default_factory=dict)
    ins: Annotated[
        dict[str, dg.ResolvedAssetKey],
        dg.Resolver.default(description="The keys of the streams that queries read by these names."),
    ] = Field(default_factory=dict)

    mode: Mode = "available_now"
    checkpoint_interval: CheckpointInterval = None
    autostart: Autostart = False
    run_for: RunFor = "12 hours"
    shards: Shards = 8
    moved: Moved = Field(default_factory=dict)
    recovery: ResolvedRecovery = None
    run_tags: Annotated[dict[str, str], texts_by_name("Tags of the Dagster runs of their jobs.")] = Field(
        default_factory=dict
    )
    key_prefix: Annotated[list[str], texts("What precedes the names in the asset keys.", examples=[["shop"]])] = Field(
        default_factory=list
    )
    group_name: Annotated[str | None, text("The assets' group.")] = None
    tags: Annotated[dict[str, str], texts_by_name("The assets' tags.")] = Field(default_factory=dict)
    owners: Annotated[list[str], texts("The assets' owners.", examples=[["team:shop"]])] = Field(default_factory=list)
    kinds: Annotated[list[str], texts("Shown beside spark and streaming.")] = Field(default_factory=list)
    checks: StreamChecks = Field(default_factory=list)

    checkpoints: ProjectCheckpoints = None
    state: ProjectState = None
    spark: ProjectSpark = Field(default=None, repr=False)

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        return dg.ComponentTypeSpec(
            description="A folder of streams in SQL, each an asset that recovers by itself.",
            tags=["spark", "sql", "streaming"],
        )

    @classmethod
    def model(cls) -> type[BaseModel]:
        """The model of the YAML attributes. Its JSON schema leads `dg check yaml` to the place of a mistake."""
        return with_exact_schema(super().model())

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The assets of the files, with checks, jobs, recovery sensor and resources."""
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS if name in self.model_fields_set}
        folder = context.path if context.path.is_dir() else context.path.parent  # the second: of a component.py
        assets = streaming_sql(
            folder / self.path,
            sources=self.sources,
            ins={name: dg.AssetIn(key) for name, key in self.ins.items()},
            **options,
        )
        return build_streaming_definitions(
            assets, checkpoints=self.checkpoints, state=self.state, spark=self.spark, checks=self.checks
        )
