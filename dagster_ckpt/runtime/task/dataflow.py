"""The user's DataFrames, followed by our tasks."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dagster_ckpt.lsm.key_hash import SEED
from dagster_ckpt.operators.local_aggregate import LocalAggregate
from dagster_ckpt.operators.operator import keys_of_inputs
from dagster_ckpt.operators.partial_aggregate import PartialAggregate
from dagster_ckpt.operators.shared.checks.updating_checks import changes_schema
from dagster_ckpt.protocol.manifest.manifest import Pipeline
from dagster_ckpt.runtime.spark.arrow_schemas import to_spark_schema
from dagster_ckpt.runtime.task.arrow_work import ArrowWork
from dagster_ckpt.runtime.task.epoch_task import PassedOn, ReplyAccumulator, TaskSetup, epoch_task
from dagster_ckpt.runtime.task.packed_rows import PACKED, TASK, PackedRows
from dagster_ckpt.runtime.task.scan import AnyScan, ScanInput, scan_in_place, scan_task
from dagster_ckpt.runtime.task.shard_assignment import HASH, INPUT, columns_of_input

_NOTHING = "nothing boolean"
"""Spark wants a column of what the last step's tasks return, which is no row."""


@dataclass(frozen=True)
class Stage:
    """One step in Spark's plan. `inputs` makes the frame of each of its inputs from the changes of the steps before.

    An input of a source ignores those. `pipeline` is the step's. `shared`: several inputs read its changes. `works`:
    the tasks of the steps before do that work themselves for each input, so that Spark moves their changes as tables.
    `partial`: Spark aggregates the rows before it shuffles them. `local`: the tasks that read by Arrow group the rows.
    `scanned` has the rows of all inputs as tables, which tasks have read by Arrow; `reads`: its own tasks read them.
    """

    pipeline: Pipeline
    setup: TaskSetup
    inputs: tuple[Callable[[Sequence[DataFrame]], DataFrame], ...]
    shared: bool = False
    works: tuple[ArrowWork, ...] | None = None
    partial: PartialAggregate | None = None
    local: LocalAggregate | None = None
    scanned: DataFrame | None = None
    reads: Callable[[str, int], Iterator[pa.RecordBatch]] | None = None

    @property
    def is_packed(self) -> bool:
        """Whether its tasks get tables."""
        return self.works is not None or self.scanned is not None

    def packed_rows(self, step: int) -> PackedRows | None:
        """How a step's changes reach this one as tables, if they do."""
        if self.works is None:
            return None
        schemas, keys = tuple(each.schema for each in self.pipeline.inputs), keys_of_inputs(self.pipeline)
        for number, source in enumerate(self.pipeline.inputs):
            if source.step == step:
                return PackedRows(self.works[number], schemas, number, keys[number], self.setup.assignment)
        return None


Cut = Callable[[DataFrame], DataFrame]
"""What is read in place of rows after a shuffle, so that their tasks run once in a job."""


def shard_replies(stages: Sequence[Stage], replies: ReplyAccumulator, cut: Cut) -> DataFrame:
    """A DataFrame without rows: to work it does the epoch's work. `replies` has those of all steps' tasks then."""
    changes: list[DataFrame] = []
    for number, stage in enumerate(stages):
        rows = _shuffle(changes, stage)
        changes.append(_with_tasks(*rows, stages, number, replies, cut))
    return changes[-1]


def rows_of_sources(stages: Sequence[Stage]) -> DataFrame:
    """The rows of all inputs that read sources, as one streaming DataFrame, for `on_batch`."""
    rows = [_by_number(each(()), names) for each, names in source_inputs(stages)]
    return rows[0] if len(rows) == 1 else union_inputs(rows)


def on_batch(stages: Sequence[Stage], batch: DataFrame) -> list[Stage]:
    """The stages over a micro-batch of `rows_of_sources`.

    In a streaming plan Spark would read the source of a step with several readers once for each of them, as separate
    sources whose rows may differ. So the steps are planned apart from it.
    """
    count = len(source_inputs(stages))
    if count == 1:
        return on_rows(stages, [batch])
    return on_rows(
        stages, [batch.where(F.col(INPUT) == number).select(f"{columns_of_input(number)}.*") for number in range(count)]
    )


def on_rows(stages: Sequence[Stage], rows: Sequence[DataFrame]) -> list[Stage]:
    """The stages over the rows of each input that reads a source."""
    left = iter(rows)

    def over(names: Sequence[str], own: DataFrame) -> Callable[[Sequence[DataFrame]], DataFrame]:
        return lambda _: own.toDF(*names)

    return [
        replace(
            stage,
            inputs=tuple(
                over(source.schema.names, next(left)) if source.step is None else each
                for source, each in zip(stage.pipeline.inputs, stage.inputs, strict=True)
            ),
        )
        for stage in stages
    ]


