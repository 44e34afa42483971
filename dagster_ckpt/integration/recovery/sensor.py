"""The recovery sensor: checks every stream every few seconds, and restarts what must run.

It is level-triggered: it compares the desired state with the actual one, and depends on no event. So it also restarts
what died together with Dagster. It reads the store and never writes to it: opening a stream is the only fence, and a
relaunched run gets the right to fence exactly the term whose writer was found dead.

When `dagster dev` is killed, its daemon and its code server live on for a minute or longer. Its streams end with it, so
the sensor must not start them again: nothing would end those runs.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import dagster as dg

from dagster_ckpt.clock import Clock, SystemClock
from dagster_ckpt.integration.dagster_dev import DevWatch
from dagster_ckpt.integration.dagster_names import (
    CODE_VERSION_TAG,
    DRAIN_TAG,
    LAUNCHED_FOR_TAG,
    NO_VERSION,
    drain_requested,
    job_name_of,
    stream_name_of,
)
from dagster_ckpt.integration.declared.resources import CheckpointCoordinatorResource
from dagster_ckpt.integration.declared.streaming_function import require_streaming, streaming_job
from dagster_ckpt.integration.recovery.crash_loop_check import (
    evaluation_failed,
    evaluation_stuck,
    evaluation_unavailable,
    report,
)
from dagster_ckpt.integration.recovery.dagster_runs import (
    LastRuns,
    StreamAsset,
    code_version_of,
    epoch_at_launch,
    full_pool,
    instance_id,
    newest_run,
    run_view,
    runs_on_their_way,
    unfinished_runs,
)
from dagster_ckpt.integration.recovery.decision import Verdict, decide
from dagster_ckpt.integration.recovery.live_check import LiveReports, facts_of_look, live_state
from dagster_ckpt.integration.recovery.manual_changes import ChangeWatch
from dagster_ckpt.integration.recovery.relaunch import Watched, declare_failed, rebuilding_run, run_request
from dagster_ckpt.integration.recovery.sensor_check import STREAMS
from dagster_ckpt.integration.recovery.sensor_memory import LeaseSeen, Memory, run_text
from dagster_ckpt.integration.recovery.stream_status import (
    NO_WRITER,
    StatusReader,
    StreamStatus,
    lease_view,
    open_chain,
    read_start,
    start_view,
)
from dagster_ckpt.integration.recovery.stream_view import RunState, StreamView
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.storage.writer.drain_requests import was_drained

DEV_HAS_ENDED = "dagster dev has ended: the sensor of its next start continues the streams"

TICK_SECONDS = 2
"""Less than the 5 s loop of Dagster's daemon, so that a tick is due in every loop.

A tick starts a varying moment after its loop. If this were 5, a loop less than 5 s after a start would delay it by 5 s.
"""

NAMED_MAX = 3
"""Up to this many streams in the same state are named in a tick's skip reason; more are counted."""

REASON_MAX = 300
"""The most characters of a skip reason."""

REBUILD = " rebuild"
"""Behind a stream's name in the sensor's memory: the run that rebuilds it beside its live one."""

LOOKS_MAX = 16
"""How many streams are read in parallel."""


@dataclass(frozen=True)
class Tick:
    """One evaluation of the sensor: its inputs."""

    context: dg.SensorEvaluationContext
    store: ObjectStore
    clock: Clock
    instance_id: str
    unfinished: Sequence[dg.RunRecord]
    last_runs: LastRuns
    status_reader: StatusReader
    live_reports: LiveReports
    change_watch: ChangeWatch


@dataclass(frozen=True)
class Case:
    """One stream as the decision sees it, and what it decided."""

    status: StreamStatus
    record: dg.RunRecord | None
    seen: LeaseSeen
    view: StreamView
    verdict: Verdict

    @property
    def run(self) -> dg.DagsterRun | None:
        return None if self.record is None else self.record.dagster_run


@dataclass(frozen=True)
class Judged:
    """What a tick did about one stream, and why."""

    memory: Memory
    reason: str
    request: dg.RunRequest | None
    run_id: str | None = None


