"""What is done with the rows of each micro-batch, as plans that Spark makes once."""

from collections.abc import Sequence

from pyspark.sql import DataFrame

from dagster_ckpt.runtime.catalyst.physical_plan import PhysicalPlan, PlannedRows, read_once, with_unknown_rows
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.task.dataflow import Stage, on_batch, on_rows, shard_replies, source_inputs
from dagster_ckpt.runtime.task.epoch_task import ReplyAccumulator
from dagster_ckpt.runtime.task.shard_assignment import columns_of_input


class BatchPlan:
    """The physical plans of the stages over stand-ins for their rows. They are put on one micro-batch after another.

    To analyse, to optimise and to plan them for each micro-batch takes Spark 50 ms for one step, and more than a second
    for the sixteen of a query of TPC-H.

    What Spark must look at in each micro-batch is planned in each: a table beside the stream, the time of day, chance.
    """

    def __init__(self, batch: DataFrame, stages: Sequence[Stage], replies: ReplyAccumulator) -> None:
        self._stages, self._replies = stages, replies
        count = len(source_inputs(stages))
        self._plan = PhysicalPlan(
            batch,
            [columns_of_input(number) for number in range(count)] if count > 1 else [],
            lambda inputs, cut: shard_replies(on_rows(stages, inputs), replies, cut),
            gathers=stages[0].partial is not None and stages[0].setup.assignment.tasks == 1,
        )
        self._once = self._plan.stays

    def on(self, batch: DataFrame, reads: Java) -> DataFrame | PlannedRows:
        """What comes of a micro-batch. `reads` has the plans that read its rows from the sources."""
        if self._once:
            return self._plan.on(batch, reads)
        return shard_replies(on_batch(self._stages, with_unknown_rows(batch)), self._replies, read_once)
