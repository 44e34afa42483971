"""Spark's query planner, Catalyst, by its private API: read a plan, rewrite it, build plans and DataFrames of parts."""

# ruff: noqa: SLF001  (there is no public way to Spark's planner)

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload

from py4j.java_gateway import get_field
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.plan_text import shown_type, without_seeds
from dagster_ckpt.runtime.catalyst.planner import planner, sequence
from dagster_ckpt.runtime.catalyst.reader import read, read_expressions, read_types
from dagster_ckpt.runtime.catalyst.trees import (
    column_number,
    columns_of,
    each_of,
    frame_of,
    give_same_rows,
    has_pattern,
    kind_of,
    nodes,
    plan_of,
)
from dagster_ckpt.runtime.catalyst.values import (
    Expression,
    Expressions,
    Java,
    Join,
    Node,
    SortTerm,
    SparkType,
    WindowCall,
    WindowSpec,
)
from dagster_ckpt.runtime.spark.jvm import java_class

Columns = Any
"""A sequence of Scala's, of columns or of expressions."""

_REWRITES = (
    "Finish Analysis",
    "Rewrite With expression",
    "Eliminate Distinct",
    "Inline CTE",
    "Union",
    "Pullup Correlated Expressions",
    "Subquery",
    "Replace Operators",
    "Aggregate",
    "Operator Optimization before Inferring Filters",
    "Infer Filters",
    "Operator Optimization after Inferring Filters",
    "Push extra predicate through join",
    "Clean Up Temporary CTE Info",
    "RewriteSubquery",
    "NormalizeFloatingNumbers",
    "ReplaceUpdateFieldsExpression",
    "Replace CTE with Repartition",
)
"""The optimizer's batches that leave a plan relational algebra. The whole optimizer refuses plans that stream."""
_SKIPPED = ("EliminateLimits", "PruneFilters")
"""Rules that take the source away from below what never has a row, such as WHERE false."""
_SQL = "org.apache.spark.sql"
_CONSTANT = ("LocalRelation", "OneRowRelation", "Range")
"""Leaves of a plan that are the same whenever they are read."""
_CONSTANTS_MAX = 10_000
"""The most rows of a table of constants, which are in the text of the plan."""


