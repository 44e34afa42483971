"""A Dagster run's process that writes the stream: the real protocol, driven as `runtime` drives it beside Spark."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, CheckpointTimeoutError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator import Coordinator, error_of
from dagster_ckpt.protocol.coordinator_events import (
    Begin,
    CommitFailed,
    CommitManifest,
    Committed,
    Effect,
    Event,
    GiveUp,
    JobEnded,
    Reset,
    ShardAcked,
    ShardDeclined,
    TimedOut,
    Work,
)
from dagster_ckpt.protocol.edits import EpochEdit
from dagster_ckpt.protocol.manifest import SourcePosition
from dagster_ckpt.storage.opening import Opening
from dagster_ckpt.storage.writer import StreamWriter, open_stream
from tests.simulation import threads
from tests.simulation.collecting import collect_again_and_again
from tests.simulation.job import consumed, position_after
from tests.simulation.tasks import Decline, Inflow, Order, Task, Word

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream

FAILURES_MAX = 3
BACKOFF_MS = 500
ATTEMPTS_MAX = 2


@dataclass
class Job:
    """One epoch's tasks. A word counts only if it is the first of its shard: Spark chooses one attempt."""

    shards: frozenset[Shard]
    changed: threads.Event
    words: dict[Shard, Word] = field(default_factory=dict)
    lost: bool = False

    def said(self, word: Word) -> None:
        self.words.setdefault(word.shard, word)
        if self.is_over:
            self.changed.set()

    def lose(self) -> None:
        """The executor has died."""
        self.lost = True
        self.changed.set()

    @property
    def is_over(self) -> bool:
        return self.words.keys() >= self.shards