def on_scans(
    session: SparkSession, stages: Sequence[Stage], scans: Sequence[AnyScan], tasks: int, *, in_place: bool
) -> list[Stage]:
    """The stages over what so many tasks read by Arrow; `scans` are those of each input that reads a source.

    `in_place`: they are the tasks of the first step, which has no keys, or each of them reads the rows of its own.
    """
    found = list(stages)
    if in_place:
        reads = scan_in_place(0, scan_inputs(stages, scans)[0])
        return [replace(stages[0], scanned=session.range(0, tasks, 1, tasks), reads=reads), *stages[1:]]
    for number, inputs in scan_inputs(stages, scans).items():
        idle = session.range(0, tasks, 1, tasks)
        scanned = idle.mapInArrow(scan_task(number, inputs), to_spark_schema(PACKED))
        found[number] = replace(stages[number], scanned=scanned)
    return found


def scan_inputs(stages: Sequence[Stage], scans: Sequence[AnyScan]) -> dict[int, list[ScanInput]]:
    """How rows that Arrow reads come to the tasks of the stages that read them, by the number of the stage."""
    left = iter(scans)
    found = {}
    for number, stage in enumerate(stages):
        sources, keys = stage.pipeline.inputs, keys_of_inputs(stage.pipeline)
        if all(source.step is None for source in sources):
            schemas = tuple(source.schema for source in sources)
            found[number] = [
                (scan, PackedRows(scan.work, schemas, place, keys[place], stage.setup.assignment, stage.local))
                for place, scan in zip(range(len(sources)), left, strict=False)
            ]
    return found


def on_initial(stages: Sequence[Stage], rows: Sequence[DataFrame]) -> list[Stage]:
    """The stages over other rows of each input that reads a source; they have its columns, in any order."""
    return on_rows(
        stages, [_by_number(own, names) for own, (_, names) in zip(rows, source_inputs(stages), strict=True)]
    )


def source_inputs(
    stages: Sequence[Stage],
) -> list[tuple[Callable[[Sequence[DataFrame]], DataFrame], Sequence[str]]]:
    """The inputs that read sources, each with the names of its columns."""
    return [
        (each, source.schema.names)
        for stage in stages
        for source, each in zip(stage.pipeline.inputs, stage.inputs, strict=True)
        if source.step is None
    ]


def shard_replies_of_own_epoch(
    session: SparkSession,
    stages: Sequence[Stage],
    replies: ReplyAccumulator,
    cut: Cut,
    kept: Collection[int] = (),
) -> DataFrame:
    """The same of an epoch without input, which the driver starts by itself.

    In the first epoch of changed steps, those that are `kept` read nothing: they pass their tables on.
    """
    changes: list[DataFrame] = []
    for number, stage in enumerate(stages):
        if number in kept or all(source.step is None for source in stage.pipeline.inputs):
            tasks = stage.setup.assignment.tasks
            assert tasks is not None, "nothing waits in an unkeyed stream"
            rows, columns = session.range(0, tasks, 1, tasks), None
        else:
            rows, columns = _shuffle(changes, stage)
        changes.append(_with_tasks(rows, columns, stages, number, replies, cut))
    return changes[-1]


def _with_tasks(
    rows: DataFrame,
    columns: Sequence[str] | None,
    stages: Sequence[Stage],
    number: int,
    replies: ReplyAccumulator,
    cut: Cut,
) -> DataFrame:
    """The changes of a step; of the last one no row."""
    stage, packed_in = stages[number], columns is not None and stages[number].is_packed
    if number == len(stages) - 1:
        work = epoch_task(stage.setup, columns, replies, packed=packed_in, reads=stage.reads)
        return rows.mapInArrow(work, _NOTHING)
    schema = changes_schema(stage.pipeline)
    packed = None if stage.shared else _packed_rows(stages, number)
    passed_on = PassedOn(schema, numbered=stage.shared, packed=packed)
    work = epoch_task(stage.setup, columns, replies, passed_on, packed=packed_in, reads=stage.reads)
    if packed is not None:
        return rows.mapInArrow(work, to_spark_schema(PACKED))
    if not stage.shared:
        return rows.mapInArrow(work, to_spark_schema(schema))
    return _once(rows.mapInArrow(work, to_spark_schema(schema.append(TASK))), stage, cut)


def _packed_rows(stages: Sequence[Stage], step: int) -> PackedRows | None:
    """How the changes of a step reach the one that reads them as tables, if they do."""
    return next((packed for stage in stages if (packed := stage.packed_rows(step)) is not None), None)


