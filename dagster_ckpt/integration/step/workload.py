"""What a step runs once it is its turn: a stream of the user's, or a delivery of another stream."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt.clock import Clock
from dagster_ckpt.delivery.delivery_run import DeliveryJob, run_delivery
from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.integration.dagster_names import stream_name_of
from dagster_ckpt.integration.declared.asset_inputs import read_inputs, read_upstreams
from dagster_ckpt.integration.declared.resources import spark_session
from dagster_ckpt.integration.declared.stream_options import StreamOptions
from dagster_ckpt.integration.declared.streaming_function import DeliveryOptions
from dagster_ckpt.integration.events.epoch_metadata import Metadata
from dagster_ckpt.integration.step.stream_step import StreamStep
from dagster_ckpt.operators.column_lineage import Work
from dagster_ckpt.runtime.declared.column_origins import work_of_inputs
from dagster_ckpt.runtime.declared.primary_key import with_primary_key
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.spark_errors import missing_input_named, secrets_left_out
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobResult, StreamJob
from dagster_ckpt.runtime.driver.stream_run import run_stream
from dagster_ckpt.runtime.plans.returned import stream_returned
from dagster_ckpt.runtime.plans.stand_ins import stand_ins_of
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.session import open_session, own_interrupts, task_slots
from dagster_ckpt.runtime.upstreams.downstream import Downstream
from dagster_ckpt.storage.retention_refs.upstream_log import OPEN_WAIT_MS


@dataclass(frozen=True)
class Workload:
    """`run` runs it to its end, `upstream_keys` has for each input the asset that it reads (None: no stream).

    `work` is what Spark does with the rows before each input of each step, `metadata` what else each event shows.
    """

    run: Callable[[JobHooks, Clock], JobResult]
    upstream_keys: tuple[dg.AssetKey | None, ...]
    work: tuple[tuple[Work, ...], ...]
    metadata: Metadata = field(default_factory=dict)


def choose_workload(step: StreamStep) -> Workload:
    """What the step runs: the user's stream, or a delivery."""
    delivery = step.streaming.delivery
    if delivery is not None:
        return _delivery_workload(step, delivery)
    stream = user_stream(step)
    upstream_keys = _upstream_keys(step, stream)
    work = work_of_inputs(stream) if any(upstream_keys) else ()
    ignored = stream.all_ignored_watermarks
    metadata: Metadata = {"ignored_watermarks": dg.MetadataValue.text("; ".join(ignored))} if ignored else {}
    return Workload(partial(run_stream, stream_job(step, stream)), upstream_keys, work, metadata)


def user_stream(step: StreamStep, folder: str | None = None) -> Stream:
    """What the user's function returns, made with a separate Spark session; `folder` is where it is kept.

    Without one that is the asset's own.
    """
    with own_interrupts():
        # A lazy resource starts Spark here, and Spark would take SIGINT, Dagster's way to end a run, for itself.
        started = spark_session(step.resources["spark"])
    spark = open_session(started)
    parameters = step.streaming.parameters
    name = step.stream_name
    with stand_ins_of(spark), secrets_left_out(), naming(asset=name), missing_input_named(name):
        wait_ms = OPEN_WAIT_MS if step.mode is Mode.CONTINUOUS else 0
        upstreams = read_upstreams(
            parameters, step.context, spark, _downstream(step, spark, folder), wait_ms, step.clock
        )
        inputs = read_inputs(parameters, spark, step.resources)
        returned = step.streaming.function(
            **parameters.arguments(step.context, spark, step.config, step.resources, upstreams, inputs)
        )
        stream = stream_returned(name, returned, spark, {**inputs, **upstreams})
        return with_primary_key(stream, step.streaming.options.primary_key)


def stream_job(step: StreamStep, stream: Stream) -> StreamJob:
    """The job that runs this stream."""
    return StreamJob(
        asset=step.stream_name,
        stream=stream,
        address=step.coordinator.address,
        folder=step.folder,
        opening=step.opening(),
        options=step.job_options,
        moved=step.streaming.options.moved,
        renamed=step.streaming.options.renamed,
    )


def _downstream(step: StreamStep, spark: SparkSession, folder: str | None) -> Downstream:
    return Downstream(
        address=step.coordinator.address,
        folder=folder or step.folder,
        epochs_max=step.streaming.options.max_epochs_per_batch,
        tasks=_reading_tasks(step.streaming.options, spark),
    )


def _reading_tasks(options: StreamOptions, spark: SparkSession) -> int:
    """How many tasks read an upstream: those that work the shards, and where there are more cores now, one on each."""
    return options.tasks or max(spark.sparkContext.defaultParallelism, min(options.shards, task_slots(spark)))


def _upstream_keys(step: StreamStep, stream: Stream) -> tuple[dg.AssetKey | None, ...]:
    """For each input of the stream the asset whose table it reads; None for a source, or a DataFrame of the user's."""
    keys = {stream_name_of(key): key for key in step.context.assets_def.keys_by_input_name.values()}
    return tuple(None if each.upstream is None else keys.get(each.upstream.name) for each in stream.sources)


def _delivery_workload(step: StreamStep, delivery: DeliveryOptions) -> Workload:
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
        folder=step.folder,
        opening=step.opening(),
        options=step.job_options,
        epochs_max=delivery.epochs_max,
        schema_changes=delivery.schema_changes,
    )

    def run(hooks: JobHooks, clock: Clock) -> JobResult:
        with naming(asset=step.stream_name):
            return run_delivery(job, hooks, clock)

    return Workload(run, (stream,), ((None,),))
