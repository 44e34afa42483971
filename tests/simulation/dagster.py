"""Dagster as far as the simulation needs it: its runs, the people who launch them, and their workers.

Dagster's instance is one in memory. `sensor_daemon.py` evaluates the sensor and launches what that requests.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import dagster as dg

from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointTimeoutError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.integration.dagster_names import NO_VERSION, STREAM_TAG, job_name_of, op_name_of
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.declared.run_config import op_config, read_choice
from dagster_ckpt.integration.declared.stream_options import stream_options
from dagster_ckpt.integration.recovery.dagster_runs import WILL_RETRY_TAG, StreamAsset, may_fence_tag
from dagster_ckpt.integration.recovery.decision import STARTING_MS_MAX
from dagster_ckpt.integration.recovery.relaunch import Watched
from dagster_ckpt.integration.recovery.start_heartbeat import beating_until_open
from dagster_ckpt.integration.recovery.stream_status import read_status
from dagster_ckpt.integration.step.already_live import Beside, live_run
from dagster_ckpt.integration.step.run_watch import goes_on
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage
from dagster_ckpt.protocol.lease import LeaseHolder, ProcessId
from dagster_ckpt.protocol.manifest.manifest import Owner
from dagster_ckpt.protocol.object_names import lease_name, parts_of_name
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from tests.simulation.instance import INSTANCE, SimulatedInstance
from tests.simulation.oracle import BrokenPromiseError

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

LIVE_MAX = 4
"""So many live runs of a stream a person does not add to."""
RUN_RETRIES = 0.1
"""How often Dagster's own run retries retry a failed run."""
NEVER_STARTS = 0.03
"""How often a run's worker is lost before it starts."""
STARTS_MS = (0, 0, 0, 1_000, 20_000)

_RUN_KEY_TAG = "dagster/run_key"
_RETRY_NUMBER_TAG = "dagster/retry_number"
_FAILURES = (FencedError, StoreUnavailableError, CheckpointDeclinedError, CheckpointTimeoutError, InvalidPipelineError)


class CrashLoopError(Exception):
    """What a stream fails with that fails whatever is tried."""


@dataclass
class Run:
    """What a run is beside Dagster's record of it. `process` is None until its worker starts.

    `relaunches` in a row by the sensor led to it, without a clean end or an epoch in between; those of an unavailable
    store do not count. `epochs` is how many the stream had when the tick that launched it began. `closes`: its work is
    done, only its lease is left to close. `unavailable`: it failed because the store did not answer. `began_ms` is when
    its worker began, `opened` whether it has opened the stream since.
    """

    id: str
    stream: "SimulatedStream"
    relaunches: int = 0
    epochs: int = 0
    process: "Process | None" = None
    closes: bool = False
    unavailable: bool = False
    began_ms: int = 0
    opened: bool = False


