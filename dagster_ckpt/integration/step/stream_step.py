"""The inputs of one step of a Dagster run, and what the runtime gets of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import dagster as dg

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.errors import CorruptStateError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.integration.dagster_names import (
    CODE_VERSION_TAG,
    DRAIN_TAG,
    NO_DRAIN,
    NO_VERSION,
    STREAM_TAG,
    stream_name_of,
)
from dagster_ckpt.integration.declared.asset_inputs import versions_of_inputs
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource, LsmStateBackendResource, uri_of
from dagster_ckpt.integration.declared.run_config import RunChoice, op_config, read_choice
from dagster_ckpt.integration.declared.streaming_function import StreamingFunction
from dagster_ckpt.integration.events.epoch_metadata import Metadata
from dagster_ckpt.integration.events.event_totals import Reported, read_totals
from dagster_ckpt.integration.events.step_events import Event
from dagster_ckpt.integration.events.table_metadata import TableMetadata, TablePlace, column_descriptions
from dagster_ckpt.integration.reading.late_rows_asset import LateRows, late_rows_reported
from dagster_ckpt.integration.recovery import crash_loop_check
from dagster_ckpt.integration.recovery.dagster_runs import instance_id, location_of, may_fence_tag
from dagster_ckpt.integration.recovery.stream_status import StreamStatus, read_status
from dagster_ckpt.integration.step.turns import mode_of_run, streams_in_run
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner, Pipeline
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.runtime.driver.stream_job import JobOptions
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.task.worker_engine import CacheOptions, EngineOptions
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening, Takeover

_LAG_MS_MIN, _LAG_MS_MAX = 500, 30_000
"""How often the lag is measured: for each event, but a folder is not listed all the time."""


@dataclass(frozen=True)
class StreamStep:
    """The inputs of a step."""

    context: dg.AssetExecutionContext
    streaming: StreamingFunction
    coordinator: CheckpointCoordinatorResource
    state: LsmStateBackendResource
    choice: RunChoice
    mode: Mode
    clock: Clock
    config: dg.Config | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        context: dg.AssetExecutionContext,
        streaming: StreamingFunction,
        config: dg.Config | None,
        resources: Mapping[str, Any],
    ) -> "StreamStep":
        """The step that Dagster runs. Raises `InvalidPipelineError` for a run config that cannot be met."""
        choice = read_choice(op_config(context.run.run_config, context.op_execution_context.op.name))
        return cls(
            context,
            streaming,
            resources["checkpoints"],
            resources.get("state", LsmStateBackendResource()),
            choice,
            mode_of_run(choice.mode, streaming.options.mode, streams_in_run(context)),
            SystemClock(),
            config,
            resources,
        )

    @property
    def key(self) -> dg.AssetKey:
        """The asset's current key in Dagster, with its prefixes: it names the stream."""
        key: dg.AssetKey = self.context.asset_key
        return key

    @property
    def stream_name(self) -> str:
        return stream_name_of(self.key)

    @property
    def code_version(self) -> str | None:
        version: str | None = self.context.assets_def.get_asset_spec(self.key).code_version
        return version

    @property
    def freshness_policy(self) -> dg.FreshnessPolicy | None:
        policy: dg.FreshnessPolicy | None = self.context.assets_def.get_asset_spec(self.key).freshness_policy
        return policy

    @property
    def folder(self) -> str:
        """The stream's folder in the store."""
        return folder_of(self.key.path)

    @property
    def chain(self) -> ManifestChain:
        """The stream's manifests."""
        return ManifestChain(folder_store(self.coordinator.address.open(), self.folder), self.clock)

    def read_input_versions(self) -> Metadata:
        """The versions of ordinary inputs that the step reads, as metadata."""
        return versions_of_inputs(self.context, self.streaming.parameters)

    def read_status(self) -> StreamStatus:
        """The stream's status in the store now."""
        return read_status(self.coordinator.address.open(), self.key, self.clock, None)

    def log_event(self, event: Event) -> None:
        """Log it as an event of this Dagster run."""
        # `log_event` accepts check evaluations too, although its annotation does not.
        cast(Callable[[Event], None], self.context.log_event)(event)
        if isinstance(event, dg.AssetCheckEvaluation) and event.check_name == crash_loop_check.CHECK:
            self.show_pass(event)

    def show_pass(self, passed: dg.AssetCheckEvaluation) -> None:
        """Make Dagster show that this run passes the check `no_crash_loop`, whatever the sensor has reported before."""
        crash_loop_check.show_pass(self.context.instance, self.context.run.run_id, passed)

    def reported_totals(self) -> Reported:
        """What Dagster's events have reported of the stream."""
        return read_totals(self.context.instance, self.key)

    def late_rows_reported(self, late: LateRows) -> int:
        """How many late rows Dagster's events have reported."""
        return late_rows_reported(self.context.instance, late)

    def may_report(self, manifest: Manifest) -> bool:
        """Whether no other Dagster run has opened the stream since this one committed that manifest.

        A term whose writer has not written its lease yet belongs to another, unless it is the manifest's term.
        """
        status = self.read_status()
        same_term = status.newest is not None and status.newest.term == manifest.term
        return same_term or status.dagster_run_id == self.context.run.run_id

    def newest(self, own: Manifest) -> Manifest:
        """The stream's newest epoch, even if another run has opened the stream since this one closed it.

        Otherwise Dagster would show this run's last epoch, which is outdated, as the newest.
        """
        try:
            newest = self.read_status().newest
        except StoreUnavailableError:
            return own  # it was the newest a moment ago, when the writer last checked
        return own if newest is None else newest

    @property
    def tags_at_work(self) -> dict[str, str]:
        """The sensor compares the code version with the deployed one, and asks a run of old code to drain.

        Dagster copies a run's tags to its retry: a drain request was not meant for the retry.
        """
        tags = {STREAM_TAG: self.stream_name, CODE_VERSION_TAG: self.code_version or NO_VERSION}
        inherited = self.context.run.parent_run_id is not None and DRAIN_TAG in self.context.run.tags
        return {**tags, DRAIN_TAG: NO_DRAIN} if inherited else tags

    @property
    def holder(self) -> LeaseHolder:
        """This Dagster run, and the process that works for it."""
        return LeaseHolder(self.context.run.run_id, instance_id(self.context.instance), this_process())

    @property
    def job_options(self) -> JobOptions:
        """How the stream is run: the asset's own options beat those of the resources."""
        options, coordinator = self.streaming.options, self.coordinator
        interval_ms = options.checkpoint_interval_ms
        cache_bytes = self.state.cache_limit_bytes
        return JobOptions(
            mode=self.mode,
            run_for_ms=(self.choice.run_for_ms or options.run_for_ms) if self.mode is Mode.CONTINUOUS else None,
            checkpoint_interval_ms=coordinator.checkpoint_interval_ms if interval_ms is None else interval_ms,
            timeout_ms=coordinator.timeout_ms,
            tolerable_failures=coordinator.tolerable_failures,
            grace_ms=coordinator.grace_ms,
            max_lag=coordinator.max_lag,
            lag_interval_ms=max(_LAG_MS_MIN, min(coordinator.event_interval_ms, _LAG_MS_MAX)),
            tasks_max=options.tasks,
            engine=EngineOptions(
                memory_limit_bytes=self.state.memory_limit_bytes,
                io_threads=self.state.io_threads,
                cache=CacheOptions(self.state.cache_dir, cache_bytes) if cache_bytes else None,
                timeout_ms=coordinator.timeout_ms,
            ),
        )

    def opening(self) -> Callable[[Pipeline], Opening]:
        """How the stream's writer opens. Looks at the newest term, which this step began if it is a retry."""
        run, options, coordinator = self.context.run, self.streaming.options, self.coordinator
        instance = instance_id(self.context.instance)
        may_fence = self._own_term or may_fence_tag(run)
        take_over = Takeover.ALWAYS if self.choice.take_over and self.is_first_try else Takeover.NEVER

        def opening(pipeline: Pipeline) -> Opening:
            return Opening(
                stream=self.stream_name,
                owner=Owner(instance, self.stream_name, location_of(run)),
                pipeline=pipeline,
                shards=options.shards,
                holder=self.holder,
                root_run=run.root_run_id or run.run_id,
                lease_timeout_ms=options.recovery.lease_timeout_ms,
                retained=coordinator.retained,
                take_over=take_over,
                may_fence=may_fence,
                from_epoch=None if self.choice.from_epoch is None else Epoch(self.choice.from_epoch),
                restart_steps=self.choice.restart_steps,
            )

        return opening

    @property
    def is_first_try(self) -> bool:
        """Whether neither the step nor its Dagster run is a retry: retries repeat the config, not the user's request.

        A run that opened the stream in between is the newer request, and the retry of an older one must not fence it.
        """
        run = self.context.run
        return self.context.op_execution_context.retry_number == 0 and run.root_run_id in {None, run.run_id}

    @property
    def _own_term(self) -> Term | None:
        """The newest term, if this Dagster run began it: a step that Dagster retries need not wait for itself."""
        try:
            status = self.read_status()
        except CorruptStateError:
            return None  # opening reports it in detail, or rolls back over it
        return None if status.newest is None or status.dagster_run_id != self.context.run.run_id else status.newest.term

    @property
    def table(self) -> TableMetadata:
        """What is known of the table before the stream is opened."""
        return TableMetadata(self.place, descriptions=column_descriptions(self.context.assets_def, self.key))

    @property
    def place(self) -> TablePlace:
        """Where the rows are: in the stream's folder of the store, or where they are delivered to."""
        delivery = self.streaming.delivery
        if delivery is None:
            return TablePlace(uri_of(self.coordinator.url, self.key))
        return TablePlace(delivery.destination.address, delivery.destination.table_name)