def build_recovery_sensor(
    assets: Sequence[dg.AssetsDefinition],
    *,
    name: str | None = None,
    clock: Clock | None = None,
    sensor_name: str | None = None,
) -> dg.SensorDefinition:
    """The sensor that keeps these streaming assets running, with a job for each; on as soon as it is deployed.

    `name` prefixes the names of the sensor and its jobs; `sensor_name` replaces the sensor's. The sensor needs the
    location's resource `checkpoints`.
    """
    watched = [_to_watch(asset, name) for asset in assets]
    own_clock = clock or SystemClock()
    dev = DevWatch()
    status_reader, live_reports, change_watch = StatusReader(own_clock), LiveReports(), ChangeWatch()

    @dg.sensor(
        name=sensor_name or sensor_name_of(name),
        jobs=[streaming_job(asset, name) for asset in assets],
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Restarts a stream from its last committed epoch when its run, its process or its host died.",
        metadata={STREAMS: [each.asset.stream for each in watched]},
    )
    def streaming_recovery(
        context: dg.SensorEvaluationContext, checkpoints: CheckpointCoordinatorResource
    ) -> dg.SensorResult:
        if dev.has_ended():
            return dg.SensorResult(skip_reason=DEV_HAS_ENDED, cursor=context.cursor)
        return _evaluate(context, checkpoints.address.open(), watched, status_reader, live_reports, change_watch)

    return streaming_recovery


def sensor_name_of(prefix: str | None) -> str:
    """The name of a sensor with this prefix."""
    return "_".join(part for part in (prefix, "streaming_recovery") if part)


def _to_watch(asset: dg.AssetsDefinition, name: str | None) -> Watched:
    options = require_streaming(asset).options
    key = asset.key
    stream = StreamAsset(
        key, stream_name_of(key), asset.op.name, job_name_of(asset.op.name, name), options.mode, asset.op.pool
    )
    return Watched(stream, options, asset.get_asset_spec(key).code_version or NO_VERSION)


def _evaluate(
    context: dg.SensorEvaluationContext,
    store: ObjectStore,
    watched: Sequence[Watched],
    status_reader: StatusReader,
    live_reports: LiveReports,
    change_watch: ChangeWatch,
) -> dg.SensorResult:
    memory = Memory.read(context.cursor, status_reader.clock.now_ms())
    instance = context.instance
    tick = Tick(
        context=context,
        store=store,
        clock=status_reader.clock,
        instance_id=instance_id(instance),
        unfinished=unfinished_runs(instance),
        last_runs=LastRuns(instance, [each.asset.key for each in watched]),
        status_reader=status_reader,
        live_reports=live_reports,
        change_watch=change_watch,
    )
    looks = _look_at_all(tick, watched, memory)
    requests, reasons = [], dict[str, list[str]]()
    for each in watched:
        stream = each.asset.stream
        try:
            status = looks[stream].result()
            before = memory.of(stream, status.uuid)
            judged = _judge(tick, each, memory, status)
        except Exception:
            # One stream that cannot be checked (its store does not answer, say) must not stop the others' recovery.
            context.log.exception("a stream could not be checked; the next tick tries again. stream=%s", stream)
            reasons.setdefault("could not be checked", []).append(stream)
            continue
        rebuild, judged = _judge_rebuild(tick, each, judged, status)
        requests += rebuild
        memory = _report_changes(tick, each.asset, status, before, judged.memory)
        reasons.setdefault(judged.reason, []).append(stream)
        if judged.request is not None:
            context.log.info("launching a Dagster run. stream=%s, reason=%s", stream, judged.reason)
            requests.append(judged.request)
    return dg.SensorResult(
        run_requests=requests, cursor=memory.write(), skip_reason=None if requests else skip_reason(reasons)
    )


def skip_reason(streams: Mapping[str, Sequence[str]]) -> str:
    """Why nothing is launched, of the streams by their reason: short, because Dagster stores it with every tick.

    What concerns fewest streams comes first; what is too long is cut.
    """
    rarest = sorted(streams.items(), key=lambda item: len(item[1]))
    text = "; ".join(
        f"{', '.join(names) if len(names) <= NAMED_MAX else f'{len(names)} streams'}: {reason}"
        for reason, names in rarest
    )
    return text if len(text) <= REASON_MAX else f"{text[: REASON_MAX - 1]}…"


def _look_at_all(tick: Tick, watched: Sequence[Watched], memory: Memory) -> dict[str, Future[StreamStatus]]:
    """The status of each stream, read in parallel: a remote store answers many requests as fast as one."""
    with ThreadPoolExecutor(min(LOOKS_MAX, max(1, len(watched))), "look") as pool:
        return {
            each.asset.stream: pool.submit(
                tick.status_reader.read_status, tick.store, each.asset.key, memory.streams.get(each.asset.stream)
            )
            for each in watched
        }


