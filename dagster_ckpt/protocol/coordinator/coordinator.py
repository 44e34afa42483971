"""The coordinator of epochs: a pure step machine, `step(state, event) -> (state, effects)`.

One epoch is in work at a time. Every registered shard must ACK it exactly once in each step; then, and only when the
job that does its work has ended, so that no second reply of a shard can still be in flight, the manifest is created.
Until then any failure gives the epoch up, and nothing of it is visible. From then on no failure can: the create may
have happened, so only its outcome counts.

    phase         event                    next phase    effects
    ------------  -----------------------  ------------  --------------------------------------------------------
    any           Reset                    idle          (an epoch in work is fenced by the new term; not counted)
    any other     Begin                    in progress   Work: each shard is pending
    any other     BeginWithoutWork         in progress   CommitManifest, of ACKs that have nothing in them
    in progress   ShardAcked, pending      in progress   (the shard is no longer pending in that step)
    in progress   ShardAcked, a second     failed        GiveUp: two attempts were mixed, neither can be trusted
    in progress   ShardAcked, later epoch  failed        GiveUp: that epoch was never begun, so no task can have made it
    in progress   ShardDeclined            failed        GiveUp
    in progress   TimedOut, Aborted        failed        GiveUp
    in progress   JobEnded, some pending   failed        GiveUp: no reply from them is a decline
    in progress   JobEnded, none pending   in progress   CommitManifest: from here only the next two count
    in progress   Committed                completed
    in progress   CommitFailed             failed        GiveUp
    in progress   TryFailed                failed        GiveUp
    failed        TryFailed                failed        (counted already)
    idle, compl.  TryFailed                failed        (counted: no epoch had begun)

Any other event that names another epoch than the one in work, or comes when none is, changes nothing: it is a late
reply to one that was given up. No number is begun twice, so a late reply is never taken for one of the next try. To
begin while an epoch is in work, to begin a number again, or to report a commit that was not requested is a bug in our
code.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, CheckpointTimeoutError
from dagster_ckpt.ids import EMPTY, Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.coordinator_events import (
    Aborted,
    Begin,
    BeginWithoutWork,
    CommitFailed,
    CommitManifest,
    Committed,
    Effect,
    EpochEvent,
    Event,
    Failure,
    FailureKind,
    GiveUp,
    JobEnded,
    Reset,
    ShardAcked,
    ShardDeclined,
    StartWork,
    TimedOut,
    TryFailed,
)

Part = tuple[int, Shard]
"""One shard's work in one step."""


class Phase(StrEnum):
    """Where the newest epoch that was begun stands."""

    IDLE = "idle"
    IN_PROGRESS = "in progress"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CompletedEpoch:
    """What is remembered of an epoch: bytes of the files it wrote, rows in and out."""

    epoch: Epoch
    bytes: int
    rows_in: int
    rows_out: int


