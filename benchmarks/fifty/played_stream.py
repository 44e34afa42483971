"""A stream played without Spark: its Dagster run, manifests, lease and events are real, its rows are made up."""

from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pyarrow as pa
from dagster._core.definitions.dependency import NodeHandle
from dagster._core.events import AssetObservationData, StepMaterializationData
from dagster._core.execution.plan.handle import StepHandle

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Shard
from dagster_ckpt.integration.events.event_totals import read_totals
from dagster_ckpt.integration.events.step_events import EpochEvents, Event, EventLog
from dagster_ckpt.integration.events.table_metadata import TableMetadata, TablePlace
from dagster_ckpt.integration.recovery.dagster_runs import instance_id
from dagster_ckpt.operators import RunningAggregate, agg
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.lease import LeaseHolder
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Manifest, Owner, SourceIdentity, SourcePosition
from dagster_ckpt.protocol.object_names import folder_of
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.runtime.lag.lag import Lag, SourceLag
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.storage.leases.process_identity import this_process
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import open_stream

SHARDS = 8
EVENT_INTERVAL_MS = 30_000
"""Both are what a stream has by default."""

_ROWS = pa.schema([("key", pa.int64()), ("value", pa.float64())])
_BEGINS = ("PIPELINE_STARTING", "PIPELINE_START")


@dataclass
class PlayedStream:
    """One Dagster run of a stream, from its start on: `commit`, `quiet` and `idle` in turn, then `end`."""

    instance: dg.DagsterInstance
    job: dg.JobDefinition
    name: str
    url: str
    _clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        # A run that waits to be started by hand: one in the queue would be launched.
        self.run = self.instance.create_run_for_job(self.job, status=dg.DagsterRunStatus.MANAGED)
        for kind in _BEGINS:
            self._report(kind)
        self._report("STEP_START", step_key=self.name)
        me = instance_id(self.instance)
        source = SourceIdentity("parquet", f"file:///data/inbox_{self.name}")
        plan = {"n": agg.count(), "total": agg.sum("value"), "greatest": agg.max("value")}
        opening = Opening(
            stream=self.name,
            owner=Owner(me, self.name),
            pipeline=RunningAggregate.build(("key",), plan, InputSpec((source,), _ROWS)).pipeline,
            shards=SHARDS,
            holder=LeaseHolder(self.run.run_id, me, this_process()),
            root_run=self.run.run_id,
        )
        store = folder_store(open_store(self.url), folder_of((self.name,)))
        self._writer, self._source = open_stream(store, opening, self._clock), source
        key = dg.AssetKey(self.name)
        log = EventLog(
            asset_key=key,
            stream=self.name,
            code_version=None,
            log_event=self._log,
            may_report=lambda _: True,
            reported=lambda: read_totals(self.instance, key),
            table=TableMetadata(TablePlace(f"{self.url}/{self.name}")),
        )
        self._events = EpochEvents(log, EVENT_INTERVAL_MS, self._clock)
        self._events.on_open(self._manifest)

    @property
    def _manifest(self) -> Manifest:
        return self._writer.manifest

    def commit(self) -> None:
        """One more epoch: rows in every shard."""
        before = self._manifest
        batch = 0 if before.batch_id is None else before.batch_id + 1
        acks = tuple(
            ShardAck(Shard(shard), rows_in=1_250, rows_out=400, state_rows=3, milliseconds=180 + shard, host="worker-1")
            for shard in range(SHARDS)
        )
        last = before.sources[0].current if before.sources else None
        position = SourcePosition(self._source, f'{{"logOffset":{batch}}}', last)
        self._writer.commit(EpochEdit(acks, (position,), batch_id=batch, epoch_ms=420, interval_ms=10_000))
        self._events.on_commit(CommittedEpoch(self._manifest, 12, 420, {"keys_touched": 400}))

    def measured(self) -> None:
        """The lag is measured, and nothing waits."""
        self._events.on_lag(Lag(self._clock.now_ms(), SourceLag(files=0, file_bytes=0)))

    def idle(self) -> None:
        """What the stream's driver calls between two epochs."""
        self._events.idle()

    def end(self) -> None:
        """As an available_now run ends that has read everything."""
        self._events.flush()
        self._writer.close("input_done")
        self._report("PIPELINE_SUCCESS")

    def _log(self, event: Event) -> None:
        """Store an event as `context.log_event` of a step does."""
        match event:
            case dg.AssetMaterialization():
                self._report_step("ASSET_MATERIALIZATION", StepMaterializationData(event), "Materialized value.")
            case dg.AssetObservation():
                self._report_step("ASSET_OBSERVATION", AssetObservationData(event), f"Observation: {self.name}.")
            case _:
                self._report_step("ASSET_CHECK_EVALUATION", event, "Asset check evaluated.")

    def _report_step(self, kind: str, data: Any, message: str) -> None:
        node = NodeHandle(self.name, None)
        tags = {
            "job_name": self.run.job_name,
            "op_name": self.name,
            "resource_fn_name": "None",
            "resource_name": "None",
            "run_id": self.run.run_id,
            "step_key": self.name,
        }
        self._report(
            kind,
            message,
            step_handle=StepHandle(node),
            node_handle=node,
            step_kind_value="COMPUTE",
            logging_tags=tags,
            event_specific_data=data,
            pid=4242,
        )

    def _report(self, kind: str, message: str = "", **fields: Any) -> None:
        event = dg.DagsterEvent(event_type_value=kind, job_name=self.run.job_name, message=message or kind, **fields)
        self.instance.report_dagster_event(event, run_id=self.run.run_id)
