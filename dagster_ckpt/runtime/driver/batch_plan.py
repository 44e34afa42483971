"""What is done with the rows of each micro-batch, as a plan that Spark makes once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.spark.jvm import frame_of_rdd, java_class, scala_seq


@dataclass(frozen=True)
class PlannedRows:
    """A physical plan, ready to run in its session."""

    sparkSession: SparkSession  # noqa: N815  (as a DataFrame has it)
    plan: Any

    def rdd(self) -> Any:
        """Its rows. A broadcast below it runs now."""
        return self.plan.execute()


class BatchPlan:
    """The physical plan of `work` over a stand-in for `rows`. It is put on one micro-batch after another.

    To optimise and to plan for each micro-batch takes Spark 50 ms. The plan's nodes have one child each: no join, no
    union.
    """

    def __init__(self, rows: DataFrame, work: Callable[[DataFrame], DataFrame]) -> None:
        self._session: SparkSession = rows.sparkSession
        worked: Any = work(_stand_in(rows))
        self._nodes: list[Any] = []  # from below
        node = worked._jdf.queryExecution().sparkPlan()  # noqa: SLF001  (Spark exposes plans nowhere else)
        while below := list(each_of(node.children())):
            self._nodes.insert(0, node)
            [node] = below
        self._wanted = list(each_of(node.output()))
        self._output: Any = None  # of the rows of the last micro-batch
        self._renamed: Any = None

    def on(self, rows: Any) -> PlannedRows:
        """What comes of a physical plan of the rows: that of the micro-batch itself, which reads them."""
        project = java_class(self._session, "org.apache.spark.sql.execution.ProjectExec")
        plan = project(self._renaming(rows), rows)
        for node in self._nodes:
            plan = node.withNewChildren(scala_seq(self._session, [plan]))
        execution = java_class(self._session, "org.apache.spark.sql.execution.QueryExecution")
        session: Any = self._session
        return PlannedRows(self._session, execution.prepareExecutedPlan(session._jsparkSession, plan))  # noqa: SLF001

    def _renaming(self, rows: Any) -> Any:
        """The columns of the rows, with the numbers that those of the stand-in have."""
        output = rows.output()
        if self._output is None or not output.equals(self._output):
            alias = java_class(self._session, "org.apache.spark.sql.catalyst.expressions.Alias")
            none, nothing = java_class(self._session, "scala.Option").empty(), scala_seq(self._session, [])
            pairs = zip(each_of(output), self._wanted, strict=True)
            columns = [alias(ours, wanted.name(), wanted.exprId(), nothing, none, nothing) for ours, wanted in pairs]
            self._output, self._renamed = output, scala_seq(self._session, columns)
        return self._renamed


def _stand_in(rows: DataFrame) -> DataFrame:
    """Rows of which Spark knows nothing but their columns, so that it concludes nothing from there being none."""
    internal: Any = rows
    nothing = internal.sparkSession.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001  (Spark exposes it nowhere else)
    return frame_of_rdd(rows.sparkSession, nothing, internal._jdf.schema())  # noqa: SLF001
