"""The recovery sensor's world: a real Dagster instance, a real stream folder in memory, and a clock that waits for us.

Dagster runs are created and moved from state to state by the events that Dagster itself would write.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from uuid import uuid4

import dagster as dg
from pyspark.sql import SparkSession

from dagster_ckpt import (
    CheckpointCoordinatorResource,
    LsmStateBackendResource,
    Stream,
    build_recovery_sensor,
    streaming_asset,
)
from dagster_ckpt.ids import Epoch, Term
from dagster_ckpt.integration.reading.io_manager import epochs_of_checkpoints
from dagster_ckpt.integration.recovery.dagster_runs import instance_id
from dagster_ckpt.integration.recovery.live_check import LiveState, evaluation, facts_of_writer
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, ProcessId, encode_lease
from dagster_ckpt.protocol.manifest.manifest import Owner
from dagster_ckpt.protocol.object_names import folder_of, lease_name
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.stores.address import StoreAddress
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.opening import Takeover, open_manifest
from dagster_ckpt.storage.writer.stream_writer import StreamWriter
from tests.worlds.clock import StillClock
from tests.worlds.streams import an_edit, an_opening

ELSEWHERE = ProcessId("elsewhere", "boot", "pid:[1]", 4242, 99)
"""A process on another host: nobody here can look it up."""

WAITS = dg.DagsterRunStatus.MANAGED
"""Waits until somebody lets it start, as in the queue; but a run in the queue must come from a code server."""

RUN_EVENTS = {
    dg.DagsterRunStatus.STARTING: "PIPELINE_STARTING",
    dg.DagsterRunStatus.STARTED: "PIPELINE_START",
    dg.DagsterRunStatus.SUCCESS: "PIPELINE_SUCCESS",
    dg.DagsterRunStatus.FAILURE: "PIPELINE_FAILURE",
    dg.DagsterRunStatus.CANCELING: "PIPELINE_CANCELING",
    dg.DagsterRunStatus.CANCELED: "PIPELINE_CANCELED",
}


def a_stream(name: str, **options: Any) -> dg.AssetsDefinition:
    def never_called(spark: SparkSession) -> Stream:
        raise NotImplementedError

    decorate: Any = streaming_asset
    asset: dg.AssetsDefinition = decorate(name=name, **options)(never_called)
    return asset


@dataclass
class SensorWorld:
    """One code location with streams and an ordinary asset, watched by its sensor."""

    instance: dg.DagsterInstance
    streams: list[dg.AssetsDefinition]
    name: str | None = None
    cursor: str | None = None
    checks: list[dg.AssetChecksDefinition] = field(default_factory=list)
    address: StoreAddress = field(default_factory=lambda: StoreAddress(f"memory://{uuid4().hex}"))

    def __post_init__(self) -> None:
        self.clock = StillClock()
        self.checkpoints = CheckpointCoordinatorResource(url=self.address.url, storage_options=self.address.options)
        self.load(self.streams)

    def load(self, streams: list[dg.AssetsDefinition]) -> None:
        """Deploy these streams, perhaps with new code."""

        @dg.asset
        def ordinary() -> None:
            raise RuntimeError("whoever runs an ordinary asset here wants it to fail")

        self.sensor = build_recovery_sensor(streams, name=self.name, clock=self.clock)
        resources = {
            "checkpoints": self.checkpoints,
            "state": LsmStateBackendResource(),
            "epochs": epochs_of_checkpoints,
            "spark": dg.ResourceDefinition.none_resource(),
        }
        self.definitions = dg.Definitions(
            [*streams, ordinary], asset_checks=self.checks, sensors=[self.sensor], resources=resources
        )

    # What happens in Dagster

    def run(self, *names: str, job: str | None = None, **fields: Any) -> dg.DagsterRun:
        """A new Dagster run of these assets: of the first one's own job, or of another, which then selects them."""
        job_def = self.definitions.resolve_job_def(job or f"{names[0]}_job")
        selection = {dg.AssetKey(name) for name in names} if job else None
        return self.instance.create_run_for_job(job_def, asset_selection=selection, **{"status": WAITS, **fields})

    def move(self, run: dg.DagsterRun, *statuses: dg.DagsterRunStatus) -> dg.DagsterRun:
        for status in statuses:
            self._event(run, RUN_EVENTS[status])
        return self.look(run)

    def started(self, *names: str, **fields: Any) -> dg.DagsterRun:
        run = self.move(self.run(*names, **fields), dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)
        self.step(run, names[0], "STEP_START")
        return run

    def step(self, run: dg.DagsterRun, step: str, event: str) -> None:
        self._event(run, event, step_key=step)

    def succeed(self, run: dg.DagsterRun, step: str) -> None:
        """The step ends with success; the run goes on."""
        success = _event_of_step(step, None)
        self._event(run, "STEP_SUCCESS", step_key=step, event_specific_data=success.event_specific_data)

    def fail(self, run: dg.DagsterRun, step: str, error: BaseException) -> dg.DagsterRun:
        """The step raises, and Dagster writes of it what it writes of a step that raised; then the run fails."""
        failure = _event_of_step(step, error)
        self._event(run, "STEP_FAILURE", step_key=step, event_specific_data=failure.event_specific_data)
        return self.move(run, dg.DagsterRunStatus.FAILURE)

    def check(self, name: str, check: str = "no_crash_loop") -> dg.AssetCheckEvaluation | None:
        """What the Checks tab of the asset's page shows: None for nothing, or nothing of its newest materialization."""
        key = dg.AssetCheckKey(dg.AssetKey(name), check)
        record = self.instance.get_latest_asset_check_evaluation_record(key)
        if record is None or not isinstance(record.evaluation, dg.AssetCheckEvaluation):
            return None
        return record.evaluation

    def reports(self, check: str) -> list[dg.AssetCheckEvaluation]:
        """What the sensor has reported of that check, oldest first: its events belong to no run."""
        records = self.instance.get_records_for_run("", of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION).records
        events = [record.event_log_entry.dagster_event for record in records]
        evaluations = [event.asset_check_evaluation_data for event in events if event is not None]
        return [evaluation for evaluation in evaluations if evaluation.check_name == check]

    def look(self, run: dg.DagsterRun) -> dg.DagsterRun:
        found = self.instance.get_run_by_id(run.run_id)
        assert found is not None
        return found

    def _event(self, run: dg.DagsterRun, kind: str, **fields: Any) -> None:
        event = dg.DagsterEvent(event_type_value=kind, job_name=run.job_name, message=kind, **fields)
        self.instance.report_dagster_event(event, run_id=run.run_id)

    def report_live(self, name: str, run: dg.DagsterRun, writer: StreamWriter) -> None:
        """The run reports the check `is_live`, as it does once it has opened the stream."""
        holder = LeaseHolder(run.run_id, instance_id(self.instance), ELSEWHERE)
        facts = facts_of_writer(LiveState.LIVE, writer.manifest, holder, 0.0)
        self.evaluate(run, evaluation(dg.AssetKey(name), facts))

    def evaluate(self, run: dg.DagsterRun, evaluated: dg.AssetCheckEvaluation) -> None:
        """The run logs an evaluation of a check."""
        self._event(run, "ASSET_CHECK_EVALUATION", event_specific_data=evaluated)

    # What happens in the store

    def folder(self, name: str) -> Any:
        return folder_store(self.address.open(), folder_of([name]))

    def open(
        self,
        name: str,
        run: dg.DagsterRun,
        instance: str | None = None,
        process: ProcessId = ELSEWHERE,
        from_epoch: Epoch | None = None,
    ) -> StreamWriter:
        """The run's process opens the stream. Its lease does not beat by itself: see `beat`."""
        me = instance or instance_id(self.instance)
        holder = LeaseHolder(run.run_id, me, process)
        owner = Owner(me, name)
        opening = replace(
            an_opening(run.run_id, stream=name, owner=owner, holder=holder, shards=2),
            take_over=Takeover.ALWAYS,
            from_epoch=from_epoch,
        )
        chain = ManifestChain(self.folder(name), self.clock)
        writer = StreamWriter(chain, opening, open_manifest(chain, opening))
        self._write_lease(name, Lease(writer.term, holder, opening.lease_timeout_ms, writer.manifest.epoch))
        return writer

    def commit(self, writer: StreamWriter) -> None:
        writer.commit(an_edit(writer.manifest))

    def beat(self, name: str, term: Term) -> None:
        lease = read_lease(self.folder(name), term)
        assert lease is not None
        self._write_lease(name, lease.beaten(lease.epoch))

    def close(self, name: str, term: Term, reason: str = "input_done") -> None:
        lease = read_lease(self.folder(name), term)
        assert lease is not None
        self._write_lease(name, replace(lease, closed=reason, counter=lease.counter + 1))

    def _write_lease(self, name: str, lease: Lease) -> None:
        self.folder(name).put(lease_name(lease.term), encode_lease(lease))

    # What the sensor does

    def tick(self, after_s: float = 5) -> dg.SensorResult:
        """One evaluation, that long after the last."""
        self.clock.sleep_ms(round(after_s * 1000))
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            definitions=self.definitions,
            resources={"checkpoints": self.checkpoints},
        ) as context:
            result: Any = self.sensor(context)
        self.cursor = result.cursor
        return result  # type: ignore[no-any-return]

    def ticks(self, seconds: float, every_s: float = 5) -> list[dg.RunRequest]:
        """The runs that the sensor asks for while it ticks for so long."""
        requests: list[dg.RunRequest] = []
        for _ in range(round(seconds / every_s)):
            requests += self.tick(every_s).run_requests or []
        return requests

    def is_quiet(self) -> bool:
        """Whether the sensor asks for no run until every time-out is over."""
        return not self.ticks(220, every_s=10)

    def launch(self, request: dg.RunRequest) -> dg.DagsterRun:
        """What Dagster's daemon makes of a request: a run that waits to start."""
        assert request.job_name is not None
        tags = {**request.tags, "dagster/run_key": request.run_key or ""}
        return self.instance.create_run_for_job(
            self.definitions.resolve_job_def(request.job_name), run_config=request.run_config, tags=tags, status=WAITS
        )


def _event_of_step(name: str, error: BaseException | None) -> dg.DagsterEvent:
    """The last event of a step that raises this error, or none. Dagster alone can make it: let it, elsewhere."""

    @dg.op(name=name)
    def step() -> None:
        if error is not None:
            raise error

    @dg.job
    def one_step() -> None:
        step()

    elsewhere = one_step.execute_in_process(instance=_elsewhere(), raise_on_error=False)
    [event] = [event for event in elsewhere.all_events if event.is_step_failure or event.is_step_success]
    return event


@cache
def _elsewhere() -> dg.DagsterInstance:
    """An instance that no sensor looks at. Each one costs as much as a test."""
    return dg.DagsterInstance.ephemeral()


def a_world(*streams: dg.AssetsDefinition) -> SensorWorld:
    """By default with `s`, an available_now stream, and `c`, a continuous one."""
    return SensorWorld(
        dg.DagsterInstance.ephemeral(), list(streams) or [a_stream("s"), a_stream("c", mode="continuous")]
    )
