"""The driver's side of an epoch: one of Spark's micro-batches in, one manifest out, or nothing of it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import (
    CheckpointDeclinedError,
    CheckpointError,
    CorruptStateError,
    IncompatibleStateError,
    InvalidPipelineError,
)
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator import Coordinator, error_of, step
from dagster_ckpt.protocol.coordinator_events import (
    Aborted,
    Begin,
    CommitFailed,
    CommitManifest,
    Committed,
    Effect,
    Event,
    GiveUp,
    JobEnded,
    ShardAcked,
    ShardDeclined,
    TimedOut,
)
from dagster_ckpt.protocol.edits import EpochEdit
from dagster_ckpt.protocol.manifest import IndexedList, Manifest, SourcePosition
from dagster_ckpt.runtime.ack_rows import ShardDecline, merged
from dagster_ckpt.runtime.epoch_job import EpochJob, JobOutcome
from dagster_ckpt.runtime.layout import Layout
from dagster_ckpt.runtime.plan import refuse_unknown_state
from dagster_ckpt.runtime.scratch import Advance, Scratch
from dagster_ckpt.runtime.sources import Source, positions_by_source
from dagster_ckpt.runtime.task import EpochOrder
from dagster_ckpt.storage.pulse import Pulse
from dagster_ckpt.storage.writer import StreamWriter

Word = ShardAck | ShardDecline

_FINAL: dict[str, type[CheckpointError]] = {
    error.__name__: error for error in (CorruptStateError, IncompatibleStateError, InvalidPipelineError)
}


@dataclass(frozen=True)
class CommittedEpoch:
    """An epoch that has just become visible.

    `commit_ms` is what its manifest took, `epoch_ms` the whole epoch from Spark's hand-over on; `lag_seconds` how long
    ago the oldest input file of the epoch was written, or, for other sources, its micro-batch planned. `counters` are
    what the operator counted.
    """

    manifest: Manifest
    commit_ms: int
    epoch_ms: int
    rows_per_second: float
    lag_seconds: float
    counters: Mapping[str, int]


@dataclass(frozen=True)
class DriverSetup:
    """What the driver of one query works with.

    `delays_us` says for each input how late a row may come, None where it has no watermark. `pulse` gets a sign of each
    step that an epoch comes further.
    """

    asset: str
    writer: StreamWriter
    scratch: Scratch
    sources: tuple[Source, ...]
    layout: Layout
    delays_us: tuple[int | None, ...]
    timeout_ms: int
    on_commit: Callable[[CommittedEpoch], None]
    pulse: Pulse
    clock: Clock


class EpochDriver:
    """Makes epochs, one at a time, in the thread in which Spark calls `foreachBatch`."""

    def __init__(self, setup: DriverSetup) -> None:
        self._setup = setup
        self._job: EpochJob | None = None
        self._last_batch = setup.scratch.last_batch
        self._offsets = setup.scratch.offsets(self._last_batch)
        shards = frozenset(map(Shard, range(setup.layout.shards)))
        self._coordinator = Coordinator(shards, retained=1)

    def work(self, frame: DataFrame, batch_id: int) -> None:
        """Make an epoch of a micro-batch. When this returns it is committed; when it raises, perhaps nothing is.

        A crash before the commit leaves files that nobody names, one after it a committed epoch: the next start goes on
        from the newest manifest either way.
        """
        setup, clock = self._setup, self._setup.clock
        began_ms = clock.monotonic_ms()
        setup.pulse.sign()
        if setup.scratch.has_spark_state():
            refuse_unknown_state(setup.asset)
        self._check_is_next(batch_id)
        advances = setup.scratch.advances(batch_id)
        self.commit_beginnings()
        acks = self._acks(frame)
        setup.pulse.sign()
        positions = self._positions(advances)
        commit_began_ms = clock.monotonic_ms()
        manifest = self._commit(EpochEdit(acks, positions, batch_id, commit_began_ms - began_ms, setup.delays_us))
        ended_ms = clock.monotonic_ms()
        setup.pulse.sign()
        self._last_batch, self._offsets = batch_id, setup.scratch.offsets(batch_id)
        setup.writer.check_term()
        setup.on_commit(
            CommittedEpoch(
                manifest,
                commit_ms=ended_ms - commit_began_ms,
                epoch_ms=ended_ms - began_ms,
                rows_per_second=manifest.statistics.rows_in * 1000 / max(1, ended_ms - began_ms),
                lag_seconds=max(0, clock.now_ms() - self._oldest_ms(advances, batch_id)) / 1000,
                counters=_counted(acks),
            )
        )
        setup.pulse.sign()

    def commit_beginnings(self) -> None:
        """Commit where the sources begin, as an epoch without rows, once they know it; not while `work` runs.

        Before a source's first row is worked, and also where none comes: after a restart `latest` would be elsewhere.
        """
        positions, initials = self._known_positions(), self._setup.scratch.initials()
        if all(position.initial == initial for position, initial in zip(positions, initials, strict=True)):
            return
        begun = tuple(
            replace(position, initial=initial, previous=position.current)
            for position, initial in zip(positions, initials, strict=True)
        )
        nothing = tuple(ShardAck(Shard(shard)) for shard in range(self._setup.layout.shards))
        self._setup.writer.commit(EpochEdit(nothing, begun, self._last_batch, 0, self._setup.delays_us))

    def abort(self, reason: str) -> None:
        """Give up the epoch in work, from another thread: `work` raises soon."""
        job = self._job
        if job is not None:
            job.abort(reason)

    def _check_is_next(self, batch_id: int) -> None:
        """Spark must go on exactly where the manifest ends: anything else would lose rows or count them twice."""
        found = self._setup.scratch.offsets(batch_id - 1)
        if batch_id != self._last_batch + 1 or found != self._offsets:
            raise CheckpointDeclinedError(
                "Spark handed over another batch than the next one; nothing of it was committed. "
                f"batch={batch_id}, expected={self._last_batch + 1}, starts_at={found}, expected_at={self._offsets}"
            )

    def _acks(self, frame: DataFrame) -> tuple[ShardAck, ...]:
        """Have every shard do its part; one ACK of each, in order. Raises where the coordinator gives the epoch up."""
        setup = self._setup
        manifest, epoch = setup.writer.manifest, setup.writer.next_epoch
        order = EpochOrder(epoch, manifest.term, manifest.version, manifest.nonce)
        self._tell(Begin(epoch))
        self._job = EpochJob(frame, order, setup.layout, f"dagster-ckpt-{setup.clock.unique()}")
        try:
            outcome = self._job.run(setup.timeout_ms)
        finally:
            self._job = None
        for event in events_of(epoch, outcome, setup.layout):
            for effect in self._tell(event):
                match effect:
                    case CommitManifest(acks=acks):
                        return acks
                    case GiveUp(failure=failure):
                        raise self._error(outcome, error_of(epoch, failure)) from outcome.error
        raise AssertionError(f"the coordinator neither commits nor gives up. {epoch=}")

    def _error(self, outcome: JobOutcome, error: CheckpointError) -> CheckpointError:
        """What to raise for an epoch that was given up: trying again mends no damage and no release."""
        final = final_error(outcome.words)
        if final is None:
            return error
        # A file may be missing because another writer has retired it.
        self._setup.writer.check_term()
        return final

    def _commit(self, edit: EpochEdit) -> Manifest:
        epoch = self._setup.writer.next_epoch
        try:
            manifest = self._setup.writer.commit(edit)
        except CheckpointError as error:
            self._tell(CommitFailed(epoch, str(error)))
            raise
        self._tell(Committed(epoch))
        return manifest

    def _tell(self, event: Event) -> list[Effect]:
        self._coordinator, effects = step(self._coordinator, event)
        return effects

    def _known_positions(self) -> tuple[SourcePosition, ...]:
        return positions_by_source(self._setup.sources, self._setup.writer.manifest.sources)

    def _positions(self, advances: tuple[Advance, ...]) -> tuple[SourcePosition, ...]:
        return tuple(
            replace(
                position,
                previous=position.current,
                current=advance.current,
                files=IndexedList(position.files.index, (*position.files.tail, *advance.files)),
            )
            for position, advance in zip(self._known_positions(), advances, strict=True)
        )

    def _oldest_ms(self, advances: tuple[Advance, ...], batch_id: int) -> int:
        files = [file.modified_ms for advance in advances for file in advance.files]
        return min(files) if files else self._setup.scratch.batch_time_ms(batch_id)


def final_error(words: Iterable[Word]) -> CheckpointError | None:
    """What a shard declined for, where no later try can do better."""
    for word in words:
        if isinstance(word, ShardDecline) and word.error in _FINAL:
            return _FINAL[word.error](word.reason)
    return None


def _counted(acks: Iterable[ShardAck]) -> Mapping[str, int]:
    counted: Counter[str] = Counter()
    for ack in acks:
        counted.update(dict(ack.counters))
    return counted


def events_of(epoch: Epoch, outcome: JobOutcome, layout: Layout) -> Iterator[Event]:
    """What the coordinator is told of a job's outcome."""
    if outcome.silent is not None:
        shards = sorted({shard for task in outcome.silent for shard in task.shards})
        yield TimedOut(epoch, tuple(task.name for task in outcome.silent), tuple(shards))
    elif outcome.aborted is not None:
        yield Aborted(epoch, outcome.aborted)
    elif outcome.error is not None:
        yield ShardDeclined(epoch, None, "", outcome.reason)
    else:
        for word in _whole(outcome, layout):
            if isinstance(word, ShardAck):
                yield ShardAcked(epoch, word)
            else:
                yield ShardDeclined(epoch, word.shard, word.host, word.reason)
        yield JobEnded(epoch)


def _whole(outcome: JobOutcome, layout: Layout) -> Iterable[Word]:
    """A word for each shard. Only that of a shuffled stream's tasks can be missing, for each shard has one."""
    words = outcome.words
    if layout.tasks is not None and outcome.had_tasks:
        return words
    acks = merged(word for word in words if isinstance(word, ShardAck))
    absent = (ShardAck(Shard(shard)) for shard in range(layout.shards) if shard not in acks)
    return [*(word for word in words if isinstance(word, ShardDecline)), *acks.values(), *absent]