@dataclass(frozen=True)
class Coordinator:
    """The state. `retained` is how many completed epochs are remembered, oldest first in `completed`.

    `steps` is how many steps each shard works on, `ran_tasks`: the newest epoch is one that tasks work for.
    """

    shards: frozenset[Shard]
    retained: int
    steps: int = 1
    phase: Phase = Phase.IDLE
    epoch: Epoch = EMPTY
    acks: dict[Part, ShardAck] = field(default_factory=dict)
    ran_tasks: bool = True
    committing: bool = False
    failure: Failure | None = None
    completed: tuple[CompletedEpoch, ...] = ()
    completed_count: int = 0
    failures_in_a_row: int = 0

    @property
    def pending(self) -> frozenset[Shard]:
        """The shards that have not ACKed the epoch in work in each step; none where no epoch is."""
        if self.phase is not Phase.IN_PROGRESS:
            return frozenset()
        return frozenset(shard for step, shard in self.parts if (step, shard) not in self.acks)

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that must be ACKed, in order: each shard in each step."""
        return tuple((step, shard) for step in range(self.steps) for shard in sorted(self.shards))

    @property
    def total_bytes(self) -> int:
        """Bytes written for the newest epoch, according to its ACKs so far."""
        return sum(_written_bytes(self.epoch, ack) for ack in self.acks.values())


def step(state: Coordinator, event: Event) -> tuple[Coordinator, list[Effect]]:
    """The table above."""
    match event:
        case Reset(shards=shards):
            assert shards, "a stream has at least one shard"
            return replace(state, shards=shards, phase=Phase.IDLE, acks={}, committing=False, failure=None), []
        case TryFailed(reason=reason):
            return _try_failed(state, reason)
        case Begin(epoch=epoch):
            begun = _begin(state, epoch)
            return begun, [StartWork(epoch, begun.shards)]
        case BeginWithoutWork(epoch=epoch):
            acks = {(step, shard): ShardAck(shard, step=step) for step, shard in state.parts}
            begun = replace(_begin(state, epoch), acks=acks, ran_tasks=False, committing=True)
            return begun, [CommitManifest(epoch, tuple(acks.values()))]
        case _ if state.phase is Phase.IN_PROGRESS and event.epoch == state.epoch:
            return _committing(state, event) if state.committing else _working(state, event)
        case _:
            return _other_epoch(state, event)


def failure_error(epoch: Epoch, failure: Failure) -> CheckpointError:
    """The error to raise after too many failed epochs: which shard, which host, why."""
    where = f"epoch={epoch}, shards={list(failure.shards)}, hosts={list(failure.hosts)}"
    if failure.kind is FailureKind.TIMED_OUT:
        return CheckpointTimeoutError(
            f"an epoch took too long and was given up; nothing of it was committed. Look at what these hosts do, or "
            f"raise the coordinator's timeout. {where}"
        )
    return CheckpointDeclinedError(
        f"an epoch could not be completed; nothing of it was committed. Remove the cause and start again. "
        f"reason={failure.reason}, {where}"
    )


def _begin(state: Coordinator, epoch: Epoch) -> Coordinator:
    assert state.phase is not Phase.IN_PROGRESS, f"one epoch at a time. in_work={state.epoch}, asked={epoch}"
    assert epoch > state.epoch, f"an epoch's number is never used again. last={state.epoch}, asked={epoch}"
    return replace(state, phase=Phase.IN_PROGRESS, epoch=epoch, acks={}, ran_tasks=True, committing=False, failure=None)


def _try_failed(state: Coordinator, reason: str) -> tuple[Coordinator, list[Effect]]:
    """Count each try once, whether it gave an epoch up or failed before it began one."""
    if state.phase is Phase.FAILED:
        return state, []
    failure = Failure(FailureKind.ABORTED, reason)
    failed, effects = _give_up(state, failure)
    return failed, effects if state.phase is Phase.IN_PROGRESS else []


def _other_epoch(state: Coordinator, event: EpochEvent) -> tuple[Coordinator, list[Effect]]:
    """An event of another epoch than the one in work, or while none is."""
    assert not isinstance(event, Committed), f"no commit of this epoch was requested. {event=}"
    collecting = state.phase is Phase.IN_PROGRESS and not state.committing
    if isinstance(event, ShardAcked) and event.epoch > state.epoch and collecting:
        where = (event.ack.shard,), (event.ack.host,)
        return _give_up(state, Failure(FailureKind.DECLINED, "an ACK of an epoch that was never begun", *where))
    return state, []  # a late reply to an epoch that was given up


def _working(state: Coordinator, event: EpochEvent) -> tuple[Coordinator, list[Effect]]:
    """An event of the epoch in work, before its manifest is created."""
    match event:
        case ShardAcked(ack=ack):
            return _add_ack(state, ack)
        case JobEnded():
            return _job_ended(state)
        case ShardDeclined(shard=shard, host=host, reason=reason):
            shards = () if shard is None else (shard,)
            return _give_up(state, Failure(FailureKind.DECLINED, reason, shards, (host,) if host else ()))
        case TimedOut(hosts=hosts, shards=at_work):
            silent = at_work or tuple(sorted(state.pending))
            return _give_up(state, Failure(FailureKind.TIMED_OUT, "no reply in time", silent, hosts))
        case Aborted(reason=reason):
            return _give_up(state, Failure(FailureKind.ABORTED, reason))
        case Committed() | CommitFailed():
            raise AssertionError(f"no commit of this epoch was requested. {event=}")


def _add_ack(state: Coordinator, ack: ShardAck) -> tuple[Coordinator, list[Effect]]:
    part = ack.step, ack.shard
    if ack.shard not in state.shards or ack.step not in range(state.steps):
        return _give_up(state, Failure(FailureKind.DECLINED, "an unknown shard", (ack.shard,), (ack.host,)))
    if part in state.acks:
        hosts = (state.acks[part].host, ack.host)
        return _give_up(state, Failure(FailureKind.DECLINED, "a shard ACKed twice", (ack.shard,), hosts))
    return replace(state, acks={**state.acks, part: ack}), []


def _job_ended(state: Coordinator) -> tuple[Coordinator, list[Effect]]:
    if state.pending:
        silent = tuple(sorted(state.pending))
        return _give_up(state, Failure(FailureKind.DECLINED, "the job ended without a reply from them", silent))
    acks = tuple(state.acks[part] for part in state.parts)
    return replace(state, committing=True), [CommitManifest(state.epoch, acks)]


def _committing(state: Coordinator, event: EpochEvent) -> tuple[Coordinator, list[Effect]]:
    """An event of the epoch in work, while its manifest is created: only the outcome counts."""
    match event:
        case Committed():
            return _complete(state), []
        case CommitFailed(reason=reason):
            return _give_up(state, Failure(FailureKind.NOT_COMMITTED, reason))
        case _:
            return state, []


def _complete(state: Coordinator) -> Coordinator:
    acks = state.acks.values()
    entry = CompletedEpoch(
        state.epoch, state.total_bytes, sum(ack.rows_in for ack in acks), sum(ack.rows_out for ack in acks)
    )
    return replace(
        state,
        phase=Phase.COMPLETED,
        committing=False,
        completed=(*state.completed, entry)[-state.retained :],
        completed_count=state.completed_count + 1,
        failures_in_a_row=0,
    )


def _give_up(state: Coordinator, failure: Failure) -> tuple[Coordinator, list[Effect]]:
    failures = state.failures_in_a_row + 1
    failed = replace(state, phase=Phase.FAILED, committing=False, failure=failure, failures_in_a_row=failures)
    return failed, [GiveUp(state.epoch, failure, failures)]


def _written_bytes(epoch: Epoch, ack: ShardAck) -> int:
    runs = sum(run.bytes for table in ack.tables for run in table.runs if run.epoch == epoch)
    return runs + sum(change.bytes for change in ack.changes)