@dataclass
class Dagster:
    """The instance that all streams of the world share, and what its daemon keeps of the sensor."""

    world: "World"
    instance: SimulatedInstance = field(default_factory=SimulatedInstance)
    runs: list[Run] = field(default_factory=list)
    cursor: str | None = None
    resets: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    _replaced: set[str] = field(default_factory=set)

    # ---- runs

    def launch(
        self, stream: "SimulatedStream", *, take_over: Takeover = Takeover.NEVER, from_epoch: Epoch | None = None
    ) -> None:
        """What a person does: materialize the asset."""
        config: dict[str, object] = {} if from_epoch is None else {"from_epoch": int(from_epoch)}
        if take_over is Takeover.ALWAYS:
            config["take_over"] = True
        op = stream.asset.op_name
        self._create(stream, {"ops": {op: {"config": config}}}, {STREAM_TAG: stream.name})

    def reset_the_cursor(self) -> None:
        """What a person does who has removed a stream's folder on purpose.

        Not in the calm: the stream is started again at once, and each reset makes the sensor wait once more for all
        other streams.
        """
        self.resets += 1
        if not self.world.calm:
            self.cursor = None

    def is_crowded(self, stream: "SimulatedStream") -> bool:
        alive = [run for run in self.runs if run.stream is stream and run.process is not None and run.process.alive]
        return len(alive) >= LIVE_MAX

    def submit(self, request: dg.RunRequest, epochs: Mapping[str, int]) -> None:
        """What the daemon does with the sensor's run request: launch it, but not twice under one run key.

        `epochs` is how many each stream had when the tick began.
        """
        run_key = request.run_key or ""
        records = self.instance.records.values()
        if any(record.dagster_run.tags.get(_RUN_KEY_TAG) == run_key for record in records):
            return
        stream = next(each for each in self.world.all_streams if each.asset.job_name == request.job_name)
        replaced = self._is_replaced_once(run_key)
        self.counts["launched by the sensor"] += 1
        tags = {**request.tags, _RUN_KEY_TAG: run_key}
        relaunches = 0 if replaced is None else self._relaunches_after(replaced)
        self._ends_a_crash_loop(stream, relaunches)
        self._create(stream, dict(request.run_config), tags, relaunches=relaunches, epochs=epochs[stream.name])

    def progressed(self) -> None:
        """The run that asks has committed an epoch, and reports it to Dagster."""
        for run in self._of_this_process():
            self.instance.last_runs[run.stream.asset.key] = run.id

    def closes(self) -> None:
        """The run that asks has done its work, and closes its lease next: from then on its end may be a clean one."""
        for run in self._of_this_process():
            run.closes = True

    def _of_this_process(self) -> list[Run]:
        """The caller's run; none at the end of the world, when streams are written without Dagster."""
        process = self.world.scheduler.this().process
        return [run for run in self.runs if run.process is process]

    def _create(
        self,
        stream: "SimulatedStream",
        config: dict[str, object],
        tags: dict[str, str],
        *,
        parent: dg.DagsterRun | None = None,
        relaunches: int = 0,
        epochs: int = 0,
    ) -> None:
        world, asset = self.world, stream.asset
        run = Run(f"run-{len(self.runs)}", stream, relaunches, epochs)
        self.runs.append(run)
        record = dg.DagsterRun(
            job_name=asset.job_name,
            run_id=run.id,
            run_config=config,
            tags=tags,
            status=dg.DagsterRunStatus.STARTING,
            root_run_id=None if parent is None else parent.root_run_id or parent.run_id,
            parent_run_id=None if parent is None else parent.run_id,
            execution_plan_snapshot_id=asset.op_name,
        )
        self.instance.create(record, asset.key)
        delay_ms = world.chance.choice(STARTS_MS)
        if world.calm or world.chance.random() >= NEVER_STARTS:
            world.scheduler.after(delay_ms, lambda: self._start(run))

    def set_status(self, run: Run, status: dg.DagsterRunStatus) -> None:
        self.instance.now_ms = self.world.scheduler.now_ms
        self.instance.set_status(run.id, status)

    # ---- workers

    def _start(self, run: Run) -> None:
        record = self.instance.get_run_by_id(run.id)
        assert record is not None
        if record.is_finished or self.world.is_over:
            return
        world, stream = self.world, run.stream
        run.process = process = world.process("driver", host=world.chance.choice(["here", "elsewhere"]))
        self.set_status(run, dg.DagsterRunStatus.STARTED)
        choice = read_choice(op_config(record.run_config, stream.asset.op_name))
        opening = replace(
            opening_for(stream, process, run.id, record.root_run_id or run.id),
            take_over=Takeover.ALWAYS if choice.take_over and record.parent_run_id is None else Takeover.NEVER,
            may_fence=may_fence_tag(record),
            from_epoch=None if choice.from_epoch is None else Epoch(choice.from_epoch),
        )
        process.on_end.append(lambda: self._died(run))
        process.spawn("driver", lambda: self._live(run, process, opening))

    def _live(self, run: Run, process: "Process", opening: Opening) -> None:
        stream, world = run.stream, self.world
        clock, run.began_ms = world.clock_of(process), world.scheduler.now_ms
        status = dg.DagsterRunStatus.FAILURE
        try:
            timeout_ms = world.character.lease_timeout_ms
            if not self._is_left_to_another(run, process, opening):
                with beating_until_open(stream.store_of(process), opening.holder, timeout_ms, clock) as beat:
                    self._fail_in_a_crash_loop(stream, process)

                    def opened() -> None:
                        run.opened = True
                        beat.end()

                    stream.driver(process, opening).live(opened)
            status = dg.DagsterRunStatus.SUCCESS
        except (*_FAILURES, IncompatibleStateError, CrashLoopError) as error:
            self._failed(run, opening, error)
        self.set_status(run, status)
        if status is dg.DagsterRunStatus.FAILURE:
            self._retry(run)
        process.end()

    def _is_left_to_another(self, run: Run, process: "Process", opening: Opening) -> bool:
        """Whether it finds the stream live, as a step does before Spark starts."""
        stream, clock = run.stream, self.world.clock_of(process)
        if opening.take_over is Takeover.ALWAYS:
            return False
        beside = Beside(run.id, opening.owner, opening.may_fence, opening.lease_timeout_ms)
        live = live_run(
            lambda: read_status(self.world.root_of(process), stream.asset.key, clock, None),
            beside,
            None if opening.from_epoch is None else opening.root_run,
            lambda run_id: goes_on(self.instance.get_run_by_id(run_id)),
            clock,
        )
        self.counts["left to a live run"] += live is not None
        return live is not None

    def _failed(self, run: Run, opening: Opening, error: Exception) -> None:
        world, stream = self.world, run.stream
        if isinstance(error, IncompatibleStateError) and stream.delivery is not None:
            stream.delivery.stopped(error)
        elif isinstance(error, IncompatibleStateError):
            if stream.upstream is None:
                raise error
            # Its upstream has moved away: a person does what the error says.
            world.scheduler.after(world.chance.randrange(15_000), lambda: self._restart_from_the_beginning(stream))
        if isinstance(error, InvalidPipelineError) and opening.from_epoch is None and not stream.waits_for(error):
            raise error  # only an epoch to go back to can be wrong; and nothing is ever damaged here
        run.unavailable = isinstance(error, StoreUnavailableError)
        record = SimpleNamespace(cls_name=type(error).__name__, message=f"{type(error).__name__}: {error}", cause=None)
        self.instance.errors[run.id] = stream.asset.op_name, record

    def _restart_from_the_beginning(self, stream: "SimulatedStream") -> None:
        if not self.world.is_over:
            self.launch(stream, take_over=Takeover.ALWAYS, from_epoch=EMPTY)

    def _fail_in_a_crash_loop(self, stream: "SimulatedStream", process: "Process") -> None:
        """In a crash loop: with an error, or without one, as a worker that runs out of memory."""
        kind = stream.crash_loop
        if kind is None:
            return
        self.world.clock_of(process).sleep_ms(1_000)
        if kind == "killed":
            process.end()
            self.world.clock_of(process).sleep_ms(1_000)
        raise CrashLoopError("it cannot work")

    def _died(self, run: Run) -> None:
        """Dagster sees some deaths soon, others never: then the lease has to tell."""
        if self.world.chance.random() < 0.5:
            self.world.scheduler.after(1_000, lambda: self.set_status(run, dg.DagsterRunStatus.FAILURE))

    def _retry(self, run: Run) -> None:
        """Dagster's run retries: a copy of the run, with its tags and its config, under the same root."""
        world, record = self.world, self.instance.get_run_by_id(run.id)
        assert record is not None
        if world.calm or record.is_finished is False or world.chance.random() >= RUN_RETRIES:
            return
        self.instance.add_run_tags(run.id, {WILL_RETRY_TAG: "true"})
        tags = {**record.tags, _RETRY_NUMBER_TAG: "1"}
        tags.pop(_RUN_KEY_TAG, None)

        def again() -> None:
            if not world.calm:
                config = dict(record.run_config)
                self._create(run.stream, config, tags, parent=record, relaunches=run.relaunches, epochs=run.epochs)

        world.scheduler.after(world.chance.randrange(30_000), again)

    # ---- what the sensor must never do

    def _is_replaced_once(self, run_key: str) -> Run | None:
        """The run that this key replaces; None for a stream's first."""
        replaced = run_key.partition(" after ")[2].split(" ")[0]
        if replaced in self._replaced:
            raise BrokenPromiseError("a Dagster run is replaced once", f"{run_key} is launched once more")
        self._replaced.add(replaced)
        return next((run for run in self.runs if run.id == replaced), None)

    def _relaunches_after(self, replaced: Run) -> int:
        """How many relaunches in a row lead to a run in place of that one.

        Counted from run to run, not per stream: each run that a person starts begins another row, and a retry by
        Dagster continues the row of its parent. A run that hangs for long before it opens uses no attempt either. One
        that left the stream to a live run has ended cleanly.
        """
        record = self.instance.get_run_by_id(replaced.id)
        if replaced.closes or (record is not None and record.is_success):
            return 0
        is_first = replaced.stream.oracle.epochs > replaced.epochs
        hung = not replaced.opened and self.world.scheduler.now_ms - replaced.began_ms >= STARTING_MS_MAX
        return (0 if is_first else replaced.relaunches) + (not replaced.unavailable and not hung)

    def _ends_a_crash_loop(self, stream: "SimulatedStream", relaunches: int) -> None:
        if relaunches > stream.watched.options.recovery.max_attempts:
            raise BrokenPromiseError("a crash loop ends", f"{relaunches} relaunches of {stream.name} without an epoch")

    def declared_failed(self, run_id: str, began_ms: int) -> None:
        """The sensor declares a run failed in a tick that began then: its lease must have been silent for long."""
        run = next(each for each in self.runs if each.id == run_id)
        self.counts["declared failed"] += 1
        stream, process = run.stream, run.process
        newest = stream.oracle.newest
        if process is None or not process.alive or newest is None or stream.oracle.writers[newest.term] is not process:
            return
        name = lease_name(newest.term)
        if name not in stream.truth.objects:
            return
        beaten_ms = stream.truth.modified_ms(name)
        # A process's clock goes up to a tenth faster. A beat after the tick has begun may have come too late for it.
        if 0 <= began_ms - beaten_ms < 0.8 * self.world.character.lease_timeout_ms:
            what = f"{run_id}, whose lease was renewed {began_ms - beaten_ms} ms before"
            raise BrokenPromiseError("a live writer is not declared dead", what)


