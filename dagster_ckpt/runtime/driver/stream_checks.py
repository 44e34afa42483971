"""Checks of a stream before anything is opened or written."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from dagster_ckpt.errors import InvalidPipelineError, naming
from dagster_ckpt.ids import EMPTY
from dagster_ckpt.operators.local_aggregate import local_aggregate
from dagster_ckpt.operators.partial_aggregate import can_be_partial, partial_aggregate
from dagster_ckpt.operators.since_now import begins_now, former, resolve_since
from dagster_ckpt.protocol.epochs.upstream import FORMAT as UPSTREAM
from dagster_ckpt.protocol.manifest.manifest import (
    InitialTable,
    InputSpec,
    Manifest,
    Pipeline,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.transitions.later_columns import beginning_after
from dagster_ckpt.protocol.transitions.renamed_columns import has_swapped_since, uses_old_names
from dagster_ckpt.protocol.transitions.source_moves import Moves, positions_gone_on
from dagster_ckpt.runtime.catalyst.physical_plan import read_once
from dagster_ckpt.runtime.catalyst.query_plan import analysed_plan, check_streams, leaves, refuse_stateful_steps
from dagster_ckpt.runtime.catalyst.values import Node
from dagster_ckpt.runtime.declared.arrow_plan import find_arrow_work
from dagster_ckpt.runtime.declared.arrow_scan import SourceWork, file_scan, source_work
from dagster_ckpt.runtime.declared.function_digests import Digests, function_digests
from dagster_ckpt.runtime.declared.pipeline import Dataflow, build_dataflow
from dagster_ckpt.runtime.declared.renaming import rename, with_files
from dagster_ckpt.runtime.declared.sources import StreamSource, identify_sources, spell_moves
from dagster_ckpt.runtime.declared.step_operator import check_initial
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import StreamJob
from dagster_ckpt.runtime.micro_batch.batch_pieces import ScannedInput
from dagster_ckpt.runtime.micro_batch.initial_tables import describe_table, refuse_other_tables
from dagster_ckpt.runtime.spark.session import is_session_of_a_stream
from dagster_ckpt.runtime.task.arrow_work import ArrowWork, LeftToSparkError
from dagster_ckpt.runtime.task.dataflow import Stage, shard_replies, union_inputs
from dagster_ckpt.runtime.task.epoch_task import GroupedBy, Replies, TaskSetup
from dagster_ckpt.runtime.task.file_scan import FileScan
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment
from dagster_ckpt.runtime.upstreams.log_scan import LogScan, log_scan
from dagster_ckpt.storage.chain.damaged_end import newest_known
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.stores.address import check_reach
from dagster_ckpt.storage.writer.opening import Opening, manifest_to_show

_LOG = logging.getLogger(__name__)

IGNORED_WATERMARK = (
    "withWatermark in a query lets no state go: its table is right however late a row comes, and its state grows; "
    "where it must not, write the step with Stream(...).with_watermark(...)"
)


@dataclass(frozen=True)
class CheckedStream:
    """A stream that passed the checks, as it runs."""

    stream: Stream
    sources: tuple[StreamSource, ...]
    dataflow: Dataflow

    @cached_property
    def readers(self) -> Counter[int | None]:
        """How many inputs read each step."""
        return Counter(each.step for operator in self.dataflow.operators for each in operator.pipeline.inputs)

    @property
    def sources_after_tables(self) -> frozenset[SourceIdentity]:
        """The sources of the inputs that begin with a table (`initial`)."""
        return frozenset(source for _, sources in self._tables for source in sources)

    def describe_tables(self, needed: AbstractSet[SourceIdentity]) -> dict[SourceIdentity, InitialTable]:
        """What the table before each of these sources is now, where there is one. Reads all of it."""
        return {
            source: described
            for table, sources in self._tables
            if not needed.isdisjoint(sources)
            for described in [describe_table(table)]
            for source in sources
        }

    @property
    def _tables(self) -> list[tuple[DataFrame, frozenset[SourceIdentity]]]:
        read = zip(self.stream.sources, self.dataflow.pipeline.source_inputs, strict=True)
        return [(stream.table, frozenset(each.sources)) for stream, each in read if stream.table is not None]

    @cached_property
    def functions(self) -> Digests:
        """The digests of the user's functions."""
        return function_digests(self.stream)

    @property
    def begins_now(self) -> bool:
        """Whether an aggregate has `since="now"`."""
        return any(begins_now(operator.pipeline) for operator in self.dataflow.operators)

    @cached_property
    def works(self) -> tuple[tuple[ArrowWork, ...] | None, ...]:
        """What is done with the changes that each step reads, if the tasks of earlier steps can do all of it."""
        steps = zip(self.stream.steps, self.dataflow.operators, strict=True)
        return tuple(_arrow_works(step, operator.pipeline, self.readers) for step, operator in steps)

    def arrow_inputs(self, job: StreamJob | None) -> "tuple[ScannedInput, ...] | str":
        """The inputs that read sources, where Arrow reads them; else why Spark does.

        `job` runs it; None where it has no store, and so no upstreams.
        """
        try:
            return tuple(self._arrow_inputs(job))
        except LeftToSparkError as reason:
            return str(reason)

    def _arrow_inputs(self, job: StreamJob | None) -> Iterator[ScannedInput]:
        by_identity = {source.identity: source for source in self.sources}
        for number, (step, operator) in enumerate(zip(self.stream.steps, self.dataflow.operators, strict=True)):
            pipeline = operator.pipeline
            read = [each.step is None for each in pipeline.inputs]
            if any(read) and not all(read):
                raise LeftToSparkError("a step reads a source and another step")
            if any(read) and not pipeline.shuffles and len(self.dataflow.operators) > 1:
                raise LeftToSparkError("one of several steps has no key")
            for place, (stream, spec) in enumerate(zip(step.inputs, pipeline.inputs, strict=True)):
                if spec.step is None:
                    found = source_work(stream.frame, spec.schema.names)
                    [identity] = spec.sources
                    scan = _scan(found, stream, job)
                    yield ScannedInput(number, place, by_identity[identity], scan, found.leaf.relation.java)