def _judge(tick: Tick, watched: Watched, memory: Memory, status: StreamStatus) -> Judged:
    """Decide about one stream, and do what the decision says about its Dagster run."""
    asset, instance = watched.asset, tick.context.instance
    case = _case(tick, watched, memory, status)
    if status.remembered and case.verdict.needs_newest:
        full = tick.status_reader.read_status_in_full(tick.store, asset.key, memory.streams.get(asset.stream))
        case = _case(tick, watched, memory, full)
    run, verdict, launch = case.run, case.verdict, case.verdict.launch
    after = memory.remember(asset.stream, case.seen)
    if run is not None and verdict.declare_failed and not declare_failed(instance, run, verdict.reason):
        return Judged(after, f"{verdict.reason}; the run ended meanwhile, or Dagster retries it", None, run.run_id)
    _report_liveness(tick, asset, case)
    if run is not None:
        _drain_old_code(instance, run, case.view, watched.code_version)
        _report(tick, asset, run, case.status, verdict)
    request, run_id = None, None if run is None else run.run_id
    if launch is not None and launch.attempt == 0 and _is_left_to_a_rebuild(tick, asset, case):
        return Judged(after, "it was asked to end for its rebuild, which takes over", None, run_id)
    if launch is not None:
        if launch.not_rolled_back is not None:
            tick.context.log.warning("a rollback was not done. stream=%s, reason=%s", asset.stream, verdict.reason)
        request = run_request(watched, launch, run, case.status, tick.clock, verdict.reason)
    return Judged(after, verdict.reason, request, run_id)


def _is_left_to_a_rebuild(tick: Tick, asset: StreamAsset, case: Case) -> bool:
    """Whether its writer was asked to end, and an unfinished run rebuilds the stream: that opens it next."""
    lease, run = case.status.lease, case.run
    rebuilds = rebuilding_run(tick.unfinished, asset, case.status, None if run is None else run.run_id)
    return rebuilds is not None and lease is not None and was_drained(lease.closed)


def _judge_rebuild(
    tick: Tick, watched: Watched, judged: Judged, status: StreamStatus
) -> tuple[list[dg.RunRequest], Judged]:
    """Start the run again that rebuilds the stream beside its live run, where its process has died."""
    asset, memory = watched.asset, judged.memory
    run = rebuilding_run(tick.unfinished, asset, status, judged.run_id)
    if run is None:
        return [], judged
    start = read_start(tick.store, asset.key, run.run_id)
    place = f"{asset.stream}{REBUILD}"
    mark = "" if start is None else str(start.counter)
    shown = run_text(run.run_id, RunState.STARTED, None)
    seen = memory.see(place, status.uuid, NO_WRITER, shown, mark)
    view = run_view(tick.context.instance, run, asset, status)
    rebuilds = StreamView(
        mode=watched.options.mode,
        autostart=False,
        run=replace(view, same_ms=memory.watched_ms - seen.run_since_ms),
        lease=None,
        start=start_view(start, seen.start_since_ms, memory.watched_ms, watched.options.recovery),
    )
    verdict = decide(rebuilds, watched.options.recovery)
    judged = replace(judged, memory=memory.remember(place, seen))
    if verdict.launch is None or not declare_failed(tick.context.instance, run, verdict.reason):
        return [], judged
    tick.context.log.info("a rebuild goes on. stream=%s, reason=%s", asset.stream, verdict.reason)
    return [run_request(watched, verdict.launch, run, status, tick.clock, verdict.reason)], judged


def _report_changes(
    tick: Tick, asset: StreamAsset, status: StreamStatus, before: LeaseSeen | None, memory: Memory
) -> Memory:
    """Put what people have changed in the store since the last tick into Dagster's history of the asset."""
    seen = memory.streams[asset.stream]
    try:
        chain = open_chain(tick.store, asset.key, tick.clock)
        look = tick.change_watch.look(chain, status, seen if before is None else before, seen)
        for change in look.changes:
            tick.context.instance.report_runless_asset_event(change.observation(asset.key))
            tick.context.log.info("a stream was changed. stream=%s, change=%s", asset.stream, change.text)
    except Exception:
        # History only informs: it must not delay recovery.
        tick.context.log.exception("changes of a stream could not be reported yet. stream=%s", asset.stream)
        return memory
    return memory.remember(asset.stream, look.seen)


