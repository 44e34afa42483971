"""Dagster as far as the simulation needs it: runs, who launches them, and the sensor that brings a stream back."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointTimeoutError,
    FencedError,
    IncompatibleStateError,
    InvalidPipelineError,
    StoreUnavailableError,
)
from dagster_ckpt.ids import EMPTY, Epoch, Term
from dagster_ckpt.integration.declared.recovery_policy import Recovery
from dagster_ckpt.integration.recovery.decision import LeaseView, RunState, RunView, StreamView, decide
from dagster_ckpt.protocol.epochs.lineage import lineage
from dagster_ckpt.protocol.lease import Lease, LeaseHolder, ProcessId, Watch, judged, watched
from dagster_ckpt.protocol.manifest.manifest import Manifest, Owner
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.storage.leases.heartbeat import read_lease
from dagster_ckpt.storage.writer.opening import Opening, Takeover
from tests.simulation.job import pipeline_of

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream
    from tests.simulation.world import World

INSTANCE = "instance-1"
LIVE_MAX = 4
TICK_MS_MIN = 15_000


@dataclass
class Run:
    """A Dagster run. `root` is the one that it and all other relaunches stem from."""

    id: str
    root: str
    from_epoch: Epoch | None
    process: "Process"
    attempt: int = 0
    state: RunState = RunState.STARTED
    since_ms: int = 0
    progressed: bool = False


@dataclass
class Dagster:
    """The instance as far as one stream goes: its runs, newest last."""

    stream: "SimulatedStream"
    runs: list[Run] = field(default_factory=list)

    def launch(
        self,
        *,
        root: str | None = None,
        attempt: int = 0,
        take_over: Takeover = Takeover.NEVER,
        may_fence: Term | None = None,
        from_epoch: Epoch | None = None,
    ) -> None:
        """Start a run, unless there are too many."""
        world = self.stream.world
        if sum(run.process.alive for run in self.runs) >= LIVE_MAX:
            return
        number = f"run-{len(self.runs)}"
        process = world.process("driver", host=world.chance.choice(["here", "elsewhere"]))
        run = Run(number, root or number, from_epoch, process, attempt, since_ms=world.scheduler.now_ms)
        self.runs.append(run)
        opening = replace(
            opening_for(self.stream, process, run.id, run.root),
            take_over=take_over,
            may_fence=may_fence,
            from_epoch=from_epoch,
        )
        process.on_end.append(lambda: self._died(run))
        process.spawn("driver", lambda: self._live(run, opening))

    def progressed(self) -> None:
        """The run that asks has committed an epoch."""
        process = self.stream.world.scheduler.this().process
        for run in self.runs:
            run.progressed |= run.process is process

    def set_state(self, run: Run, state: RunState) -> None:
        if run.state is RunState.STARTED:
            run.state, run.since_ms = state, self.stream.world.scheduler.now_ms

    def _live(self, run: Run, opening: Opening) -> None:
        try:
            self.stream.driver(run.process, opening).live()
            self.set_state(run, RunState.SUCCEEDED)
        except (FencedError, StoreUnavailableError, CheckpointDeclinedError, CheckpointTimeoutError):
            self.set_state(run, RunState.FAILED)
        except IncompatibleStateError:
            if self.stream.upstream is None:
                raise
            self.set_state(run, RunState.FAILED)
            world = self.stream.world  # its upstream has moved away: a person does what the error says
            world.scheduler.after(world.chance.randrange(TICK_MS_MIN), self._begin_anew)
        except InvalidPipelineError:
            if opening.from_epoch is None and self.stream.upstream is None:
                raise  # only an epoch to go back to can be wrong; and nothing is ever damaged here
            self.set_state(run, RunState.FAILED)
        run.process.end()

    def _begin_anew(self) -> None:
        if not self.stream.world.calm:
            self.launch(take_over=Takeover.ALWAYS, from_epoch=EMPTY)

    def _died(self, run: Run) -> None:
        """Dagster sees some deaths soon, others never: then the lease has to tell."""
        if self.stream.world.chance.random() < 0.5:
            self.stream.world.scheduler.after(1_000, lambda: self.set_state(run, RunState.FAILED))


def opening_for(stream: "SimulatedStream", process: "Process", run: str, root_run: str) -> Opening:
    """What a Dagster run brings that opens the stream politely, in that process."""
    character = stream.world.character
    return Opening(
        stream=stream.name,
        owner=Owner(INSTANCE, stream.name, root_run),
        pipeline=pipeline_of(append=character.append and stream.upstream is None),
        shards=character.shards,
        holder=LeaseHolder(run, INSTANCE, ProcessId(process.host, "boot", "pid", process.number, 1)),
        root_run=root_run,
        lease_timeout_ms=character.lease_timeout_ms,
        retained=character.retained,
    )


def launch_by_hand(stream: "SimulatedStream") -> None:
    """What a person may do: materialize once more, politely or not, from where it stands or from an earlier epoch."""
    chance, newest = stream.world.chance, stream.oracle.newest
    retained = lineage(newest) if newest is not None else ()
    from_epoch = None
    if chance.random() < 0.4:
        # The oldest more often than others: it is retired first, perhaps while the opener looks. And so what lies in
        # the midst of a snapshot: few do, and its pin must be there still.
        midst = () if stream.reading is None else tuple(stream.reading.in_midst())
        often = (*(entry.epoch for entry in retained[:1]), *midst) * 3
        from_epoch = chance.choice([EMPTY, *(entry.epoch for entry in retained), *often])
    take_over = chance.choice([Takeover.NEVER, Takeover.ALWAYS])
    stream.dagster.launch(take_over=take_over, from_epoch=from_epoch)


def watch_again_and_again(stream: "SimulatedStream", process: "Process") -> None:
    """The recovery sensor: looks at the newest lease, lets `recovery.decide` decide, and does what it says."""
    world = stream.world
    clock, chain = world.clock_of(process), stream.chain_of(process)
    recovery = Recovery(lease_timeout=f"{world.character.lease_timeout_ms}ms", backoff="1s")
    watch: Watch | None = None
    while True:
        clock.sleep_ms(max(TICK_MS_MIN, world.character.lease_timeout_ms))
        try:
            newest = chain.newest()
            lease = None if newest is None else read_lease(chain.store, newest.term)
        except StoreUnavailableError:
            continue  # no verdict
        now_ms = clock.monotonic_ms()
        if newest is not None:
            watch = watched(watch, newest.term, lease, now_ms)
        _act(stream, recovery, _lease_view(world, newest, lease, watch, now_ms), lease)


def _lease_view(
    world: "World", newest: Manifest | None, lease: Lease | None, watch: Watch | None, now_ms: int
) -> LeaseView | None:
    if newest is None or watch is None:
        return None
    gone = lease is not None and world.is_gone(lease.holder.process)
    life = judged(watch, lease, now_ms, world.character.lease_timeout_ms, process_is_gone=gone)
    interrupted = lease is not None and lease.interrupted
    return LeaseView(newest.term, life, True, now_ms - watch.since_ms, interrupted, gone)


def _act(stream: "SimulatedStream", recovery: Recovery, view: LeaseView | None, lease: Lease | None) -> None:
    run = stream.dagster.runs[-1]
    seen = RunView(
        state=run.state,
        mode=Mode.CONTINUOUS,
        attempt=run.attempt,
        opened=lease is not None and lease.holder.dagster_run_id == run.id,
        one_process=True,
        others_done=True,
        same_ms=stream.world.scheduler.now_ms - run.since_ms,
    )
    verdict = decide(StreamView(Mode.CONTINUOUS, True, seen, view, progressed=run.progressed), recovery)
    if verdict.declare_failed:
        stream.dagster.set_state(run, RunState.FAILED)
    if verdict.launch is not None:
        launch = verdict.launch
        stream.dagster.launch(
            root=run.root, attempt=launch.attempt, may_fence=launch.may_fence, from_epoch=run.from_epoch
        )