def _scan(found: SourceWork, stream: Stream, job: StreamJob | None) -> FileScan | LogScan:
    if found.source.format == UPSTREAM and job is not None:
        return log_scan(found, job.address, job.folder)
    return file_scan(found, stream.frame.sparkSession)


def reader_text(inputs: "tuple[ScannedInput, ...] | str") -> str:
    """Who reads the rows of sources, and why, for people."""
    return f"Spark reads the rows: {inputs}" if isinstance(inputs, str) else "Arrow reads the sources"


def check_stream(job: StreamJob) -> CheckedStream:
    """Return the stream with its sources and operator. Raises `InvalidPipelineError` before anything is started."""
    running, plans = _analyse(job.asset, job.stream)
    session = running.frame.sparkSession
    scheme = job.address.url.split(":", maxsplit=1)[0]
    if scheme == "memory":
        raise InvalidPipelineError(
            f"Spark's workers are other processes and cannot reach a memory: store. asset={job.asset}"
        )
    with naming(asset=job.asset):
        check_reach(job.address.url, job.address.options, str(session.sparkContext.master))
    checked = _plan(job.asset, running, plans)
    for each in running.all_ignored_watermarks:
        _LOG.warning("%s. stream=%s, watermark=%s", IGNORED_WATERMARK, job.asset, each)
    _check_plan(job, checked)
    return checked


def plan_stream(asset: str, stream: object) -> CheckedStream:
    """The stream with its sources and operators, whatever store it will have.

    Raises `InvalidPipelineError` for what is no stream, and for one that cannot be kept up to date.
    """
    return _plan(asset, *_analyse(asset, stream))


def _analyse(asset: str, stream: object) -> tuple[Stream, Sequence[Node]]:
    """The stream as it runs, and Spark's plan of each of its inputs."""
    if not isinstance(stream, Stream):
        raise InvalidPipelineError(
            "a streaming asset's function returns a Stream: write Stream(df). "
            f"asset={asset}, returned={type(stream).__name__}"
        )
    running = stream.with_mirror()
    inputs = running.sources
    plans = [analysed_plan(asset, each.frame) for each in inputs]
    session = running.frame.sparkSession
    for each in inputs:
        # One session that `open_session` made, for all inputs: one query reads them.
        own = each.frame.sparkSession
        if own._jsparkSession != session._jsparkSession or not is_session_of_a_stream(own):  # noqa: SLF001  (no other way)
            raise InvalidPipelineError(
                "the DataFrame was made with another SparkSession, or one whose settings were changed: make it from "
                f"the `spark` that the asset's function is given, as it is. asset={asset}"
            )
        if each.initial is not None:
            check_initial(asset, each.frame, each.initial)
    return running, plans


