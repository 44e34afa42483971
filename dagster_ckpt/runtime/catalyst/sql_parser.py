"""The resolved plan of a query's text."""

from typing import Any

from pyspark.errors import AnalysisException

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.trees import each_of, has_pattern, with_subqueries
from dagster_ckpt.runtime.catalyst.values import Java


class SqlParser:
    """Makes plans of texts, with the settings, functions and views of a session."""

    def __init__(self, jvm: Packages) -> None:
        self._jvm = jvm

    def plan_of(self, text: str) -> Java:
        """The resolved plan of a query. Raises Spark's errors about the text.

        Subqueries may stream, which Spark's check refuses: the query is then checked over views that do not. It is not
        tried first, because PySpark logs each error with its trace, handled or not.
        """
        self._refuse_command(text)
        try:
            plan = self._jvm.resolve(self._jvm.own, text)
        except AnalysisException as error:
            # Spark checks the body of a function alone, while it resolves the query.
            if error.getCondition() != "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
                raise
            raise InvalidPipelineError(
                "the query calls a function in SQL whose body reads a stream: write the body in its place. "
                f"reason={str(error).partition(chr(10))[0]}"
            ) from error
        subqueries = with_subqueries(plan) if has_pattern(self._jvm.session, plan, "PLAN_EXPRESSION") else ()
        if any(each.isStreaming() for node in subqueries for each in each_of(node.subqueries())):
            session = self._without_streams()
            session.sessionState().analyzer().checkAnalysis(self._jvm.resolve(session, text))
        else:
            self._jvm.state.analyzer().checkAnalysis(plan)
        return plan

    def views(self) -> list[str]:
        """The names of the session's temporary views."""
        return [str(view.table()) for view in each_of(self._jvm.state.catalog().listLocalTempViews("*"))]

    def _without_streams(self) -> Any:
        """A session with the settings, functions and views of this one, but a view that streams has no rows."""
        session = self._jvm.own.cloneSession()
        for view in self.views():
            frame = self._jvm.own.table(view)
            if frame.isStreaming():
                self._jvm.without_rows(session, frame, streams=False).createOrReplaceTempView(view)
        return session

    def _refuse_command(self, text: str) -> None:
        """Raise `InvalidPipelineError` for a text that is no query: Spark would run it as soon as it looks at it."""
        found = self._jvm.planner.command(self._jvm.state.sqlParser().parsePlan(text))
        if found is not None:
            raise InvalidPipelineError(f"the text is no query, which begins with SELECT, WITH or FROM. found={found}")