def _once(changes: DataFrame, stage: Stage, cut: Cut) -> DataFrame:
    """The changes of a step that several steps read, so that its tasks run once.

    All who read it get one RDD after one shuffle. Whether Spark finds that two parts of a plan are the same and reuses
    the shuffle of one depends on what is below. Were the tasks run twice nevertheless, the epoch would be declined.
    """
    tasks = stage.setup.assignment.tasks
    assert tasks is not None, "a step has keys, or one group"
    *names, task = changes.columns
    numbers = [f"_column_{number}" for number in range(len(names))]
    if changes.isStreaming:  # only analysed, to check it
        return changes.toDF(*numbers, task).select(numbers).toDF(*names)
    return cut(changes.repartitionById(tasks, F.col(task))).toDF(*numbers, task).select(numbers).toDF(*names)


def _shuffle(changes: Sequence[DataFrame], stage: Stage) -> tuple[DataFrame, list[str] | None]:
    """The rows of all inputs, those of a task together, and their columns; None where its tasks read the rows."""
    pipeline, assignment = stage.pipeline, stage.setup.assignment
    if stage.scanned is not None and stage.reads is not None:
        return stage.scanned, None
    if stage.is_packed:
        assert assignment.tasks is not None, "rows without keys are not brought to another task"
        tables = [changes[source.step] for source in pipeline.inputs if source.step is not None]
        if stage.scanned is not None:
            tables = [stage.scanned]
        return reduce(DataFrame.union, tables).repartitionById(assignment.tasks, F.col(TASK.name)), PACKED.names
    inputs = [each(changes) for each in stage.inputs]
    names = [source.schema.names for source in pipeline.inputs]
    rows = [_by_number(frame, its) for frame, its in zip(inputs, names, strict=True)]
    if stage.partial is not None:
        [frame], [its] = rows, names
        rows, names = [_partially_aggregated(frame, its, stage.partial)], [stage.partial.schema.names]
    if assignment.tasks is None:
        [unkeyed], [unkeyed_names] = rows, names
        return unkeyed, unkeyed_names
    hashed = []
    for frame, its, keys in zip(rows, names, keys_of_inputs(pipeline), strict=True):
        numbered = dict(zip(its, frame.columns, strict=True))
        hashed.append(frame.withColumn(HASH, _hash_column([numbered[key] for key in keys])))
    if len(hashed) == 1:
        together, columns = hashed[0], [*names[0], HASH]
    else:
        # Those of steps first, each with as many partitions as tasks: see `ShardAssignment.shards_of`.
        order = sorted(range(len(hashed)), key=lambda number: pipeline.inputs[number].step is None)
        together = _union(rows, hashed, order)
        columns = together.columns
    if stage.partial is not None and assignment.tasks == 1:
        return together, columns  # in one partition, since Spark aggregates in as many as there are tasks
    return together.repartitionById(assignment.tasks, F.expr(assignment.partition_in_sql())), columns


def union_inputs(inputs: Sequence[DataFrame]) -> DataFrame:
    """Several inputs in one plan, in the order of `shard_replies`: it has the query's sources."""
    rows = [_by_number(frame, frame.columns) for frame in inputs]
    return _union(rows, [frame.withColumn(HASH, F.lit(0)) for frame in rows], range(len(rows)))


def _union(rows: Sequence[DataFrame], hashed: Sequence[DataFrame], order: Sequence[int]) -> DataFrame:
    """The rows of all inputs: the input's number, the hash, and a struct per input, null in rows of the others.

    The inputs come in this order.
    """
    types = [frame.schema for frame in rows]
    sides = []
    for number in order:
        columns = [F.lit(number).cast("int").alias(INPUT), F.col(HASH)]
        for other, type_ in enumerate(types):
            own = F.struct(*type_.names) if other == number else F.lit(None).cast(type_)
            columns.append(own.alias(columns_of_input(other)))
        sides.append(hashed[number].select(columns))
    return reduce(DataFrame.union, sides)


def _partially_aggregated(rows: DataFrame, names: Sequence[str], partial: PartialAggregate) -> DataFrame:
    """One row for each key. `names` are those of the input's columns, which have other ones in `rows`."""
    numbered = dict(zip(names, rows.columns, strict=True))
    own = zip(partial.schema.names[len(partial.pipeline.keys) :], partial.partials(numbered), strict=True)
    aggregates = [F.expr(each.sql).alias(name) for name, each in own]
    return rows.groupBy(*(numbered[key] for key in partial.pipeline.keys)).agg(*aggregates)


def _hash_column(keys: Sequence[str]) -> Column:
    """The key's hash. Without keys it is the seed, as `key_hashes` has it: Spark's function needs a column."""
    return F.xxhash64(*keys) if keys else F.lit(SEED).cast("long")


def _by_number(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """These columns, renamed by number: Spark reads a dot in a name as a field, a backtick as a quote."""
    there = frame.columns
    by_number = [f"_column_{number}" for number in range(len(there))]
    numbered = dict(zip(reversed(there), reversed(by_number), strict=True))  # the first of a name
    wanted = [numbered[name] for name in names]
    renamed = frame.toDF(*by_number)
    return renamed if wanted == by_number else renamed.select(wanted)