def _plan(asset: str, running: Stream, plans: Sequence[Node]) -> CheckedStream:
    for plan in plans:
        refuse_stateful_steps(asset, plan)
    of_inputs = [leaves(plan) for plan in plans]
    together = of_inputs[0]
    if len(plans) > 1:
        # Numbered as Spark numbers them in the plan that runs, where an input may read what another reads too.
        together = leaves(analysed_plan(asset, union_inputs([each.frame for each in running.sources])))
    sources = identify_sources(asset, running.frame.sparkSession, together)
    identities = _by_input(sources, list(map(len, of_inputs)))
    return CheckedStream(running, sources, build_dataflow(asset, running, identities))


def as_stored(checked: CheckedStream, chain: ManifestChain, job: StreamJob, moves: Moves = ()) -> CheckedStream:
    """The stream with what its manifests decide: the names in its state and files, and what begins now.

    Raises `InvalidPipelineError` for a rename that cannot be meant, or an epoch that it cannot go back to.
    """
    end, asset, renames = chain.end(), job.asset, job.renamed
    newest = None if end is None else newest_known(end)
    opening = job.opening(checked.dataflow.pipeline)
    shown = None if newest is None else manifest_to_show(chain, newest, opening)
    if newest is not None and opening.from_epoch is None:
        _warn_of_late_tables(asset, checked, newest)
    if newest is not None and (shown is None or shown.epoch == EMPTY):
        check_tables(asset, checked, positions_gone_on(newest.sources, checked.dataflow.pipeline, moves))
    named_by = newest if shown is None or newest is None else _choose_names(checked.dataflow.pipeline, shown, newest)
    stored = None if named_by is None or named_by.epoch == EMPTY else named_by.pipeline
    stream, dataflow = rename(asset, checked.stream, checked.dataflow, stored, renames)
    checked = replace(checked, stream=stream, dataflow=dataflow)
    if checked.begins_now:
        checked = _with_beginnings(checked, shown, newest)
    return checked if stored is None else replace(checked, dataflow=with_files(checked.dataflow, stored, renames))


def open_as_stored(checked: CheckedStream, chain: ManifestChain, job: StreamJob) -> tuple[CheckedStream, Opening]:
    """The stream as `as_stored` has it, and how its writer opens. Raises as that does."""
    moves = spell_moves(job.asset, job.stream.frame.sparkSession, job.moved)
    checked = as_stored(checked, chain, job, moves)
    timed = frozenset(number for number, step in enumerate(checked.stream.steps) if any(event_time_columns(step)))
    return checked, replace(job.opening(checked.dataflow.pipeline), moves=moves, timed_steps=timed)


def check_tables(asset: str, checked: CheckedStream, positions: Sequence[SourcePosition]) -> None:
    """Raise `InvalidPipelineError` where a table, which a stream with these positions has begun with, differs now."""
    then = {each.source: each.table for each in positions if each.table is not None}
    refuse_other_tables(asset, then, checked.describe_tables(then.keys() & checked.sources_after_tables))


def _choose_names(code: Pipeline, shown: Manifest, newest: Manifest) -> Manifest:
    """The manifest by whose names the columns of the code are known, where a stream goes on with `shown`.

    The newest one remembers all names, but neither those of a state in whose place a rebuilt one came, nor what a name
    was before it became another column's.
    """
    is_old = has_swapped_since(shown, newest) or uses_old_names(code, shown.pipeline, newest.pipeline)
    return shown if is_old else newest


def _warn_of_late_tables(asset: str, checked: CheckedStream, newest: Manifest) -> None:
    without = {each.source for each in newest.sources if not each.after_table} & checked.sources_after_tables
    if newest.epoch != EMPTY and without:
        _LOG.warning(
            "its `initial` table is not read, since the stream has begun without it: go back to epoch 0 "
            "(from_epoch: 0) to begin with it. stream=%s, sources=%s",
            asset,
            sorted(each.address or each.format for each in without),
        )


def _with_beginnings(checked: CheckedStream, shown: Manifest | None, newest: Manifest | None) -> CheckedStream:
    """The stream with `since="now"` as the epoch after which an aggregate begins.

    What an aggregate has counted so far is in `shown`, the epoch that the stream goes on with. If it goes back to one,
    the newest manifest has the state of another life, or of another stream where a rebuilt one has taken over.
    """
    before = () if shown is None or shown.epoch == EMPTY else shown.pipeline.steps
    beginning = beginning_after(shown, newest)
    pairs = enumerate(zip(checked.stream.steps, checked.dataflow.operators, strict=True))
    operators = tuple(
        resolve_since(operator, step.code, former(before, number, operator.pipeline), beginning)
        for number, (step, operator) in pairs
    )
    return replace(checked, dataflow=Dataflow(operators))


def initial_rows(checked: CheckedStream) -> list[DataFrame]:
    """The rows that the stream begins with, of each input that reads a source: none of one without `initial`."""
    return [
        each.frame.sparkSession.createDataFrame([], each.frame.schema) if each.initial is None else each.initial
        for each in checked.stream.sources
    ]


