"""Spark's query planner, Catalyst, by its private API: read a plan, and what builds and rewrites plans."""

# ruff: noqa: SLF001  (there is no public way to Spark's planner)

from collections.abc import Sequence
from functools import cached_property
from typing import Any, overload

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.catalyst.builders.calls import CallBuilder
from dagster_ckpt.runtime.catalyst.builders.conversions import Conversions
from dagster_ckpt.runtime.catalyst.builders.expressions import ExpressionBuilder
from dagster_ckpt.runtime.catalyst.builders.nodes import NodeBuilder
from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.builders.rules import OptimizerRules
from dagster_ckpt.runtime.catalyst.plan_text import shown_type
from dagster_ckpt.runtime.catalyst.reader import read, read_expressions, read_types
from dagster_ckpt.runtime.catalyst.trees import (
    columns_of,
    each_of,
    frame_of,
    give_same_rows,
    has_pattern,
    kind_of,
    output_of,
    plan_of,
    with_subqueries,
)
from dagster_ckpt.runtime.catalyst.values import Columns, Expression, Expressions, Java, Join, Node, SparkType

_CONSTANT = ("LocalRelation", "OneRowRelation", "Range")
"""Leaves of a plan that are the same whenever they are read."""
_CONSTANTS_MAX = 10_000
"""The most rows of a table of constants, which are in the text of the plan."""


class NodeColumns(Sequence[Java]):
    """The columns of a node, which are asked for when one is needed. `numbers` are Spark's numbers of them."""

    def __init__(self, node: Node) -> None:
        self._node, self.numbers = node, tuple(number for _, number in node.output)

    @cached_property
    def _columns(self) -> tuple[Java, ...]:
        own: Any = self._node.java
        found = own.output()
        return tuple(found.apply(place) for place in range(len(self.numbers)))

    @overload
    def __getitem__(self, place: int) -> Java: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Java]: ...
    def __getitem__(self, place: int | slice) -> Java | Sequence[Java]:
        return self._columns[place]

    def __len__(self) -> int:
        return len(self.numbers)


