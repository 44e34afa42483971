"""A stream that was opened, as its queries get it, and what each of them is made of."""

import logging
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from dagster_ckpt.protocol.coordinator.checkpoint_coordinator import CheckpointCoordinator
from dagster_ckpt.protocol.manifest.codec import FILE_SEEN, FILES_SEEN
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.protocol.transitions.step_changes import StepChange
from dagster_ckpt.runtime.catalyst.physical_plan import read_once
from dagster_ckpt.runtime.declared.sources import positions_by_source
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_checks import (
    CheckedStream,
    event_time_columns,
    initial_rows,
    plan_stages,
    reader_text,
)
from dagster_ckpt.runtime.driver.stream_job import StreamJob
from dagster_ckpt.runtime.driver.terms import Terms
from dagster_ckpt.runtime.kafka.topics import Topics
from dagster_ckpt.runtime.lag.source_lags import SourceLags
from dagster_ckpt.runtime.micro_batch.batch_pieces import ArrowInputs
from dagster_ckpt.runtime.micro_batch.epoch_driver import CommittedEpoch
from dagster_ckpt.runtime.micro_batch.epoch_plans import Shuffled
from dagster_ckpt.runtime.micro_batch.executor_files import ExecutorFiles
from dagster_ckpt.runtime.micro_batch.seen_files import current_spelling
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint, build_checkpoint, query_conf
from dagster_ckpt.runtime.spark.package_archive import archive_name
from dagster_ckpt.runtime.spark.session import is_local, task_slots
from dagster_ckpt.runtime.spark.wide_rows import limit_batches, plan_wide_rows
from dagster_ckpt.runtime.task.dataflow import (
    Stage,
    on_initial,
    rows_of_sources,
    shard_replies,
    shard_replies_of_own_epoch,
)
from dagster_ckpt.runtime.task.epoch_task import GroupedBy, Replies, ReplyAccumulator, TaskSetup
from dagster_ckpt.runtime.task.row_intake import NULL_ROWS
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.upstreams.upstreams import Upstreams
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.storage.chain.indexed_lists import IndexedLists
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.ancestors import with_ancestors
from dagster_ckpt.storage.stores.object_store import ObjectStore

_LOG = logging.getLogger(__name__)

_NULLS = (
    "rows have nothing but nulls, as Spark makes them of malformed records (mode PERMISSIVE). They count like any "
    "other row; this is said once. To keep such records apart, see the page on reading files. rows=%s, epoch=%s, "
    "asset=%s"
)


@dataclass
class NullRowsWarning:
    """Warns once a run of rows that have nothing but nulls."""

    asset: str
    _given: bool = field(default=False, init=False)

    def warn_once(self, epoch: CommittedEpoch) -> None:
        if (rows := epoch.counters.get(NULL_ROWS, 0)) and not self._given:
            self._given = True
            _LOG.warning(_NULLS, rows, epoch.manifest.epoch, self.asset)