def plan_stages(checked: CheckedStream, setup: Callable[[int, Stream], TaskSetup]) -> tuple[Stage, ...]:
    """The steps in Spark's plan; `setup` makes what the tasks of a step get."""
    steps = checked.stream.steps
    return tuple(
        Stage(
            operator.pipeline,
            of_step,
            tuple(map(_frame_maker, step.inputs, operator.pipeline.inputs)),
            shared=checked.readers[number] > 1,
            works=checked.works[number],
            partial=partial_aggregate(operator) if of_step.grouped is GroupedBy.SPARK else None,
            local=local_aggregate(operator) if of_step.grouped is GroupedBy.ARROW else None,
        )
        for number, (step, operator, of_step) in enumerate(
            zip(steps, checked.dataflow.operators, map(setup, range(len(steps)), steps), strict=True)
        )
    )


def can_aggregate_before(checked: CheckedStream) -> bool:
    """Whether Spark can aggregate the rows of the first step before it shuffles them, into as many parts as tasks.

    That number is a setting for all that is planned with it, so Spark must have nothing else to shuffle or to join.
    """
    return can_be_partial(checked.dataflow.operators[0]) and all(works is not None for works in checked.works[1:])


def can_group_where_read(checked: CheckedStream) -> bool:
    """Whether the tasks that read files can group the rows of the first step."""
    return local_aggregate(checked.dataflow.operators[0]) is not None


def _arrow_works(step: Stream, pipeline: Pipeline, read: Mapping[int | None, int]) -> tuple[ArrowWork, ...] | None:
    """What is done with the changes of the steps that this one reads, if their tasks can do all of it themselves.

    `read` counts the inputs that read a step.
    """
    works = []
    for stream, source in zip(step.inputs, pipeline.inputs, strict=True):
        if stream.earlier is None or source.step is None or read[source.step] > 1 or not pipeline.shuffles:
            return None
        rows = stream.earlier.changes
        work = find_arrow_work(rows, stream.earlier.frame_of(rows), source.schema.names)
        if work is None:
            return None
        works.append(work)
    return tuple(works)


def _frame_maker(stream: Stream, spec: InputSpec) -> Callable[[Sequence[DataFrame]], DataFrame]:
    earlier, number = stream.earlier, spec.step
    if earlier is None or number is None:
        return lambda _: stream.frame
    return lambda changes: earlier.frame_of(changes[number])


def event_time_columns(step: Stream) -> tuple[str | None, ...]:
    """The event-time column of each input of a step."""
    return tuple(None if each.event_time is None else each.event_time.column for each in step.inputs)


def cannot_run(asset: str, error: AnalysisException) -> InvalidPipelineError:
    """Spark's error about a plan, as one of ours."""
    return InvalidPipelineError(f"Spark cannot run this as a stream. asset={asset}, reason={error}")


def _check_plan(job: StreamJob, checked: CheckedStream) -> None:
    """Have Spark analyse and check the whole plan that will run; only the shard assignment is a dummy."""

    def setup(number: int, step: Stream) -> TaskSetup:
        shuffles = checked.dataflow.operators[number].pipeline.shuffles
        layout = ShardAssignment.keyed(1, 1) if shuffles else ShardAssignment.unkeyed(1)
        return TaskSetup(job.address, job.folder, layout, event_time_columns(step), code=step.code, step=number)

    try:
        replies = checked.stream.frame.sparkSession.sparkContext.accumulator([], Replies())
        frame = shard_replies(plan_stages(checked, setup), replies, read_once)
        refuse_stateful_steps(job.asset, analysed_plan(job.asset, frame))  # also between our own
        check_streams(frame)
    except AnalysisException as error:
        raise cannot_run(job.asset, error) from error
    except Exception as error:
        if type(error).__name__ != "PicklingError":  # of a module that nothing here may import
            raise
        raise InvalidPipelineError(
            "the process function cannot be sent to Spark's tasks: leave out what is tied to a process, such as locks, "
            f"connections and sessions, and open it in on_rows. reason={error}, asset={job.asset}"
        ) from error


def _by_input(sources: tuple[StreamSource, ...], lines: list[int]) -> list[tuple[SourceIdentity, ...]]:
    """What each input reads. `lines` has how many of the plan's streaming relations each input has."""
    ends = list(accumulate(lines))
    return [
        tuple(source.identity for source in sources if any(end - count <= line < end for line in source.lines))
        for count, end in zip(lines, ends, strict=True)
    ]
