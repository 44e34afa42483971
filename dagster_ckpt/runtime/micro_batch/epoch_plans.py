"""The plans of a query's epochs: one for each way to bring rows to the tasks of the first step."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.runtime.catalyst.physical_plan import (
    PhysicalPlan,
    PlannedRows,
    read_once,
    schemas_of_inputs,
    shuffles,
    with_unknown_rows,
)
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.micro_batch.driver_work import (
    CHANGES_MAX,
    DriverWork,
    TooManyRowsError,
    can_work,
    in_one_task,
    work_on,
)
from dagster_ckpt.runtime.spark.session import is_local, task_slots
from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError
from dagster_ckpt.runtime.task.dataflow import (
    Stage,
    on_batch,
    on_rows,
    on_scans,
    scan_inputs,
    shard_replies,
    source_inputs,
)
from dagster_ckpt.runtime.task.epoch_task import SCAN_PROPERTY, GroupedBy, ReplyAccumulator
from dagster_ckpt.runtime.task.scan import (
    AnyScan,
    Piece,
    check_pieces,
    encode_scan,
    spread,
)
from dagster_ckpt.runtime.task.shard_assignment import ShardAssignment, columns_of_input

_FEW_AT = ((2_500, 0.0), (50_000, 2.5), (120_000, 5.0))
"""Where an epoch touches no more keys than this, with at least so many rows a key, one task is the fastest."""
_GROUPS_AT = 10.0
"""Several tasks are soonest done with more keys than that, if each has so many rows."""
_PIECES_MAX = 10_000
_TOO_MANY = "a micro-batch has more files than each task can be told of. files={}"
_ORDER_CHARACTERS_MAX = 1 << 21
"""The most of what tells the tasks which pieces are their own: each of them gets all of it."""
_CHECKED_MAX = 32
"""So many pieces are looked at before an epoch begins: what a task finds costs a start of the query."""
_PARTITIONS = "spark.sql.shuffle.partitions"


class Shuffled(Enum):
    """What Spark brings to the tasks of a stream's first step.

    Where each key has many rows in an epoch, Spark's generated code reads the rows and few groups are shuffled. Where
    nearly each row is a key of its own, the groups are as many as the rows, and aggregating them is lost work.
    """

    ROWS = auto()
    """The rows, as they are read."""
    GROUPS = auto()
    """Partial aggregates of each key."""
    FEW_GROUPS = auto()
    """The same, all of them to one task: Spark needs one shuffle less."""


@dataclass(frozen=True, slots=True)
class Touch:
    """How many rows an epoch had, and how many keys they touched."""

    rows: int
    keys: int

    @classmethod
    def of(cls, manifest: Manifest) -> "Touch":
        """That of a stream whose first step keeps a row for each key: an update of a row is two changes."""
        work = manifest.work_of(0)
        rows, changes = manifest.statistics.rows_in, manifest.statistics.rows_out if work is None else work.rows_out
        return cls(rows, -(-changes // 2))

    @property
    def best(self) -> Shuffled:
        """What would have been fastest."""
        a_key = self.rows / max(1, self.keys)
        if any(self.keys <= most and a_key >= least for most, least in _FEW_AT):
            return Shuffled.FEW_GROUPS
        return Shuffled.GROUPS if a_key >= _GROUPS_AT else Shuffled.ROWS


class EpochPlans:
    """Makes a plan when an epoch needs it first, which takes Spark some 50 ms, and keeps it.

    `staged` makes the stages of a way. `aggregates`: Spark may aggregate the rows of the first step before it shuffles
    them. `scans` are what Arrow reads of each input that reads a source, none where Spark reads them;
    `groups_where_read`: the tasks that read may group the rows of the first step. `newest` is the
    manifest that the first epoch builds on.
    """

    def __init__(
        self,
        staged: Callable[[Shuffled, GroupedBy], tuple[Stage, ...]],
        replies: ReplyAccumulator,
        newest: Manifest,
        *,
        aggregates: bool,
        scans: Sequence[AnyScan] = (),
        groups_where_read: bool = False,
    ) -> None:
        self._staged = cache(staged)
        self._replies = replies
        self._aggregates = aggregates
        self._scans = scans
        self._groups_where_read = groups_where_read
        self._best = Shuffled.ROWS
        self._few_changes = True
        self._now = self._staged(Shuffled.ROWS, GroupedBy.SPARK)
        self._of_driver = in_one_task(self._now) if scans and can_work(self._now) else ()
        self._plans: dict[Shuffled, BatchPlan] = {}
        self._scan_plans: dict[tuple[Shuffled, int, bool], PhysicalPlan] = {}
        self.adapt_to(newest)

    def adapt_to(self, manifest: Manifest) -> None:
        """Choose how the next epoch is made by the newest one. One without rows says nothing."""
        touch = Touch.of(manifest)
        if touch.rows:
            self._best = touch.best
        self._few_changes = manifest.statistics.rows_out <= CHANGES_MAX

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of the next epoch, or of the one in progress."""
        return self._now

    @property
    def assignments(self) -> tuple[ShardAssignment, ...]:
        """Those of the steps in the same epoch."""
        return tuple(stage.setup.assignment for stage in self.stages)

    def on_pieces(self, session: SparkSession, pieces: Sequence[Piece]) -> PlannedRows | DriverWork:
        """What comes of a micro-batch whose pieces Arrow reads: in the driver if they are small, else in tasks.

        Raises `LeftToSparkError` where Spark has to read them.
        """
        if len(pieces) > _PIECES_MAX:
            raise LeftToSparkError(_TOO_MANY.format(len(pieces)))
        if self._of_driver and self._few_changes:
            keyed = self._of_driver[0].setup.assignment.tasks is not None
            streams = keyed and self._best is not Shuffled.ROWS and is_local(session)
            with suppress(TooManyRowsError):
                work = work_on(self._of_driver, self._scans, pieces, streams=streams)
                self._now = self._of_driver
                return work
        return self._in_tasks(session, pieces)

    def _in_tasks(self, session: SparkSession, pieces: Sequence[Piece]) -> PlannedRows:
        shuffled = self._best if self._groups_where_read else Shuffled.ROWS
        if shuffled is Shuffled.FEW_GROUPS and any(stage.works is None for stage in self._now[1:]):
            # Partitions of steps that have other numbers of tasks may meet in one of Spark's stages.
            shuffled = Shuffled.GROUPS
        stages = self._staged(shuffled, GroupedBy.ARROW)
        inputs = scan_inputs(stages, self._scans)
        order, in_place = spread(inputs, pieces, task_slots(session))
        told = encode_scan(order)
        if len(told) > _ORDER_CHARACTERS_MAX:
            raise LeftToSparkError(_TOO_MANY.format(len(pieces)))
        self._now = stages
        check_pieces(inputs, pieces[:: 1 + len(pieces) // _CHECKED_MAX])
        key = (shuffled, len(order), in_place)
        plan = self._scan_plans.get(key)
        if plan is None:
            staged = on_scans(session, stages, self._scans, len(order), in_place=in_place)
            plan = PhysicalPlan(session, [], lambda _, cut: shard_replies(staged, self._replies, cut))
            if plan.stays:
                self._scan_plans[key] = plan
        return plan.alone({SCAN_PROPERTY: told})

    def on(self, batch: DataFrame, reads: Java) -> DataFrame | PlannedRows:
        """What comes of a micro-batch. `reads` has the plans that read its rows from the sources."""
        shuffled = self._best if self._aggregates else Shuffled.ROWS
        # Into how many parts Spark shuffles is a setting for all of a plan: it must have nothing else to shuffle.
        if shuffled is not Shuffled.ROWS and shuffled not in self._plans and shuffles(reads):
            self._aggregates, shuffled = False, Shuffled.ROWS
        self._now = self._staged(shuffled, GroupedBy.SPARK)
        if shuffled not in self._plans:
            self._plans[shuffled] = BatchPlan(batch, self.stages, self._replies)
        first = self.stages[0]
        if first.partial is not None:
            batch.sparkSession.conf.set(_PARTITIONS, str(first.setup.assignment.tasks))
        return self._plans[shuffled].on(batch, reads)


class BatchPlan:
    """The physical plans of the stages over stand-ins for their rows. They are put on one micro-batch after another.

    To analyse, to optimise and to plan them for each micro-batch takes Spark 50 ms for one step, and more than a second
    for the sixteen of a query of TPC-H.

    What Spark must look at in each micro-batch is planned in each: a table beside the stream, the time of day, chance.
    """

    def __init__(self, batch: DataFrame, stages: Sequence[Stage], replies: ReplyAccumulator) -> None:
        self._stages, self._replies = stages, replies
        count = len(source_inputs(stages))
        names = [columns_of_input(number) for number in range(count)] if count > 1 else []
        self._plan = PhysicalPlan(
            batch.sparkSession,
            schemas_of_inputs(batch, names),
            lambda inputs, cut: shard_replies(on_rows(stages, inputs), replies, cut),
            gathers=stages[0].partial is not None and stages[0].setup.assignment.tasks == 1,
        )
        self._once = self._plan.stays

    def on(self, batch: DataFrame, reads: Java) -> DataFrame | PlannedRows:
        """What comes of a micro-batch. `reads` has the plans that read its rows from the sources."""
        if self._once:
            return self._plan.on(batch, reads)
        return shard_replies(on_batch(self._stages, with_unknown_rows(batch)), self._replies, read_once)