class Driver:
    """Lives in `process`, and ends with it. What it raises at its end is why its Dagster run failed."""

    def __init__(self, stream: "SimulatedStream", process: "Process", opening: Opening) -> None:
        self.stream = stream
        self.world = world = stream.world
        self.process = process
        self.chance: Random = world.chance
        self.character = world.character
        self.clock = world.clock_of(process)
        self.store = stream.store_of(process)
        self.chain = stream.chain_of(process)
        self.opening = opening
        self.writer: StreamWriter
        self.coordinator = Coordinator(frozenset(), retained=1)
        self.executor: Process | None = None
        self.job: Job | None = None
        self.attempts = 0
        self.late_words: list[Event] = []

    def live(self) -> None:
        self.begin(open_stream(self.store, self.opening, self.clock))
        self.process.spawn("collector", lambda: collect_again_and_again(self.stream, self.process, self.term))
        failures = 0
        for _ in range(self.character.epochs_max):
            try:
                self.make_epoch()
                failures = 0
            except (StoreUnavailableError, CheckpointDeclinedError, CheckpointTimeoutError):
                failures += 1
                if failures > FAILURES_MAX:
                    raise
                self.clock.sleep_ms(BACKOFF_MS)
                self.start_again()
            self.clock.sleep_ms(self.character.epoch_pause_ms)
        self.writer.close("ended")

    def start_again(self) -> None:
        """What a restart of the query does: a new term."""
        self.begin(self.writer.reopen())

    def term(self) -> int:
        return self.writer.term

    def begin(self, writer: StreamWriter) -> None:
        """Go on with this writer."""
        self.stream.oracle.heard(writer.manifest)
        self.writer = writer
        self.tell(Reset(frozenset(map(Shard, range(writer.manifest.shards)))))

    def make_epoch(self) -> None:
        """One micro-batch, as `runtime.driver` makes an epoch of it."""
        writer = self.writer
        acks = self.acks()
        number, position = self.next_position()
        edit = EpochEdit(acks, (position,), batch_id=number, epoch_ms=1)
        epoch = writer.next_epoch
        try:
            manifest = writer.commit(edit)
        except CheckpointError as error:
            self.tell(CommitFailed(epoch, str(error)))
            raise
        self.stream.oracle.heard(manifest)
        self.tell(Committed(epoch))
        writer.check_term()
        self.stream.dagster.progressed()

    def finish(self) -> None:
        """All that there is to do at the end of the world."""
        self.make_epoch()

    def next_position(self) -> tuple[int, SourcePosition]:
        """The number of the batch to make, and where its source stands after it."""
        number = self.next_batch()
        return number, position_after(self.writer.manifest, number)

    def next_batch(self) -> int:
        return consumed(self.writer.manifest) + 1

    def acks(self) -> tuple[ShardAck, ...]:
        """Have every shard do its part. Raises where the coordinator gives the epoch up."""
        epoch = self.writer.next_epoch
        for effect in self.tell(Begin(epoch)):
            assert isinstance(effect, Work)
            self.job = self.run(effect)
        assert self.job is not None
        for event in self.events_of(epoch, self.job):
            for effect in self.tell(event):
                match effect:
                    case CommitManifest(acks=acks):
                        return acks
                    case GiveUp(failure=failure):
                        self.refuse_true_damage(self.job)
                        raise error_of(epoch, failure)
        raise CheckpointDeclinedError(f"its words were lost. {epoch=}")

    def run(self, work: Work) -> Job:
        """Run the tasks of an epoch until each shard has had its word, the executor has died, or time is over."""
        manifest = self.writer.manifest
        order = Order(work.epoch, manifest.term, manifest.version, manifest.nonce)
        job = Job(work.shards, self.world.threads.Event())
        executor = self.living_executor()
        executor.on_end.append(job.lose)
        for shard in sorted(work.shards):
            attempts = 2 if self.chance.random() < self.character.faults.speculation else 1
            for _ in range(attempts):
                self.start_task(executor, job, order, shard)
        job.changed.wait(self.character.timeout_ms / 1000)
        executor.on_end.remove(job.lose)
        return job

    def start_task(self, executor: "Process", job: Job, order: Order, shard: Shard) -> None:
        self.attempts += 1
        world = self.world
        task = Task(
            self.stream.chain_of(executor),
            world.root_of(executor),
            world.parts.create,
            self.character,
            self.chance,
            world.calm,
            order,
            shard,
            self.attempts,
            self.inflow(executor),
        )
        executor.spawn(f"task-{order.epoch}-{shard}-{self.attempts}", lambda: job.said(task.work()))

    def inflow(self, executor: "Process") -> Inflow | None:
        """What tasks of that executor work on instead of the job's own batches."""
        return None

    def living_executor(self) -> "Process":
        if self.executor is None or not self.executor.alive:
            self.executor = self.world.process("executor")
            if self.chance.random() < 0.7:  # a worker mostly dies with its driver; else what it does is nobody's
                executor = self.executor
                self.process.on_end.append(executor.end)
        return self.executor

    def events_of(self, epoch: Epoch, job: Job) -> Iterator[Event]:
        """What the coordinator hears: in any order, doubled, too late, or never."""
        faults, chance = self.character.faults, self.chance
        late, self.late_words = self.late_words, []
        yield from late
        if job.lost:
            yield ShardDeclined(epoch, None, "", "the executor was lost")
            return
        if not job.is_over:
            yield TimedOut(epoch)
            return
        words: list[Event] = [
            ShardAcked(epoch, word) if isinstance(word, ShardAck) else ShardDeclined(epoch, word.shard, "", word.reason)
            for word in job.words.values()
        ]
        chance.shuffle(words)
        for word in words:
            drawn = chance.random()
            if drawn < faults.late_word:
                self.late_words.append(word)
            if drawn >= faults.lost_word or self.world.calm:
                yield word
            if chance.random() < faults.double_word and not self.world.calm:
                yield word
        yield JobEnded(epoch)

    def refuse_true_damage(self, job: Job) -> None:
        """A file may be missing because another writer has retired it; else something is wrong."""
        final = [word for word in job.words.values() if isinstance(word, Decline) and word.final]
        if final:
            self.writer.check_term()
            raise AssertionError(f"the newest writer misses what it named: {final[0].reason}")

    def tell(self, event: Event) -> list[Effect]:
        self.coordinator, effects = self.world.parts.step(self.coordinator, event)
        return effects