def _case(tick: Tick, watched: Watched, memory: Memory, status: StreamStatus) -> Case:
    """All that the decision needs, and the decision."""
    asset, instance, recovery = watched.asset, tick.context.instance, watched.options.recovery
    before = memory.of(asset.stream, status.uuid)
    record = newest_run(instance, asset, tick.unfinished, tick.last_runs, status.dagster_run_id)
    run = None if record is None else record.dagster_run
    view = None if run is None else run_view(instance, run, asset, status)
    may_wait = run is not None and view is not None and view.may_wait
    starts = may_wait and view is not None and view.state is RunState.STARTED
    start = read_start(tick.store, asset.key, run.run_id) if run is not None and starts else None
    mark = "" if run is None or start is None else str(start.counter)
    shown = "" if run is None or view is None else run_text(run.run_id, view.state, view)
    watch = status.watch(before, memory.watched_ms)
    seen = memory.see(asset.stream, status.uuid, watch, shown, mark, status.dagster_run_id)
    stream_view = StreamView(
        mode=watched.options.mode,
        autostart=watched.options.autostart,
        run=None if view is None else replace(view, same_ms=memory.watched_ms - seen.run_since_ms),
        lease=lease_view(status, seen.lease, memory.watched_ms, recovery, tick.instance_id),
        progressed=_has_progress(run, status),
        new_code=run is not None and code_version_of(run) not in {None, watched.code_version},
        pool=full_pool(instance, asset, run.run_id) if run is not None and may_wait else None,
        start=start_view(start, seen.start_since_ms, memory.watched_ms, recovery),
    )
    return Case(status, record, seen, stream_view, decide(stream_view, recovery))


def _report_liveness(tick: Tick, asset: StreamAsset, case: Case) -> None:
    """Report the check `is_live` where Dagster shows another state of the stream."""
    state = live_state(case.view, case.verdict)
    if state is not None and case.record is not None:
        facts = facts_of_look(state, case.status, case.record, case.view.run, case.verdict)
        unfinished = runs_on_their_way(asset, tick.unfinished)
        tick.live_reports.report(tick.context.instance, asset.key, facts, unfinished, tick.clock.now_ms())


def _report(tick: Tick, asset: StreamAsset, run: dg.DagsterRun, status: StreamStatus, verdict: Verdict) -> None:
    """Fail the stream's check where the verdict calls for it."""
    failed, what = None, ""
    if verdict.gave_up is not None:
        failed, what = evaluation_failed(asset.key, run, status.epoch, verdict.gave_up), "is no longer restarted"
    elif verdict.unavailable is not None:
        failed, what = evaluation_unavailable(asset.key, run, status.epoch, verdict.unavailable), "waits for an answer"
    elif verdict.stuck is not None:
        failed, what = (
            evaluation_stuck(asset.key, run, status.epoch, verdict.stuck),
            "waits for a slot in vain",
        )
    if failed is not None and report(tick.context.instance, run, failed):
        tick.context.log.error("a stream %s. stream=%s, reason=%s", what, asset.stream, verdict.reason)


def _has_progress(run: dg.DagsterRun | None, status: StreamStatus) -> bool:
    """Whether an epoch was committed since the sensor launched this run."""
    at_launch = None if run is None else epoch_at_launch(run)
    return at_launch is not None and status.newest_committed > at_launch


def _drain_old_code(instance: dg.DagsterInstance, run: dg.DagsterRun, view: StreamView, code_version: str) -> None:
    """Ask a live run of another code version to end at its next epoch; a later tick starts the next.

    Not one that was launched for the sensor's version: until the code location is reloaded, each run loads newer code
    than the sensor has, and so would the next.
    """
    launched_for = run.tags.get(LAUNCHED_FOR_TAG)
    if launched_for == code_version:
        return
    works = view.run is not None and view.run.state is RunState.STARTED and view.run.opened
    started_with = run.tags.get(CODE_VERSION_TAG, code_version)
    if works and started_with != code_version and not drain_requested(run.tags):
        instance.add_run_tags(run.run_id, {DRAIN_TAG: f"code_version {started_with} -> {code_version}"})
