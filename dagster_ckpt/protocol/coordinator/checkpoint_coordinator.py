"""`CheckpointCoordinator`: the coordinator of one stream's epochs.

It holds the newest state of `coordinator.step` and reads no clock: the time is an argument, in milliseconds of a clock
that never goes back. The driver reports events from one thread at a time; any thread may read the properties.

    coordinator = CheckpointCoordinator(8, CoordinatorOptions(interval_ms=10_000, timeout_ms=600_000), now_ms=0)
    coordinator.should_checkpoint(now_ms=10_000)  # True: an interval without an epoch
    coordinator.begin(Epoch(2))
    coordinator.pending  # all eight shards
"""

from dataclasses import dataclass

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.coordinator import CompletedEpoch, Coordinator, Phase, failure_error, step
from dagster_ckpt.protocol.coordinator.coordinator_events import (
    Aborted,
    Begin,
    BeginWithoutWork,
    CommitFailed,
    CommitManifest,
    Committed,
    Event,
    Failure,
    FailureKind,
    JobEnded,
    Reset,
    ShardAcked,
    ShardDeclined,
    TimedOut,
    TryFailed,
)


@dataclass(frozen=True, slots=True)
class CoordinatorOptions:
    """When epochs are made, and how many may fail.

    `interval_ms` is the time between two epochs; None: each micro-batch is an epoch. An epoch that takes longer than
    `timeout_ms` is given up. `tolerable_failures` is how many tries in a row may fail. `remembered` is how many
    completed epochs `get` finds.
    """

    interval_ms: int | None
    timeout_ms: int
    tolerable_failures: int = 3
    remembered: int = 20


