"""A Dagster run's process that writes the stream: the real protocol, driven as `runtime` drives it beside Spark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from dagster_ckpt.errors import CheckpointDeclinedError, CheckpointError, CheckpointTimeoutError, StoreUnavailableError
from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.coordinator.coordinator import Coordinator, failure_error
from dagster_ckpt.protocol.coordinator.coordinator_events import (
    Begin,
    BeginWithoutWork,
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
    StartWork,
    TimedOut,
)
from dagster_ckpt.protocol.manifest.manifest import Pipeline, SourcePosition
from dagster_ckpt.protocol.transitions.edits import EpochEdit
from dagster_ckpt.storage.writer.opening import Opening
from dagster_ckpt.storage.writer.stream_writer import StreamWriter, open_stream
from tests.simulation import threads
from tests.simulation.collecting import collect_again_and_again
from tests.simulation.job import Sums, consumed, position_after
from tests.simulation.stages import run_steps
from tests.simulation.tasks import Decline, Inflow, Order, Task, Word
from tests.worlds.manifests import SOURCE

if TYPE_CHECKING:
    from tests.simulation.scheduler import Process
    from tests.simulation.stream import SimulatedStream

FAILURES_MAX = 3
BACKOFF_MS = 500
CALM_PAUSE_MS = 10_000
"""Between epochs where only recovery is of interest."""
ATTEMPTS_MAX = 2
QUIET = 0.3
REPLACED = 0.5
"""How likely a straggler's reply of an earlier epoch, in one of several steps, comes in the place of the true one."""


