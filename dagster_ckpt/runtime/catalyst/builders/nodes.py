"""Nodes of plans, made of others."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.runtime.catalyst.builders.calls import CallBuilder
from dagster_ckpt.runtime.catalyst.builders.conversions import Conversions
from dagster_ckpt.runtime.catalyst.builders.expressions import ExpressionBuilder
from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.trees import column_number, columns_of, each_of, kind_of, output_of
from dagster_ckpt.runtime.catalyst.values import Columns, Java, Join


class NodeBuilder:
    """Makes a plan of others."""

    def __init__(self, jvm: Packages, make: ExpressionBuilder, convert: Conversions, calls: CallBuilder) -> None:
        self._jvm, self._make, self._convert, self._calls = jvm, make, convert, calls

    @cached_property
    def no_rows(self) -> Java:
        """A leaf without columns."""
        return self._jvm.logical.OneRowRelation()

    def project(self, expressions: Iterable[Java], child: Java) -> Java:
        return self._jvm.logical.Project(self._jvm.seq(expressions), child)

    def projection(self, expressions: Iterable[Java]) -> Callable[[Java, Columns], Java]:
        """What projects the rows of a plan to these, and to columns that run along."""
        own = self._jvm.seq(expressions)
        return lambda plan, beside: self.project_beside(own, beside, plan)

    def project_beside(self, columns: Columns, beside: Columns, child: Java) -> Java:
        """The rows of a plan with these columns, and with those that run along."""
        return self._jvm.planner.projected(columns, beside, child)

    def naming(self, expressions: Iterable[Java], names: Iterable[str]) -> Callable[[Java, Columns], Java]:
        """The same, to these expressions under these names."""
        own, lines = self._jvm.seq(expressions), "\x01".join(names)
        return lambda plan, beside: self._jvm.planner.named(own, lines, beside, plan)

    def columns_by_name(self, plan: Java, name: str) -> Columns:
        """The columns of a plan that have this name."""
        return self._jvm.planner.columns(plan, name)

    def stand_on(self, rows: Java, beside: Columns, attributes: Columns, *, collated: bool) -> Java:
        """The rows with their columns, but for those beside, under the names and ids of attributes.

        `collated`: columns of a step have lost the collations that the attributes have.
        """
        if not collated:
            return self._jvm.planner.standing(rows, beside, attributes)
        others = {column_number(each) for each in each_of(beside)}
        values = [each for each in output_of(rows) if column_number(each) not in others]
        wanted = list(each_of(attributes))
        cast = [self._convert.cast_like(*pair) for pair in zip(values, wanted, strict=True)]
        return self.projection(self._make.standing_for(cast, wanted))(rows, beside)

    def filter(self, condition: Java, child: Java) -> Java:
        """The rows that match. If none ever does, Spark must not know: it would leave out the tasks of steps below."""
        asked: Any = condition
        if kind_of(asked) == "Literal" and asked.value() is not True:
            rows: Any = child
            output = rows.output()
            places = [place for place, (name, _) in enumerate(columns_of(output)) if name != CHANGE_TYPE]
            if places:
                text = self._convert.cast_to_text(output.apply(places[0]))
                condition = self._jvm.expressions.LessThan(self._jvm.expressions.Length(text), self._make.constant(0))
        return self._jvm.logical.Filter(condition, child)

    def expand(self, projections: Iterable[Iterable[Java]], output: Iterable[Java], child: Java) -> Java:
        return self._jvm.logical.Expand(self._jvm.seq(map(self._jvm.seq, projections)), self._jvm.seq(output), child)

    def on(self, node: Java, *children: Java) -> Java:
        """The same node on other children."""
        return self._jvm.planner.on(node, self._jvm.seq(children))

    def with_number(self, order: Sequence[Java], child: Java) -> tuple[Java, Java]:
        """The number of a row in an order, and the rows with it."""
        number = self._calls.over_rows(self._jvm.expressions.RowNumber(), [], order, "CurrentRow")
        return self._make.column_of(number), self.window([number], [], order, child)

    def with_count(self, keys: Sequence[Java], child: Java) -> tuple[Java, Java]:
        """The number of rows with the same keys, and the plan with it beside each row."""
        count = self._calls.over_rows(self._calls.count_of(self._make.parse("1")), keys, [], "UnboundedFollowing")
        return self._make.column_of(count), self.window([count], keys, [], child)

    def count_rows(self, value: Java, child: Java) -> tuple[Java, Java, Java]:
        """The number of rows, that of rows with a value, and the plan with the one row of both."""
        one = self._make.parse("1")
        names = [self._make.alias(self._calls.count_of(each), "n") for each in (one, value)]
        rows, known = (self._make.column_of(each) for each in names)
        return rows, known, self.aggregate([], names, child)

    def union_all(self, *plans: Java) -> Java:
        """All rows of these plans, with the attributes of the first."""
        return self._jvm.logical.Union(self._jvm.seq(plans), False, False)

    def distinct_values(self, expressions: Sequence[Java], child: Java) -> tuple[Java, list[Java]]:
        """The distinct values of attributes, and what stands for these in the result."""
        named = [self._make.alias(each, self._make.column_name(each)) for each in expressions]
        return self.aggregate(expressions, named, child), [self._make.column_of(each) for each in named]

    def distinct_rows(self, child: Java) -> Java:
        """The distinct rows of a plan, under the same ids."""
        output = output_of(child)
        return self.aggregate(output, output, child)

    def groups(self, keys: Sequence[Java], calls: Sequence[Java], child: Java) -> Java:
        """An aggregate that has just its keys and the results of its calls, under new ids."""
        named = [*(self._make.alias(each, "k") for each in keys), *(self._make.alias(each, "a") for each in calls)]
        return self.aggregate(keys, named, child)

    def aggregate(self, keys: Sequence[Java], columns: Sequence[Java], child: Java) -> Java:
        return self._jvm.logical.Aggregate(self._jvm.seq(keys), self._jvm.seq(columns), child, self._jvm.none)

    def window(self, calls: Sequence[Java], keys: Sequence[Java], order: Sequence[Java], child: Java) -> Java:
        return self._jvm.logical.Window(
            self._jvm.seq(calls), self._jvm.seq(keys), self._jvm.seq(order), child, self._jvm.none
        )

    def sort(self, order: Sequence[Java], child: Java) -> Java:
        return self._jvm.logical.Sort(self._jvm.seq(order), True, child, self._jvm.none)

    def generate_like(self, node: Java, generator: Java, child: Java) -> Java:
        """The node with another generator, over rows with more columns than it had."""
        own: Any = node
        return self._jvm.logical.Generate(
            generator, self._jvm.nil, own.outer(), own.qualifier(), own.generatorOutput(), child
        )

    def generate(self, generator: Java, output: Sequence[Java], child: Java) -> Java:
        """Each row joined with the rows that the generator makes of it."""
        return self._jvm.logical.Generate(generator, self._jvm.nil, False, self._jvm.none, self._jvm.seq(output), child)

    def join(self, left: Java, right: Java, how: str, condition: Java | None) -> Java:
        """A join, `how` by the name of Spark's class."""
        kind = self._jvm.plans.single(how)
        asked = self._jvm.none if condition is None else self._jvm.some(condition)
        return self._jvm.logical.Join(left, right, kind, asked, self._jvm.logical.JoinHint.NONE())

    def join_like(self, node: Java, left: Java, right: Java, condition: Java) -> Java:
        """A join of the same kind as another."""
        own: Any = node
        return self._jvm.logical.Join(left, right, own.joinType(), self._jvm.some(condition), own.hint())

    def flag_of(self, node: Join, value: Java) -> Java:
        """A value as the column by which an existence join says whether there is a match."""
        own: Any = node.java
        return self._jvm.planner.alias(value, "exists", own.joinType().exists())

    def left_join(self, left: Java, right: Java) -> Java:
        """Each row of the left beside the one row of the right."""
        return self.join(left, right, "LeftOuter", None)