class _Package:
    """A package of the JVM, whose classes are looked up once each."""

    def __init__(self, session: SparkSession, name: str) -> None:
        self._session, self._package = session, name

    def __getattr__(self, name: str) -> Any:
        found = java_class(self._session, f"{self._package}.{name}")
        setattr(self, name, found)
        return found

    def single(self, name: str) -> Any:
        """A `case object`, or the companion of a class."""
        held = f"${name}"
        if held not in vars(self):
            setattr(self, held, getattr(java_class(self._session, f"{self._package}.{name}$"), "MODULE$"))
        return vars(self)[held]


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
    """The planner of a session."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._planner = planner(session)
        own: Any = session._jsparkSession
        self._own, self._state = own, own.sessionState()
        self._conf = self._state.conf()

        def package(name: str) -> _Package:
            return _Package(session, f"{_SQL}.{name}")

        self._expressions, self._logical = package("catalyst.expressions"), package("catalyst.plans.logical")
        self._planning, self._plans = package("catalyst.planning"), package("catalyst.plans")
        self._analysis, self._rules = package("catalyst.analysis"), package("catalyst.optimizer")
        self._aggregates, self._types = package("catalyst.expressions.aggregate"), package("types")
        self._schemas, self._rows = package("util"), package("catalyst.util")
        self._data_types = package("catalyst.types")
        self._some, self._none = java_class(session, "scala.Some"), java_class(session, "scala.Option").empty()
        self._nil = self.no_columns = self.seq(())

    # Reading

    def seq(self, items: Iterable[Any]) -> Any:
        """A sequence of Scala's."""
        return sequence(self._planner, items)

    def read(self, plan: Java) -> Node:
        """The nodes of a plan as values."""
        return read(self.session, plan)

    def read_expressions(self, *expressions: Java) -> Expressions:
        """Expressions as values."""
        return tuple(read_expressions(self.session, self.seq(expressions)))

    def output_of(self, node: Node) -> "NodeColumns":
        """The columns of a node."""
        return NodeColumns(node)

    def columns(self, plan: Java) -> list[Java]:
        """The columns of a plan."""
        own: Any = plan
        return list(each_of(own.output()))

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
        number = self._planner.column(expression)
        return None if number is None else int(number)

    def types_of(self, expressions: Sequence[Java]) -> tuple[SparkType, ...]:
        """The types of expressions."""
        return read_types(self.session, self.seq(expressions)) if expressions else ()

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

    def _refuse_command(self, text: str) -> None:
        """Raise `InvalidPipelineError` for a text that is no query: Spark would run it as soon as it looks at it."""
        found = self._planner.command(self._state.sqlParser().parsePlan(text))
        if found is not None:
            raise InvalidPipelineError(f"the text is no query, which begins with SELECT, WITH or FROM. found={found}")

    def has_any(self, plan: Java, pattern: str) -> bool:
        """Whether a plan, with its subqueries, has a node or an expression of this kind of Spark's `TreePattern`."""
        return has_pattern(self.session, plan, pattern)

    def watermarks_in(self, plan: Java) -> tuple[str, ...]:
        """The watermarks in a plan, each as its column and its delay."""
        if not self.has_any(plan, "EVENT_TIME_WATERMARK"):
            return ()
        found = (each for each in _with_subqueries(plan) if kind_of(each) == "EventTimeWatermark")
        return tuple(dict.fromkeys(f"{each.eventTime().name()}, {each.delay().toString()}" for each in found))

    def analysed(self, frame: DataFrame) -> Java:
        """The plan of a DataFrame, resolved."""
        return plan_of(frame)

    def of_sql(self, text: str) -> Java:
        """The resolved plan of a query. Raises Spark's errors about the text.

        Subqueries may stream, which Spark's check refuses: the query is then checked over views that do not. It is not
        tried first, because PySpark logs each error with its trace, handled or not.
        """
        self._refuse_command(text)
        try:
            plan = self._resolved(self._own, text)
        except AnalysisException as error:
            # Spark checks the body of a function alone, while it resolves the query.
            if error.getCondition() != "INVALID_SUBQUERY_EXPRESSION.STREAMING_QUERY":
                raise
            raise InvalidPipelineError(
                "the query calls a function in SQL whose body reads a stream: write the body in its place. "
                f"reason={str(error).partition(chr(10))[0]}"
            ) from error
        subqueries = _with_subqueries(plan) if self.has_any(plan, "PLAN_EXPRESSION") else ()
        if any(each.isStreaming() for node in subqueries for each in each_of(node.subqueries())):
            session = self._without_streams()
            session.sessionState().analyzer().checkAnalysis(self._resolved(session, text))
        else:
            self._state.analyzer().checkAnalysis(plan)
        return plan

    def views(self) -> list[str]:
        """The names of the session's temporary views."""
        return [str(view.table()) for view in each_of(self._state.catalog().listLocalTempViews("*"))]

    def _without_streams(self) -> Any:
        """A session with the settings, functions and views of this one, but a view that streams has no rows."""
        session = self._own.cloneSession()
        for view in self.views():
            frame = self._own.table(view)
            if frame.isStreaming():
                self._empty(session, frame, streams=False).createOrReplaceTempView(view)
        return session

    @staticmethod
    def _resolved(session: Any, text: str) -> Java:
        state = session.sessionState()
        return state.analyzer().execute(state.sqlParser().parsePlan(text))

    def rewritten(self, plan: Java) -> Java:
        """The plan as Spark's optimizer rewrites it, as far as that is algebra."""
        batches, skipped = ("\n".join(names) for names in (_REWRITES, _SKIPPED))
        return self._planner.rewritten(plan, self._state.optimizer(), batches, skipped)

    def pruned(self, plan: Java) -> Java:
        """The plan without columns that nothing reads."""
        return self._rules.single("ColumnPruning").apply(plan)

    def collapsed(self, plan: Java) -> Java:
        """The plan with filters below projections, each of them once, and without columns that nothing reads."""
        return self._planner.applied(plan, self._collapsing)

    @cached_property
    def _collapsing(self) -> Any:
        names = ("PushDownPredicates", "ColumnPruning", "CollapseProject", "CombineFilters")
        return self.seq(map(self._rules.single, names))

    def without_fields_of_structs(self, plan: Java) -> Java:
        """The plan as `collapsed` makes it, where a field of a struct that is made there is what it was made of."""
        plan = self._rules.single("SimplifyExtractValueOps").apply(self.collapsed(plan))
        return self.collapsed(plan)

    def aggregate_of(self, node: Java) -> tuple[Expressions, Expressions, Expressions]:
        """An aggregate's keys, its calls of functions, and what it makes of both."""
        grouping, calls, results = read_expressions(self.session, self._planner.aggregated(node))
        return grouping, calls, results

    def equi_join_of(self, node: Join) -> tuple[Expressions, Expressions, Java | None]:
        """The keys of both sides of a join, and what else it asks of a pair of rows."""
        found = self._planner.equalKeys(node.java)
        if found is None:
            return (), (), None if node.condition is None else node.condition.java
        ours, theirs, rest = read_expressions(self.session, found)
        return ours, theirs, None if rest is None else rest.java

    def null_aware_of(self, node: Join) -> tuple[Java, Java] | None:
        """The two values that are compared, if the join is what Spark makes of NOT IN with a subquery."""
        found = self._optional(self._planning.ExtractSingleColumnNullAwareAntiJoin.unapply(node.java))
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
            and self._planner.isDeterministic(node.java)
        )

    def constants_of(self, node: Node) -> Java:
        """The rows of such a plan as an array of structs, a constant."""
        plan: Any = node.java
        frame: Any = None if node.kind == "LocalRelation" else frame_of(self.session, plan)
        rows = plan.data() if frame is None else frame._jdf.queryExecution().executedPlan().executeCollect()
        return self._array_of(rows, plan.schema())

    def without_seeds(self, plan: Java) -> Java:
        """The plan in which each seed of chance is 0."""
        return without_seeds(self.session, plan)

    # Building

    @cached_property
    def no_rows(self) -> Java:
        """A leaf without columns."""
        return self._logical.OneRowRelation()

    def frame(self, plan: Java) -> DataFrame:
        """A DataFrame of a resolved plan, which is neither analysed nor checked again.

        Of a column of a side that an outer join may miss, an expression above may say that it is never null. Spark
        would then know the answer where a query asks whether it is.
        """
        own = self._analysis.UpdateAttributeNullability.apply(plan)
        own.setAnalyzed()
        return frame_of(self.session, own)

    def stand_in(self, frame: DataFrame) -> tuple[DataFrame, int]:
        """A DataFrame of these columns without a row, which streams; and the number by which `number_of` knows it."""
        internal: Any = frame
        made = self._empty(self._own, internal._jdf, streams=True)
        return DataFrame(made, self.session), int(made.logicalPlan().rdd().id())

    def _empty(self, session: Any, frame: Any, *, streams: bool) -> Any:
        """A DataFrame in the JVM, with the columns of another and without a row."""
        rows = self.session.sparkContext._jsc.emptyRDD().rdd()
        return session.internalCreateDataFrame(rows, frame.schema().asNullable(), streams)

    def number_of(self, node: Node) -> int | None:
        """The number of the stand-in whose rows a node has, if that is one: Spark has the like for other rows.

        None: it is a node of another kind.
        """
        own: Any = node.java
        return int(own.rdd().id()) if node.kind == "LogicalRDD" else None

    def alias(self, expression: Java, name: str) -> Java:
        """`expression AS name`."""
        return self._planner.alias(expression, name)

    def column_of(self, alias: Java) -> Java:
        """The column that `expression AS name` is for what is above it."""
        own: Any = alias
        return own.toAttribute()

    def new_column(self, name: str, like: Java) -> Java:
        """A column that is none of another node, with the type of an expression."""
        return self.column_of(self.alias(like, name))

    def result_of(self, call: Expression) -> Java:
        """The column that a call is for what is computed of it."""
        own: Any = call.java
        return own.resultAttribute()

    def standing_for(self, values: Iterable[Java], attributes: Iterable[Java]) -> list[Java]:
        """Values under the names and the ids of attributes."""
        return [self._planner.standingFor(one, each) for one, each in zip(values, attributes, strict=True)]

    def show(self, value: Java, attribute: Java) -> Java:
        """The value as it is if it is that attribute, else under its name and its id."""
        return self._planner.shown(value, attribute)

    def parsed(self, sql: str) -> Java:
        """An expression without columns."""
        return self._state.sqlParser().parseExpression(sql)

    def project(self, expressions: Iterable[Java], child: Java) -> Java:
        return self._logical.Project(self.seq(expressions), child)

    def projection(self, expressions: Iterable[Java]) -> Callable[[Java, Columns], Java]:
        """What projects the rows of a plan to these, and to columns that run along."""
        own = self.seq(expressions)
        return lambda plan, beside: self.project_beside(own, beside, plan)

    def project_beside(self, columns: Columns, beside: Columns, child: Java) -> Java:
        """The rows of a plan with these columns, and with those that run along."""
        return self._planner.projected(columns, beside, child)

    def naming(self, expressions: Iterable[Java], names: Iterable[str]) -> Callable[[Java, Columns], Java]:
        """The same, to these expressions under these names."""
        own, lines = self.seq(expressions), "\x01".join(names)
        return lambda plan, beside: self._planner.named(own, lines, beside, plan)

    def columns_by_name(self, plan: Java, name: str) -> Columns:
        """The columns of a plan that have this name."""
        return self._planner.columns(plan, name)

    def standing_on(self, rows: Java, beside: Columns, attributes: Columns, *, collated: bool) -> Java:
        """The rows with their columns, but for those beside, under the names and ids of attributes.

        `collated`: columns of a step have lost the collations that the attributes have.
        """
        if not collated:
            return self._planner.standing(rows, beside, attributes)
        others = {column_number(each) for each in each_of(beside)}
        values = [each for each in self.columns(rows) if column_number(each) not in others]
        wanted = list(each_of(attributes))
        cast = [self.cast_like(*pair) for pair in zip(values, wanted, strict=True)]
        return self.projection(self.standing_for(cast, wanted))(rows, beside)

    def are_collated(self, attributes: Columns) -> bool:
        """Whether one of these has text, at any depth, whose collation decides what is equal."""
        types = self._data_types.single("DataTypeUtils").fromAttributes(attributes)
        return not self._rows.single("UnsafeRowUtils").isBinaryStable(types)

    def filtered(self, condition: Java, child: Java) -> Java:
        """The rows that match. If none ever does, Spark must not know: it would leave out the tasks of steps below."""
        asked, rows = condition, child  # type: Any, Any
        if kind_of(asked) == "Literal" and asked.value() is not True:
            output = rows.output()
            places = [place for place, (name, _) in enumerate(columns_of(output)) if name != CHANGE_TYPE]
            if places:
                text = self.cast_to_text(output.apply(places[0]))
                condition = self._expressions.LessThan(self._expressions.Length(text), self.constant(0))
        return self._logical.Filter(condition, child)

    def expanded(self, projections: Iterable[Iterable[Java]], output: Iterable[Java], child: Java) -> Java:
        return self._logical.Expand(self.seq(map(self.seq, projections)), self.seq(output), child)

    def on(self, node: Java, *children: Java) -> Java:
        """The same node on other children."""
        return self._planner.on(node, self.seq(children))

    def cast(self, expression: Java, type_: SparkType) -> Java:
        """The expression with this type."""
        return self._planner.cast(expression, type_.java, self._conf)

    def cast_like(self, expression: Java, other: Java) -> Java:
        """The expression with the type of another."""
        return self._planner.castLike(expression, other, self._conf)

    def cast_to_text(self, expression: Java) -> Java:
        return self._planner.cast(expression, self._type("string"), self._conf)

    def cast_to_int(self, expression: Java) -> Java:
        return self._planner.cast(expression, self._type("int"), self._conf)

    def by_collation(self, value: Java) -> Java:
        """The value with Spark's keys in place of its text with a collation, at any depth; without such the value.

        Keys are binary, and equal where the texts are, and have their order.
        """
        return self._expressions.CollationKey.injectCollationKey(value)

    def without_collation(self, value: Java) -> Java:
        """The value with its text as it is, to be compared by its bytes."""
        return self._planner.withoutCollation(value, self._conf)

    def differ_in_collations(self, one: SparkType, other: SparkType) -> bool:
        """Whether two types differ in the collations of their text alone."""
        return bool(self._plain(one).equals(self._plain(other)))

    def _plain(self, type_: SparkType) -> Any:
        return self._schemas.single("SchemaUtils").replaceCollatedStringWithString(type_.java).asNullable()

    def collation_keys_in(self, plan: Java) -> set[str]:
        """The collations whose keys a plan computes, each with the version of its rules."""
        parts = (part for node in nodes(plan) for each in each_of(node.expressions()) for part in nodes(each))
        keys = (part for part in parts if kind_of(part) == "CollationKey")
        factory = self._rows.CollationFactory
        found = {str(each.child().dataType().collationId()) for each in keys}
        versions = {number: get_field(factory.fetchCollation(int(number)), "version") for number in found}
        return {f"{factory.fullyQualifiedName(int(number))} {version}" for number, version in versions.items()}

    def one_zero(self, number: Java) -> Java:
        """A floating-point number, 0.0 for -0.0, and one NaN for all."""
        known = kind_of(number) == "KnownFloatingPointNormalized"
        return number if known else self._rules.NormalizeNaNAndZero(number)

    def one_zero_within(self, value: Java) -> Java:
        """The same of all floating-point numbers within a value."""
        return self._rules.single("NormalizeFloatingNumbers").normalize(value)

    def json_of(self, value: Java) -> Java:
        """An array or a struct as a text in JSON."""
        return self.with_children(self._resolved_expression("to_json(array(1))"), [value])

    def of_json(self, text: Java, type_: SparkType) -> Java:
        """A value of this type from a text in JSON."""
        return self._of_json(text, type_.java)

    def list_of_json(self, text: Java, type_: SparkType) -> Java:
        """An array of values of this type, none of them null, from a text in JSON."""
        return self._of_json(text, self._types.ArrayType(type_.java, False))

    def _of_json(self, text: Java, type_: Any) -> Java:
        schema = str(type_.asNullable().sql()).replace("\\", "\\\\").replace("'", "\\'")
        return self.with_children(self._resolved_expression(f"from_json('', '{schema}')"), [text])

    def with_children(self, expression: Java, children: Iterable[Java]) -> Java:
        """The same expression of others."""
        return self._planner.of(expression, self.seq(children))

    def concatenated(self, texts: Iterable[Java]) -> Java:
        """Texts, one behind the other."""
        return self._expressions.Concat(self.seq(texts))

    def _type(self, ddl: str) -> Any:
        """Catalyst's type, from Spark's DDL."""
        return self._state.sqlParser().parseDataType(ddl)

    def field(self, expression: Java, number: int) -> Java:
        """A field of a struct, by its place."""
        return self._expressions.GetStructField(expression, number, self._none)

    def field_of_each(self, structs: Java, number: int) -> Java:
        """An array of a field of an array's structs, by its place."""
        own: Any = structs
        type_ = own.dataType().elementType()
        fields, nulls = list(type_.fields()), own.dataType().containsNull()
        return self._expressions.GetArrayStructFields(structs, fields[number], number, len(fields), nulls)

    def struct(self, fields: Iterable[tuple[str, Java]]) -> Java:
        """A struct of these fields."""
        return self._expressions.CreateNamedStruct(
            self.seq(part for name, value in fields for part in (self.text(name), value))
        )

    def array(self, items: Iterable[Java]) -> Java:
        """An array of these."""
        return self._expressions.CreateArray(self.seq(items), False)

    def pivots_of(self, function: Expression) -> list[Java]:
        """The constants that a pivot compares its column with, each an item of the array of all."""
        own: Any = function.java
        values = own.pivotColumnValues()
        every = self._array_of(values, own.pivotColumn().dataType())
        return [self._expressions.GetArrayItem(every, self.constant(place), False) for place in range(values.size())]

    def _array_of(self, values: Any, type_: Any) -> Java:
        """An array of values of this type as Spark has them, a sequence of Scala's or an array of Java's."""
        data = java_class(self.session, f"{_SQL}.catalyst.util.GenericArrayData")(values)
        return self._expressions.Literal(data, self._types.ArrayType(type_, True))

    def text(self, value: str) -> Java:
        return self._expressions.Literal.create(value, self._type("string"))

    def joined_text(self, texts: Java, between: Java) -> Java:
        """The texts of an array as one."""
        return self._expressions.ArrayJoin(texts, between, self._none)

    def attribute(self, name: str, type_json: str) -> Java:
        """A new attribute of a type in Spark's JSON."""
        type_ = self._types.single("DataType").fromJson(type_json)
        return self.new_column(name, self._null(type_))

    def numbered(self, order: Sequence[Java], child: Java) -> tuple[Java, Java]:
        """The number of a row in an order, and the rows with it."""
        number = self.over_rows(self._expressions.RowNumber(), [], order, "CurrentRow")
        return self.column_of(number), self.window([number], [], order, child)

    def over_rows(self, function: Java, keys: Sequence[Java], order: Sequence[Java], last: str) -> Java:
        """A function over the rows of a partition from the first on, up to `last`, as the column `number`."""
        frame, first = self._expressions.single("RowFrame"), self._expressions.single("UnboundedPreceding")
        within = self._expressions.SpecifiedWindowFrame(frame, first, self._expressions.single(last))
        spec = self._expressions.WindowSpecDefinition(self.seq(keys), self.seq(order), within)
        return self.alias(self.over(function, spec), "number")

    def over(self, function: Java, spec: Java) -> Java:
        """A function over a partition."""
        return self._expressions.WindowExpression(function, spec)

    def without_default(self, call: WindowCall, value: Java | None = None) -> Java:
        """The call of `lag` or `lead` without a default; of another value, if one is given."""
        column, offset, _ = call.function.children
        asked = column.java if value is None else value
        return self.over(
            self.with_children(call.function.java, [asked, offset.java, self.null_like(asked)]), call.over.java
        )

    def null_like(self, other: Java) -> Java:
        """A null with the type of another expression."""
        return self._planner.nullLike(other)

    def null_column(self, like: Java) -> Java:
        """A null under the name of a column, with its type."""
        return self.alias(self.null_like(like), self.column_name(like))

    def null_of(self, type_: SparkType) -> Java:
        return self._null(type_.java)

    def no_boolean(self) -> Java:
        """A null that is a boolean."""
        return self._null(self._type("boolean"))

    def _null(self, type_: Any) -> Java:
        return self._expressions.Literal.create(None, type_)

    def when(self, condition: Java, value: Java) -> Java:
        """The value where the condition holds, else null."""
        return self.if_else(condition, value, self.null_like(value))

    def if_else(self, condition: Java, value: Java, other: Java) -> Java:
        return self._expressions.If(condition, value, other)

    def is_null(self, value: Java) -> Java:
        return self._expressions.IsNull(value)

    def is_not_null(self, value: Java) -> Java:
        return self._expressions.IsNotNull(value)

    def is_not(self, condition: Java) -> Java:
        return self._expressions.Not(condition)

    def equal(self, one: Java, other: Java) -> Java:
        """Whether both are equal; null equals nothing."""
        return self._expressions.EqualTo(one, other)

    def identical(self, one: Java, other: Java) -> Java:
        """Whether both are equal, or null both."""
        return self._expressions.EqualNullSafe(one, other)

    def greater(self, one: Java, other: Java) -> Java:
        return self._expressions.GreaterThan(one, other)

    def at_most(self, one: Java, other: Java) -> Java:
        return self._expressions.LessThanOrEqual(one, other)

    def times(self, one: Java, other: Java) -> Java:
        return self._expressions.Multiply(one, other)

    def first_known(self, *values: Java) -> Java:
        """The first one that is no null."""
        return self._expressions.Coalesce(self.seq(values))

    def never_null(self, value: Java) -> Java:
        """The value, of which Spark is told that it is no null."""
        return self._expressions.KnownNotNull(value)

    def without_nulls(self, array: Java) -> Java:
        """An array, of which Spark is told that no item is null."""
        return self._expressions.KnownNotContainsNull(array)

    def size(self, array: Java) -> Java:
        return self._expressions.Size(array, False)

    def reversed(self, array: Java) -> Java:
        return self._expressions.Reverse(array)

    def repeated(self, value: Java, often: Java) -> Java:
        """An array that has the value so often."""
        return self._expressions.ArrayRepeat(value, often)

    def explode(self, array: Java) -> Java:
        """The generator of a row for each item."""
        return self._expressions.Explode(array)

    def inline(self, array: Java) -> Java:
        """The generator of a row for each struct, with its fields."""
        return self._expressions.Inline(array)

    def comparable(self, one: Java, other: Java) -> list[tuple[Java, Java]]:
        """Pairs of values without nulls that are equal where these two are equal or null both."""
        if not (self.may_be_null(one) or self.may_be_null(other)):
            return [(one, other)]
        ours, theirs = (self._or_some(each) for each in (one, other))
        return [(self.is_null(one), self.is_null(other)), (ours, theirs)]

    def may_be_null(self, value: Java) -> bool:
        """Whether Spark does not know that an expression is never null."""
        own: Any = value
        return bool(own.nullable())

    def _or_some(self, value: Any) -> Java:
        """The value; of a null one that is no null."""
        return self.first_known(value, self._expressions.Literal.default(value.dataType()))

    def all_of(self, conditions: Sequence[Java]) -> Java:
        whole = conditions[0]
        for each in conditions[1:]:
            whole = self._expressions.And(whole, each)
        return whole

    def replaced(self, expression: Expression, by: Callable[[Expression], Java | None]) -> Java:
        """The expression with each topmost part replaced for which `by` gives something."""
        new = self._replaced(expression, by)
        return expression.java if new is None else new

    def _replaced(self, expression: Expression, by: Callable[[Expression], Java | None]) -> Java | None:
        new = by(expression)
        if new is not None:
            return new
        changed = [self._replaced(child, by) for child in expression.children]
        if all(each is None for each in changed):
            return None
        pairs = zip(changed, expression.children, strict=True)
        return self.with_children(expression.java, [own.java if each is None else each for each, own in pairs])

    def any_of(self, one: Java, other: Java) -> Java:
        return self._expressions.Or(one, other)

    def constant(self, value: object) -> Java:
        return self._expressions.Literal.create(value, self._type("boolean" if isinstance(value, bool) else "int"))

    def united(self, *plans: Java) -> Java:
        """All rows of these plans, with the attributes of the first."""
        return self._logical.Union(self.seq(plans), False, False)

    def distinct(self, expressions: Sequence[Java], child: Java) -> tuple[Java, list[Java]]:
        """The distinct values of attributes, and what stands for these in the result."""
        named = [self.alias(each, self.column_name(each)) for each in expressions]
        return self.aggregate(expressions, named, child), [self.column_of(each) for each in named]

    def column_name(self, column: Java) -> str:
        """The name of a column."""
        own: Any = column
        return str(own.name())

    def deduplicated(self, child: Java) -> Java:
        """The distinct rows of a plan, under the same ids."""
        output = self.columns(child)
        return self.aggregate(output, output, child)

    def groups(self, keys: Sequence[Java], calls: Sequence[Java], child: Java) -> Java:
        """An aggregate that has just its keys and the results of its calls, under new ids."""
        named = [*(self.alias(each, "k") for each in keys), *(self.alias(each, "a") for each in calls)]
        return self.aggregate(keys, named, child)

    def aggregate(self, keys: Sequence[Java], columns: Sequence[Java], child: Java) -> Java:
        return self._logical.Aggregate(self.seq(keys), self.seq(columns), child, self._none)

    def window(self, calls: Sequence[Java], keys: Sequence[Java], order: Sequence[Java], child: Java) -> Java:
        return self._logical.Window(self.seq(calls), self.seq(keys), self.seq(order), child, self._none)

    def sorted(self, order: Sequence[Java], child: Java) -> Java:
        return self._logical.Sort(self.seq(order), True, child, self._none)

    def generated_as(self, node: Java, generator: Java, child: Java) -> Java:
        """The node with another generator, over rows with more columns than it had."""
        own: Any = node
        return self._logical.Generate(generator, self._nil, own.outer(), own.qualifier(), own.generatorOutput(), child)

    def has_at_most(self, rows: int, plan: Java) -> bool:
        """Whether Spark knows that the plan has no more rows."""
        own: Any = plan
        most = self._optional(own.maxRows())
        return most is not None and int(most) <= rows

    def scalar_or_error(self, rows: Java, value: Java, error: str) -> Java:
        """The value; where the number of rows is above one, an error in its place."""
        number = self.cast_like(self.constant(1), rows)
        raises = self.cast_like(self._resolved_expression(f"raise_error('{error}')"), value)
        return self.if_else(self.greater(rows, number), raises, value)

    def _resolved_expression(self, sql: str) -> Java:
        """An expression without columns, with its functions resolved."""
        plan: Any = self._resolved(self._own, f"SELECT {sql}")
        [named] = each_of(plan.expressions())
        return named.child()

    def with_count(self, keys: Sequence[Java], child: Java) -> tuple[Java, Java]:
        """The number of rows with the same keys, and the plan with it beside each row."""
        count = self.over_rows(self.count_of(self.parsed("1")), keys, [], "UnboundedFollowing")
        return self.column_of(count), self.window([count], keys, [], child)

    def counted(self, value: Java, child: Java) -> tuple[Java, Java, Java]:
        """The number of rows, that of rows with a value, and the plan with the one row of both."""
        one = self.parsed("1")
        names = [self.alias(self.count_of(each), "n") for each in (one, value)]
        rows, known = (self.column_of(each) for each in names)
        return rows, known, self.aggregate([], names, child)

    def count_of(self, value: Java) -> Java:
        """The number of rows with a value, as a function of an aggregate or a window."""
        return self._call(self._aggregates.Count(self.seq([value])))

    def greatest_of(self, value: Java) -> Java:
        """The greatest value, as such a function."""
        return self._call(self._aggregates.Max(value))

    def first_of(self, value: Java) -> Java:
        """The value of the first row, as such a function."""
        return self._call(self._aggregates.First(value, False))

    def nth_of(self, value: Java, n: int) -> Java:
        """The value of row number `n`, as a function of a window."""
        return self._expressions.NthValue(value, self.constant(n), False)

    def lag_of(self, value: Java, n: int) -> Java:
        """The value `n` rows before, as a function of a window."""
        return self._expressions.Lag(value, self.constant(n), self.null_like(value), False)

    def row_by(self, name: str, value: Java, by: Java) -> Java:
        """`max_by` or `min_by`, by the name of its class: not yet a call."""
        return getattr(self._aggregates, name)(value, by)

    def _call(self, function: Java) -> Java:
        complete = self._aggregates.single("Complete")
        return self._aggregates.AggregateExpression(
            function, complete, False, self._none, self._expressions.NamedExpression.newExprId()
        )

    def ascending(self, value: Java) -> Java:
        """A term of ORDER BY."""
        direction, nulls = self._expressions.single("Ascending"), self._expressions.single("NullsFirst")
        return self._expressions.SortOrder(value, direction, nulls, self._nil)

    def opposite(self, term: SortTerm) -> Java:
        """The term of ORDER BY that puts the last rows first."""
        direction = self._expressions.single("Descending" if term.ascends else "Ascending")
        nulls = self._expressions.single("NullsLast" if term.nulls_first else "NullsFirst")
        return self._expressions.SortOrder(term.by.java, direction, nulls, self._nil)

    def mirrored(self, spec: WindowSpec) -> Java:
        """A window in the opposite order, with a frame of the same rows."""
        unit = self._expressions.single("RowFrame" if spec.frame.by_rows else "RangeFrame")
        bounds = [self._mirrored_bound(each) for each in (spec.frame.upper, spec.frame.lower)]
        within = self._expressions.SpecifiedWindowFrame(unit, *bounds)
        keys, order = self.seq(each.java for each in spec.keys), self.seq(map(self.opposite, spec.order))
        return self._expressions.WindowSpecDefinition(keys, order, within)

    def _mirrored_bound(self, bound: Expression) -> Java:
        mirrored = {"UnboundedPreceding": "UnboundedFollowing", "UnboundedFollowing": "UnboundedPreceding"}
        if bound.kind in mirrored:
            return self._expressions.single(mirrored[bound.kind])
        return bound.java if bound.kind == "CurrentRow" else self._expressions.UnaryMinus(bound.java, True)

    def generated(self, generator: Java, output: Sequence[Java], child: Java) -> Java:
        """The rows that the generator makes of each row, beside it."""
        return self._logical.Generate(generator, self._nil, False, self._none, self.seq(output), child)

    def joined(self, left: Java, right: Java, how: str, condition: Java | None) -> Java:
        """A join, `how` by the name of Spark's class."""
        kind = self._plans.single(how)
        asked = self._none if condition is None else self._some(condition)
        return self._logical.Join(left, right, kind, asked, self._logical.JoinHint.NONE())

    def joined_as(self, node: Java, left: Java, right: Java, condition: Java) -> Java:
        """A join of the same kind as another."""
        own: Any = node
        return self._logical.Join(left, right, own.joinType(), self._some(condition), own.hint())

    def flag_of(self, node: Join, value: Java) -> Java:
        """A value as the column by which an existence join says whether there is a match."""
        own: Any = node.java
        return self._planner.alias(value, "exists", own.joinType().exists())

    def all_equal(self, ones: Sequence[Java], others: Sequence[Java]) -> Java:
        """Whether all these are equal in pairs; null equals nothing."""
        pairs = zip(ones, others, strict=True)
        return self.all_of([self._expressions.EqualTo(one, other) for one, other in pairs])

    def same(self, ones: Sequence[Java], others: Sequence[Java]) -> Java:
        """Whether all these are equal in pairs, null and null too."""
        pairs = zip(ones, others, strict=True)
        return self.all_of([self._expressions.EqualNullSafe(one, other) for one, other in pairs])

    def left_join(self, left: Java, right: Java) -> Java:
        """Each row of the left beside the one row of the right."""
        return self.joined(left, right, "LeftOuter", None)


def _with_subqueries(plan: Any) -> Iterator[Any]:
    """The nodes of a plan, and those of its subqueries."""
    for node in nodes(plan):
        yield node
        for each in each_of(node.subqueries()):
            yield from _with_subqueries(each)