@dataclass
class Job:
    """One epoch's tasks. A word counts only if it is the first of its shard: Spark chooses one attempt.

    Of several steps: `words` are those of the step in work, `emitted` its changes, `of_earlier` the words of the steps
    before. `repeated`: some of them have come from two runs of a stage.
    """

    shards: frozenset[Shard]
    changed: threads.Event
    words: dict[Shard, Word] = field(default_factory=dict)
    lost: bool = False
    emitted: dict[Shard, Sums] = field(default_factory=dict)
    of_earlier: list[Word] = field(default_factory=list)
    repeated: bool = False

    def said(self, word: Word, emitted: Sums) -> None:
        if word.shard not in self.words:
            self.words[word.shard], self.emitted[word.shard] = word, emitted
        if self.is_over:
            self.changed.set()

    def next_stage(self, changed: threads.Event, shards: frozenset[Shard]) -> None:
        """Begin the next step, or again a step for these shards."""
        self.of_earlier += self.words.values()
        self.shards, self.changed, self.words, self.emitted = shards, changed, {}, {}

    @property
    def all_words(self) -> list[Word]:
        return [*self.of_earlier, *self.words.values()]

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

    def live(self, on_open: Callable[[], None]) -> None:
        self.begin(open_stream(self.store, self.opening, self.clock))
        on_open()
        self.process.spawn("collector", lambda: collect_again_and_again(self.stream, self.process, self.term))
        failures, is_open = 0, True
        for _ in range(self.character.epochs_max):
            try:
                if not is_open:
                    self.start_again()
                    is_open = True
                self.restart_changed_steps()
                self.make_quiet_epochs()
                self.make_epoch()
                failures = 0
            except (StoreUnavailableError, CheckpointDeclinedError, CheckpointTimeoutError):
                failures += 1
                if failures > FAILURES_MAX:
                    raise
                is_open = False
                self.clock.sleep_ms(BACKOFF_MS)
            self.clock.sleep_ms(CALM_PAUSE_MS if self.world.calm else self.character.epoch_pause_ms)
        self.world.dagster.closes()
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
        pipeline = writer.changed_pipeline or writer.manifest.pipeline
        self.coordinator = replace(self.coordinator, steps=len(pipeline.steps))
        self.tell(Reset(frozenset(map(Shard, range(writer.manifest.shards)))))

    def make_epoch(self) -> None:
        """One micro-batch, as `runtime.driver.epoch_driver` makes an epoch of it."""
        acks = self.acks()
        number, position = self.next_position()
        self.commit(EpochEdit(acks, (position,), batch_id=number, epoch_ms=1, delays_us=self.delays_us))

    def restart_changed_steps(self) -> None:
        """The first epoch of other steps, if there are any: it reads no source, and those begin with kept tables."""
        pipeline = self.writer.changed_pipeline
        if pipeline is None:
            return
        manifest = self.writer.manifest
        edit = EpochEdit(
            self.acks(changed=pipeline),
            manifest.sources,
            batch_id=manifest.batch_id or 0,
            epoch_ms=1,
            delays_us=self.delays_us,
            ran_tasks=False,
        )
        self.commit(edit, pipeline)
        self.stream.oracle.counts["changes of steps"] += 1

    @property
    def delays_us(self) -> tuple[int | None, ...]:
        return (0,) if self.character.quiet else ()

    def make_quiet_epochs(self) -> None:
        """Epochs of the driver's own, now and then: where sources begin, for a watermark that moves without a row."""
        if not self.character.quiet or self.stream.upstream is not None:
            return
        if not self.writer.manifest.sources:
            self.commit_without_work((SourcePosition(SOURCE, initial='{"logOffset":0}'),))
        elif self.chance.random() < QUIET:
            watermark_us = self.writer.manifest.watermark_us or 0
            self.commit_without_work(self.writer.manifest.sources, watermark_us + self.chance.randrange(2_000_000))
        if self.chance.random() < QUIET:
            self.harvest_if_due()

    def harvest_if_due(self) -> None:
        if self.is_due:
            manifest = self.writer.manifest
            acks = self.acks(reads=False)
            edit = EpochEdit(
                acks, manifest.sources, batch_id=manifest.batch_id or 0, epoch_ms=1, delays_us=self.delays_us
            )
            self.commit(edit)

    @property
    def is_due(self) -> bool:
        manifest = self.writer.manifest
        return manifest.harvested_us != manifest.watermark_us

    def commit_without_work(self, sources: tuple[SourcePosition, ...], at_least_us: int | None = None) -> None:
        manifest = self.writer.manifest
        [effect] = self.tell(BeginWithoutWork(self.writer.next_epoch))
        assert isinstance(effect, CommitManifest)
        acks = effect.acks
        self.commit(self.without_work(EpochEdit(acks, sources, manifest.batch_id or 0, 0, at_least_us=at_least_us)))

    def without_work(self, edit: EpochEdit) -> EpochEdit:
        return replace(edit, delays_us=self.delays_us, ran_tasks=False)

    def commit(self, edit: EpochEdit, pipeline: Pipeline | None = None) -> None:
        writer, epoch = self.writer, self.writer.next_epoch
        try:
            manifest = writer.commit(edit, pipeline)
        except CheckpointError as error:
            self.tell(CommitFailed(epoch, str(error)))
            raise
        self.stream.oracle.heard(manifest)
        self.tell(Committed(epoch))
        writer.check_term()
        self.world.dagster.progressed()

    def finish(self) -> None:
        """All that there is to do at the end of the world. Where something is due, that is all that comes."""
        self.restart_changed_steps()
        if self.character.quiet and consumed(self.writer.manifest):
            self.harvest_if_due()
        else:
            self.make_epoch()
            if self.character.quiet:
                self.harvest_if_due()

    def next_position(self) -> tuple[int, SourcePosition]:
        """The number of the batch to make, and where its source stands after it."""
        number = self.next_batch()
        return number, position_after(self.writer.manifest, number)

    def next_batch(self) -> int:
        return consumed(self.writer.manifest) + 1

    def acks(self, *, reads: bool = True, changed: Pipeline | None = None) -> tuple[ShardAck, ...]:
        """Have every shard do its part. Raises where the coordinator gives the epoch up."""
        epoch = self.writer.next_epoch
        for effect in self.tell(Begin(epoch)):
            assert isinstance(effect, StartWork)
            self.job = self.run(effect, reads=reads, changed=changed)
        assert self.job is not None
        for event in self.events_of(epoch, self.job):
            for effect in self.tell(event):
                match effect:
                    case CommitManifest(acks=acks):
                        return acks
                    case GiveUp(failure=failure):
                        self.refuse_true_damage(self.job)
                        raise failure_error(epoch, failure)
        raise CheckpointDeclinedError(f"its words were lost. {epoch=}")

    def run(self, work: StartWork, *, reads: bool, changed: Pipeline | None = None) -> Job:
        """Run the tasks of an epoch until each shard has had its word, the executor has died, or time is over."""
        manifest = self.writer.manifest
        if changed is None:
            self.stream.oracle.worked.add((manifest.term, work.epoch))
        order = Order(work.epoch, manifest.term, manifest.version, manifest.nonce, reads, changed)
        job = Job(work.shards, self.world.threads.Event())
        executor = self.living_executor()
        executor.on_end.append(job.lose)
        if manifest.pipeline.before:
            run_steps(self, executor, job, order)
        else:
            for shard in sorted(work.shards):
                attempts = 2 if self.chance.random() < self.character.faults.speculation else 1
                for _ in range(attempts):
                    self.start_task(executor, job, order, shard)
            job.changed.wait(self.character.timeout_ms / 1000)
        executor.on_end.remove(job.lose)
        return job

    def start_task(
        self,
        executor: "Process",
        job: Job,
        order: Order,
        shard: Shard,
        step: int = 0,
        changes: Sums | None = None,
        *,
        fails: bool = False,
    ) -> None:
        """Begin an attempt. `fails`: Spark takes nothing of what it gives in the end."""
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
            step,
            changes,
        )

        def work() -> None:
            word = task.work()
            if not fails and words is job.words:  # else a straggler of an earlier stage
                job.said(word, task.emitted)

        words = job.words
        executor.spawn(f"task-{order.epoch}-{shard}-{self.attempts}", work)

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
            for word in job.all_words
        ]
        chance.shuffle(words)
        stragglers = {_part(word) for word in late} - {None} if self.writer.manifest.pipeline.before else set()
        for word in words:
            drawn = -1.0 if _part(word) in stragglers and chance.random() < REPLACED else chance.random()
            if drawn < faults.late_word:
                self.late_words.append(word)
            # Of a stage that ran twice both replies arrive: Spark loses none of a task that has succeeded.
            if drawn >= faults.lost_word or self.world.calm or job.repeated:
                yield word
            if chance.random() < faults.double_word and not self.world.calm:
                yield word
        yield JobEnded(epoch)

    def refuse_true_damage(self, job: Job) -> None:
        """A file may be missing because another writer has retired it; else something is wrong."""
        final = [word for word in job.all_words if isinstance(word, Decline) and word.final]
        if final:
            self.writer.check_term()
            raise AssertionError(f"the newest writer misses what it named: {final[0].reason}")

    def tell(self, event: Event) -> list[Effect]:
        self.coordinator, effects = self.world.parts.step(self.coordinator, event)
        return effects


def _part(event: Event) -> tuple[int, Shard] | None:
    """The step and the shard of a reply."""
    return (event.ack.step, event.ack.shard) if isinstance(event, ShardAcked) else None