def opening_for(stream: "SimulatedStream", process: "Process", run: str, root_run: str) -> Opening:
    """What a Dagster run brings that opens the stream politely, in that process."""
    character = stream.world.character
    return Opening(
        stream=stream.name,
        owner=Owner(INSTANCE, stream.name, root_run),
        pipeline=stream.pipeline,
        shards=character.shards,
        holder=LeaseHolder(run, INSTANCE, ProcessId(process.host, "boot", "pid", process.number, 1)),
        root_run=root_run,
        lease_timeout_ms=character.lease_timeout_ms,
        retained=character.retained,
        restart_steps=True,
    )


def watched_stream(name: str, lease_timeout_ms: int) -> Watched:
    """What `build_recovery_sensor` makes of a continuous streaming asset of that key."""
    key = dg.AssetKey(list(parts_of_name(name)))
    op_name = op_name_of(key)
    recovery = Recovery(lease_timeout=f"{lease_timeout_ms}ms", backoff="1s", backoff_max="1 minute")
    options = stream_options(mode=Mode.CONTINUOUS, recovery=recovery)
    return Watched(StreamAsset(key, name, op_name, job_name_of(op_name), options.mode), options, NO_VERSION)


def launch_by_hand(stream: "SimulatedStream") -> None:
    """What a person may do: materialize once more, politely or not, from where it stands or from an earlier epoch."""
    if not stream.begun:
        return  # it is stopped since a restore
    chance, newest, dagster = stream.world.chance, stream.oracle.newest, stream.world.dagster
    retained = lineage(newest) if newest is not None else ()
    from_epoch = None
    if stream.delivery is None and chance.random() < 0.4:
        # The oldest more often than others: it is retired first, perhaps while the opener looks. And so what lies in
        # the midst of a snapshot: few do, and its pin must be there still.
        midst = () if stream.reading is None else tuple(stream.reading.in_midst())
        often = (*(entry.epoch for entry in retained[:1]), *midst) * 3
        pinned = (
            ()
            if newest is None
            else tuple(
                shown.epoch
                for shown in stream.oracle.pinned.values()
                if shown.epoch < newest.epoch and not is_abandoned(newest, shown.epoch)
            )
        )
        from_epoch = chance.choice([EMPTY, *(entry.epoch for entry in retained), *often, *pinned])
    take_over = chance.choice([Takeover.NEVER, Takeover.ALWAYS])
    if not dagster.is_crowded(stream):
        dagster.launch(stream, take_over=take_over, from_epoch=from_epoch)
