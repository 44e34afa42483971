"""What is done with the rows of each micro-batch, as a plan that is analysed once."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.runtime.declared.query_plan import each_of, frame_of, plan_of
from dagster_ckpt.runtime.declared.row_work import without_rows
from dagster_ckpt.runtime.spark.jvm import java_class, scala_seq


class BatchPlan:
    """A plan made of `work` over a stand-in for the rows. It is put on the rows of one micro-batch after another.

    To make it again for each takes Spark 50 ms. Its nodes have one child each: no join, no union.
    """

    def __init__(self, rows: DataFrame, work: Callable[[DataFrame], DataFrame]) -> None:
        self._session: SparkSession = rows.sparkSession
        columns: Any = rows
        stand_in = without_rows(self._session, columns._jdf.schema())  # noqa: SLF001  (as it is in the JVM)
        self._leaf: Any = plan_of(stand_in)
        self._nodes: list[Any] = []  # from below
        node = plan_of(work(stand_in))
        while not node.fastEquals(self._leaf):
            self._nodes.insert(0, node)
            [node] = each_of(node.children())

    def on(self, rows: DataFrame) -> DataFrame:
        """What comes of these rows; they have the columns of those it was made of."""
        plan = self._as_leaf(plan_of(rows))
        for node in self._nodes:
            plan = node.withNewChildren(scala_seq(self._session, [plan]))
        return frame_of(self._session, plan)

    def _as_leaf(self, plan: Any) -> Any:
        """The plan with the columns of the stand-in, which have its numbers."""
        alias = java_class(self._session, "org.apache.spark.sql.catalyst.expressions.Alias")
        project = java_class(self._session, "org.apache.spark.sql.catalyst.plans.logical.Project")
        none, nothing = java_class(self._session, "scala.Option").empty(), scala_seq(self._session, [])
        pairs = zip(each_of(plan.output()), each_of(self._leaf.output()), strict=True)
        columns = [alias(ours, wanted.name(), wanted.exprId(), nothing, none, nothing) for ours, wanted in pairs]
        return project(scala_seq(self._session, columns), plan)