class Catalyst:
    """The planner of a session.

    `make` has what makes expressions, `convert` what gives values other types, `calls` those of aggregates and of
    functions over a partition, `build` what makes plans, `rules` what rewrites them, and `sql` those of a text.
    """

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._jvm = jvm = Packages(session)
        self.make = make = ExpressionBuilder(jvm)
        self.convert = convert = Conversions(jvm, make)
        self.calls = calls = CallBuilder(jvm, make)
        self.build = NodeBuilder(jvm, make, convert, calls)
        self.rules, self.sql = OptimizerRules(jvm), SqlParser(jvm)
        self.no_columns: Columns = jvm.nil

    def read(self, plan: Java) -> Node:
        """The nodes of a plan as values."""
        return read(self.session, plan)

    def read_expressions(self, *expressions: Java) -> Expressions:
        """Expressions as values."""
        return tuple(read_expressions(self.session, self._jvm.seq(expressions)))

    def output_of(self, node: Node) -> "NodeColumns":
        """The columns of a node."""
        return NodeColumns(node)

    def columns(self, plan: Java) -> list[Java]:
        """The columns of a plan."""
        return output_of(plan)

    def sequence(self, items: Sequence[Java]) -> Columns:
        """A sequence of Scala's."""
        return self._jvm.seq(items)

    @staticmethod
    def each_of(items: Columns) -> list[Java]:
        """The items of a sequence of Scala's."""
        return list(each_of(items))

    def column_names(self, plan: Java) -> list[tuple[str, int]]:
        """The names of a plan's columns, and Spark's numbers of them."""
        own: Any = plan
        return columns_of(own.output())

    def column_number(self, expression: Java) -> int | None:
        """Spark's number of a column; None: the expression computes something."""
        number = self._jvm.planner.column(expression)
        return None if number is None else int(number)

    def types_of(self, expressions: Sequence[Java]) -> tuple[SparkType, ...]:
        """The types of expressions."""
        return read_types(self.session, self._jvm.seq(expressions)) if expressions else ()

    def sql_of(self, expression: Java) -> str:
        """An expression as SQL, for people."""
        own: Any = expression
        return str(own.sql())

    def type_text_of(self, expression: Java) -> str:
        """The type of an expression as SQL, for people."""
        return shown_type(expression)

    def name_of(self, node: Node) -> str:
        """What Spark calls a node, for people."""
        own: Any = node.java
        return str(own.nodeName())

    def line_of(self, part: Node | Expression | Java) -> int | None:
        """The line of the query's text in which a node or an expression begins; None for what has another origin."""
        own: Any = part.java if isinstance(part, Node | Expression) else part
        origin = own.origin()
        # Of a view the text is another one.
        return None if origin.objectName().isDefined() else self._optional(origin.line())

    @staticmethod
    def _optional(option: Any) -> Any:
        return option.get() if option.isDefined() else None

    def give_same_rows(self, one: Java, other: Java) -> bool:
        """Whether two plans are one, whatever Spark's numbers of their columns are."""
        return give_same_rows(one, other)

    def are_equal(self, one: Java, other: Java) -> bool:
        """Whether two expressions of the same rows have the same value."""
        own: Any = one
        return bool(own.semanticEquals(other))

    def constant_of(self, expression: Expression) -> object:
        """The value of a foldable expression: None, a number, a text, or a tuple of floating-point numbers."""
        own: Any = expression.java
        value = own.eval(None)
        if value is None or isinstance(value, bool | int | float):
            return value
        element = expression.type.element
        return str(value.toString()) if element is None or element.name != "double" else tuple(value.toDoubleArray())

    def has_any(self, plan: Java, pattern: str) -> bool:
        """Whether a plan, with its subqueries, has a node or an expression of this kind of Spark's `TreePattern`."""
        return has_pattern(self.session, plan, pattern)

    def watermarks_in(self, plan: Java) -> tuple[str, ...]:
        """The watermarks in a plan, each as its column and its delay."""
        if not self.has_any(plan, "EVENT_TIME_WATERMARK"):
            return ()
        found = (each for each in with_subqueries(plan) if kind_of(each) == "EventTimeWatermark")
        return tuple(dict.fromkeys(f"{each.eventTime().name()}, {each.delay().toString()}" for each in found))

    def plan_of(self, frame: DataFrame) -> Java:
        """The plan of a DataFrame, resolved."""
        return plan_of(frame)

    def aggregate_of(self, node: Java) -> tuple[Expressions, Expressions, Expressions]:
        """An aggregate's keys, its calls of functions, and what it makes of both."""
        grouping, calls, results = read_expressions(self.session, self._jvm.planner.aggregated(node))
        return grouping, calls, results

    def equi_join_of(self, node: Join) -> tuple[Expressions, Expressions, Java | None]:
        """The keys of both sides of a join, and what else it asks of a pair of rows."""
        found = self._jvm.planner.equalKeys(node.java)
        if found is None:
            return (), (), None if node.condition is None else node.condition.java
        ours, theirs, rest = read_expressions(self.session, found)
        return ours, theirs, None if rest is None else rest.java

    def null_aware_of(self, node: Join) -> tuple[Java, Java] | None:
        """The two values that are compared, if the join is what Spark makes of NOT IN with a subquery."""
        found = self._optional(self._jvm.planning.ExtractSingleColumnNullAwareAntiJoin.unapply(node.java))
        if found is None:
            return None
        [ours], [theirs] = each_of(found._1()), each_of(found._2())
        return ours, theirs

    def is_constant(self, node: Node) -> bool:
        """Whether the rows of a plan are always the same: those of VALUES, of `range`, and what is made of them."""
        constant = all(each.kind in _CONSTANT for each in node.nodes() if not each.children)
        return (
            constant
            and not node.streams
            and self.has_at_most(_CONSTANTS_MAX, node.java)
            and self._jvm.planner.isDeterministic(node.java)
        )

    def constants_of(self, node: Node) -> Java:
        """The rows of such a plan as an array of structs, a constant."""
        plan: Any = node.java
        frame: Any = None if node.kind == "LocalRelation" else frame_of(self.session, plan)
        rows = plan.data() if frame is None else frame._jdf.queryExecution().executedPlan().executeCollect()
        return self.make.array_of(rows, plan.schema())

    def frame(self, plan: Java) -> DataFrame:
        """A DataFrame of a resolved plan, which is neither analysed nor checked again.

        An outer join may miss a side, of whose column an expression above may say that it is never null. Spark would
        then know the answer where a query asks whether it is.
        """
        own = self._jvm.analysis.UpdateAttributeNullability.apply(plan)
        own.setAnalyzed()
        return frame_of(self.session, own)

    def stand_in(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """A DataFrame of these columns without a row, which streams; and the number by which `number_of` knows it."""
        internal: Any = frame
        made = self._jvm.without_rows(self._jvm.own, internal._jdf, streams=True)
        return DataFrame(made, self.session), int(made.logicalPlan().rdd().id())

    def number_of(self, node: Node) -> int | None:
        """The number of the stand-in whose rows a node has, if that is one: Spark has the like for other rows.

        None: it is a node of another kind.
        """
        own: Any = node.java
        return int(own.rdd().id()) if node.kind == "LogicalRDD" else None

    def has_at_most(self, rows: int, plan: Java) -> bool:
        """Whether Spark knows that the plan has no more rows."""
        own: Any = plan
        most = self._optional(own.maxRows())
        return most is not None and int(most) <= rows


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