@dataclass(frozen=True)
class OpenStream:
    """What all queries of a run share. `root` is the store, `replies` takes the replies of all steps but the last.

    `files` checks the replies of other hosts, where it must.
    """

    job: StreamJob
    checked: CheckedStream
    root: ObjectStore
    terms: Terms
    coordinator: CheckpointCoordinator
    upstreams: Upstreams
    topics: Topics
    lags: SourceLags
    replies: ReplyAccumulator
    files: ExecutorFiles | None
    nulls: NullRowsWarning
    by_arrow: ArrowInputs

    @classmethod
    def of(cls, job: StreamJob, checked: CheckedStream, root: ObjectStore, terms: Terms) -> "OpenStream":
        """That of a stream whose writer has just opened it."""
        run, session, writer = terms.run, job.stream.frame.sparkSession, terms.writer
        steps, coordination = len(checked.dataflow.operators), job.options.coordination
        topics = Topics(job.asset, checked.sources, session, run.hooks.on_skipped)
        inputs = checked.arrow_inputs(job)
        _LOG.info("%s. stream=%s", reader_text(inputs), job.asset)
        far = job.address.is_shared_folder and not is_local(session)
        return cls(
            job=job,
            checked=checked,
            root=root,
            terms=terms,
            coordinator=CheckpointCoordinator(writer.manifest.shards, coordination, run.clock.monotonic_ms(), steps),
            upstreams=Upstreams(job.asset, checked.sources, root, ManifestChain(writer.store, run.clock)),
            topics=topics,
            lags=SourceLags(checked.sources, session, root, topics, run.clock),
            replies=session.sparkContext.accumulator([], Replies()),
            files=ExecutorFiles(writer.store) if far else None,
            nulls=NullRowsWarning(job.asset),
            by_arrow=ArrowInputs(job.asset, () if isinstance(inputs, str) else inputs),
        )

    @property
    def session(self) -> SparkSession:
        """The stream's session of Spark."""
        return self.job.stream.frame.sparkSession

    def build_checkpoint(self) -> SparkCheckpoint:
        """Spark's checkpoint folder, from the newest manifest."""
        manifest, session, sources = self.terms.manifest, self.session, self.checked.sources
        positions, clock = positions_by_source(sources, manifest), self.terms.run.clock
        store = with_ancestors(self.terms.writer.store, self.root, manifest.ancestors)
        lists = IndexedLists(store, FILES_SEEN, clock)
        files = {
            index: current_spelling(
                self.job.asset, lists.columns(position.files, FILE_SEEN), position.moved, source, session
            )
            for index, (source, position) in enumerate(zip(sources, positions, strict=True))
            if source.reads_files
        }
        return build_checkpoint(sources, positions, files, manifest.batch_id, query_conf(session), clock.unique())

    def stages(self, shuffled: Shuffled, by: GroupedBy = GroupedBy.SPARK) -> tuple[Stage, ...]:
        """The stages of an epoch whose first step gets its rows in this way, groups made by one or the other."""
        job, session, shards = self.job, self.session, self.terms.manifest.shards
        tasks_max = job.options.tasks_max or task_slots(session)
        keyed, unkeyed = ShardAssignment.keyed(shards, tasks_max), ShardAssignment.unkeyed(shards)

        def assignment(number: int) -> ShardAssignment:
            if number == 0 and shuffled is Shuffled.FEW_GROUPS:
                return ShardAssignment.keyed(shards, 1)
            return keyed if self.checked.dataflow.operators[number].pipeline.shuffles else unkeyed

        def setup(number: int, step: Stream) -> TaskSetup:
            return TaskSetup(
                address=job.address,
                folder=job.folder,
                assignment=assignment(number),
                event_times=event_time_columns(step),
                engine=job.options.engine,
                code=step.code,
                step=number,
                grouped=by if number == 0 and shuffled is not Shuffled.ROWS else None,
                package=None if is_local(session) else archive_name(session.sparkContext),
            )

        return plan_stages(self.checked, setup)

    def first_epoch(self, stages: tuple[Stage, ...]) -> DataFrame:
        """The replies of the first epoch, of the rows of tables that the stream begins with."""
        return shard_replies(on_initial(stages, initial_rows(self.checked)), self.replies, read_once)

    def epoch_without_input(self, stages: tuple[Stage, ...]) -> DataFrame:
        """The replies of an epoch that emits what waits for the watermark."""
        return shard_replies_of_own_epoch(self.session, stages, self.replies, read_once)

    def first_epoch_of_steps(self, stages: tuple[Stage, ...], steps: Pipeline, change: StepChange) -> DataFrame:
        """The replies of the epoch in which changed steps begin with the tables of those before them."""
        changed = [replace(stage, setup=replace(stage.setup, changed=steps)) for stage in stages]
        return shard_replies_of_own_epoch(self.session, changed, self.replies, read_once, change.kept)

    def settle(self) -> None:
        """Settle what Spark plans for rows of this width."""
        options, session = self.job.options, self.session
        steps = [operator.pipeline for operator in self.checked.dataflow.operators]
        chunk_bytes = MemoryBudget(options.engine.memory_limit_bytes).chunk_bytes
        inputs = [source.schema for step in steps for source in step.inputs]
        keys = [step.inputs[0].schema.field(key).type for step in steps for key in step.keys]
        limit_batches(session, inputs, keys, chunk_bytes)
        plan_wide_rows(session, inputs)

    def stream_writer(self, stages: tuple[Stage, ...], location: str) -> DataStreamWriter:
        """The query over the sources, with its checkpoint folder."""
        writer = rows_of_sources(stages).writeStream.queryName(self.job.asset).option("checkpointLocation", location)
        interval_ms = self.coordinator.interval_ms
        if interval_ms is None:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{interval_ms} milliseconds")
