"""What a step runs once it is its turn: a stream of the user's, or a delivery of another stream."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import dagster as dg

from dagster_ckpt.clock import Clock
from dagster_ckpt.delivery.delivery_run import DeliveryJob, run_delivery
from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, uri_of
from dagster_ckpt.integration.declared.run_config import RunChoice
from dagster_ckpt.integration.declared.streaming_function import DeliveryOptions
from dagster_ckpt.integration.step.epoch_metadata import Metadata
from dagster_ckpt.integration.step.table_metadata import Place
from dagster_ckpt.operators.column_lineage import Work
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions, JobResult
from dagster_ckpt.storage.writer.opening import Opening


@dataclass(frozen=True)
class Workload:
    """`run` runs it to its end, `upstream_keys` has for each input the asset that it reads (None: no stream).

    `work` is what Spark does with the rows before each input of each step, `metadata` what else each event shows.
    """

    run: Callable[[JobHooks, Clock], JobResult]
    upstream_keys: tuple[dg.AssetKey | None, ...]
    work: tuple[tuple[Work, ...], ...]
    metadata: Metadata = field(default_factory=dict)


class DeliveryStep(Protocol):
    """What a delivery needs of its step."""

    @property
    def context(self) -> dg.AssetExecutionContext: ...
    @property
    def coordinator(self) -> CheckpointCoordinatorResource: ...
    @property
    def key(self) -> dg.AssetKey: ...
    @property
    def stream_name(self) -> str: ...
    @property
    def choice(self) -> RunChoice: ...


def delivery_work(
    step: DeliveryStep, delivery: DeliveryOptions, options: JobOptions, opening: Callable[[Pipeline], Opening]
) -> Workload:
    """A delivery of the one stream that its asset is downstream of.

    Raises `InvalidPipelineError` where the run config asks to go back: the position is the destination's.
    """
    if step.choice.from_epoch is not None:
        raise InvalidPipelineError(
            "a delivery cannot be rolled back, since its position is in its destination: roll back the stream, and the "
            f"delivery follows. from_epoch={step.choice.from_epoch}, asset={step.stream_name}"
        )
    # Its key as it is now: Dagster may have prefixed both.
    [stream] = step.context.assets_def.asset_deps[step.key]
    job = DeliveryJob(
        asset=step.stream_name,
        stream=stream_name_of(stream),
        destination=delivery.destination,
        mode=delivery.mode,
        address=step.coordinator.address,
        folder=folder_of(step.key.path),
        opening=opening,
        options=options,
        epochs_max=delivery.epochs_max,
        schema_changes=delivery.schema_changes,
    )

    def run(hooks: JobHooks, clock: Clock) -> JobResult:
        with naming(asset=step.stream_name):
            return run_delivery(job, hooks, clock)

    return Workload(run, (stream,), ((None,),))


def place_of(step: DeliveryStep, delivery: DeliveryOptions | None) -> Place:
    """Where the rows are: in the stream's folder of the store, or where they are delivered to."""
    if delivery is None:
        return Place(uri_of(step.coordinator.url, step.key))
    return Place(delivery.destination.address, delivery.destination.table_name)