class CheckpointCoordinator:
    """Ensures that an epoch is committed by every shard exactly once, or not at all.

    `begin` an epoch, then `ack` or `decline` for each shard. `end_job` reports that no more replies can come, and
    returns the ACKs to commit; `commit` or `fail_commit` reports the outcome of the create. `timeout`, `abort` and
    `decline` give the epoch up. Events of another epoch than the one in work change nothing.
    """

    def __init__(self, shards: int, options: CoordinatorOptions, now_ms: int, steps: int = 1) -> None:
        self._state = Coordinator(_all(shards), options.remembered, steps)
        self._options = options
        self._quiet_since_ms = now_ms

    @property
    def phase(self) -> Phase:
        """The phase of the newest epoch that was begun."""
        return self._state.phase

    @property
    def pending(self) -> frozenset[Shard]:
        """The shards that have not ACKed the epoch in work; none where no epoch is."""
        return self._state.pending

    @property
    def total_bytes(self) -> int:
        """Bytes written for the newest epoch, according to its ACKs so far."""
        return self._state.total_bytes

    @property
    def latest(self) -> CompletedEpoch | None:
        """The newest completed epoch."""
        return self.completed_epochs[-1] if self.completed_epochs else None

    @property
    def completed_epochs(self) -> tuple[CompletedEpoch, ...]:
        """The newest completed epochs, oldest first."""
        return self._state.completed

    @property
    def completed_count(self) -> int:
        """How many epochs have completed in all."""
        return self._state.completed_count

    @property
    def failure(self) -> Failure | None:
        """Why the newest epoch was given up; None if it was not."""
        return self._state.failure

    @property
    def failures_in_a_row(self) -> int:
        """How many tries have failed since the newest completed epoch."""
        return self._state.failures_in_a_row

    @property
    def may_try_again(self) -> bool:
        """Whether no more tries have failed in a row than are tolerated."""
        return self.failures_in_a_row <= self._options.tolerable_failures

    @property
    def tolerable_failures(self) -> int:
        return self._options.tolerable_failures

    @property
    def interval_ms(self) -> int | None:
        """The time between two epochs; None: each micro-batch is an epoch."""
        return self._options.interval_ms

    @property
    def timeout_ms(self) -> int:
        """How long an epoch may take."""
        return self._options.timeout_ms

    def get(self, epoch: Epoch) -> CompletedEpoch | None:
        """A completed epoch by its number; None for one that never completed or is no longer remembered."""
        return next((entry for entry in self.completed_epochs if entry.epoch == epoch), None)

    def quiet_ms(self, now_ms: int) -> int:
        """The time since an epoch with work completed; before the first, since the term began."""
        return now_ms - self._quiet_since_ms

    def should_checkpoint(self, now_ms: int, intervals: int = 1) -> bool:
        """Whether an epoch is due by time alone: none is in work, and `intervals` intervals have passed without one."""
        if self.interval_ms is None or self.phase is Phase.IN_PROGRESS:
            return False
        return self.quiet_ms(now_ms) >= intervals * self.interval_ms

    def reset(self, shards: int, now_ms: int) -> None:
        """Begin a new term with this number of shards. Keeps completed epochs and failures in a row."""
        self._step(Reset(_all(shards)))
        self._quiet_since_ms = now_ms

    def begin(self, epoch: Epoch) -> None:
        """Begin an epoch: every shard is pending. Its number is greater than that of any begun before."""
        self._step(Begin(epoch))

    def begin_without_work(self, epoch: Epoch) -> tuple[ShardAck, ...]:
        """Begin an epoch that no task works for. Returns the ACKs to commit, which are empty."""
        acks = self._step(BeginWithoutWork(epoch))
        assert acks is not None, "an epoch without work is committed at once"
        return acks

    def ack(self, epoch: Epoch, ack: ShardAck) -> None:
        """Report that a shard's part is durable."""
        self._step(ShardAcked(epoch, ack))

    def decline(self, epoch: Epoch, shard: Shard | None, host: str, reason: str) -> None:
        """Report that a shard's part cannot be made; `shard` is None if only the failure of the whole job is known."""
        self._step(ShardDeclined(epoch, shard, host, reason))

    def timeout(self, epoch: Epoch, hosts: tuple[str, ...] = (), shards: tuple[Shard, ...] = ()) -> None:
        """Report that the epoch exceeded `timeout_ms`. `hosts` and `shards` are those still at work, where known."""
        self._step(TimedOut(epoch, hosts, shards))

    def abort(self, reason: str) -> None:
        """Give up the epoch in work, if there is one. A commit that has begun cannot be taken back."""
        self._step(Aborted(self._state.epoch, reason))

    def end_job(self, epoch: Epoch) -> tuple[ShardAck, ...]:
        """Report that the epoch's job has ended. Returns the ACKs to commit, one for each shard, in order.

        Raises `CheckpointDeclinedError` or `CheckpointTimeoutError` if the epoch was given up.
        """
        acks = self._step(JobEnded(epoch))
        if acks is None:
            # Without a failure it is an epoch of an older term, whose job has outlived it.
            raise failure_error(epoch, self.failure or Failure(FailureKind.ABORTED, "the stream was opened again"))
        return acks

    def commit(self, epoch: Epoch, now_ms: int) -> None:
        """Report that the manifest exists and is durable."""
        worked = self._state.ran_tasks
        self._step(Committed(epoch))
        if worked:
            self._quiet_since_ms = now_ms

    def fail_commit(self, epoch: Epoch, reason: str) -> None:
        """Report that the manifest does not exist, or that this is unknown: the stream must be opened again."""
        self._step(CommitFailed(epoch, reason))

    def fail_try(self, reason: str) -> None:
        """Report that the query has failed. An epoch that it gave up, and that was counted, is not counted twice."""
        self._step(TryFailed(reason))

    def _step(self, event: Event) -> tuple[ShardAck, ...] | None:
        """Take one step. Returns the ACKs to commit if they waited for this event, else None."""
        self._state, effects = step(self._state, event)
        return next((effect.acks for effect in effects if isinstance(effect, CommitManifest)), None)


def _all(shards: int) -> frozenset[Shard]:
    return frozenset(map(Shard, range(shards)))
