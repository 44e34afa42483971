"""Expressions of Spark's, made of others."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.values import Expression, Java, SparkType
from dagster_ckpt.runtime.spark.jvm import java_class


class ExpressionBuilder:
    """Makes an expression of others, a column, or a constant."""

    def __init__(self, jvm: Packages) -> None:
        self._jvm = jvm

    def alias(self, expression: Java, name: str) -> Java:
        """`expression AS name`."""
        return self._jvm.planner.alias(expression, name)

    def column_of(self, alias: Java) -> Java:
        """The column that `expression AS name` is for what is above it."""
        own: Any = alias
        return own.toAttribute()

    def new_column(self, name: str, like: Java) -> Java:
        """A column that is none of another node, with the type of an expression."""
        return self.column_of(self.alias(like, name))

    def null_column(self, like: Java) -> Java:
        """A null under the name of a column, with its type."""
        return self.alias(self.null_like(like), self.column_name(like))

    def column_of_type(self, name: str, type_json: str) -> Java:
        """A new attribute of a type in Spark's JSON."""
        type_ = self._jvm.types.single("DataType").fromJson(type_json)
        return self.new_column(name, self.null(type_))

    def column_name(self, column: Java) -> str:
        """The name of a column."""
        own: Any = column
        return str(own.name())

    def result_of(self, call: Expression) -> Java:
        """The column of a call's result."""
        own: Any = call.java
        return own.resultAttribute()

    def standing_for(self, values: Iterable[Java], attributes: Iterable[Java]) -> list[Java]:
        """Values under the names and the ids of attributes."""
        return [self._jvm.planner.standingFor(one, each) for one, each in zip(values, attributes, strict=True)]

    def show_as(self, value: Java, attribute: Java) -> Java:
        """The value as it is if it is that attribute, else under its name and its id."""
        return self._jvm.planner.shown(value, attribute)

    def parse(self, sql: str) -> Java:
        """An expression without columns."""
        return self._jvm.state.sqlParser().parseExpression(sql)

    def constant(self, value: object) -> Java:
        return self._jvm.expressions.Literal.create(
            value, self._jvm.type("boolean" if isinstance(value, bool) else "int")
        )

    def text(self, value: str) -> Java:
        return self._jvm.expressions.Literal.create(value, self._jvm.type("string"))

    def null_like(self, other: Java) -> Java:
        """A null with the type of another expression."""
        return self._jvm.planner.nullLike(other)

    def null_of(self, type_: SparkType) -> Java:
        return self.null(type_.java)

    def no_boolean(self) -> Java:
        """A null that is a boolean."""
        return self.null(self._jvm.type("boolean"))

    def null(self, type_: Any) -> Java:
        return self._jvm.expressions.Literal.create(None, type_)

    def when(self, condition: Java, value: Java) -> Java:
        """The value where the condition holds, else null."""
        return self.if_else(condition, value, self.null_like(value))

    def if_else(self, condition: Java, value: Java, other: Java) -> Java:
        return self._jvm.expressions.If(condition, value, other)

    def is_null(self, value: Java) -> Java:
        return self._jvm.expressions.IsNull(value)

    def is_not_null(self, value: Java) -> Java:
        return self._jvm.expressions.IsNotNull(value)

    def is_not(self, condition: Java) -> Java:
        return self._jvm.expressions.Not(condition)

    def equal(self, one: Java, other: Java) -> Java:
        """Whether both are equal; null equals nothing."""
        return self._jvm.expressions.EqualTo(one, other)

    def identical(self, one: Java, other: Java) -> Java:
        """Whether both are equal, or null both."""
        return self._jvm.expressions.EqualNullSafe(one, other)

    def greater(self, one: Java, other: Java) -> Java:
        return self._jvm.expressions.GreaterThan(one, other)

    def at_most(self, one: Java, other: Java) -> Java:
        return self._jvm.expressions.LessThanOrEqual(one, other)

    def times(self, one: Java, other: Java) -> Java:
        return self._jvm.expressions.Multiply(one, other)

    def all_of(self, conditions: Sequence[Java]) -> Java:
        whole = conditions[0]
        for each in conditions[1:]:
            whole = self._jvm.expressions.And(whole, each)
        return whole

    def any_of(self, one: Java, other: Java) -> Java:
        return self._jvm.expressions.Or(one, other)

    def all_equal(self, ones: Sequence[Java], others: Sequence[Java]) -> Java:
        """Whether all these are equal in pairs; null equals nothing."""
        pairs = zip(ones, others, strict=True)
        return self.all_of([self._jvm.expressions.EqualTo(one, other) for one, other in pairs])

    def same(self, ones: Sequence[Java], others: Sequence[Java]) -> Java:
        """Whether all these are equal in pairs, null and null too."""
        pairs = zip(ones, others, strict=True)
        return self.all_of([self._jvm.expressions.EqualNullSafe(one, other) for one, other in pairs])

    def first_known(self, *values: Java) -> Java:
        """The first one that is no null."""
        return self._jvm.expressions.Coalesce(self._jvm.seq(values))

    def never_null(self, value: Java) -> Java:
        """The value, of which Spark is told that it is no null."""
        return self._jvm.expressions.KnownNotNull(value)

    def may_be_null(self, value: Java) -> bool:
        """Whether Spark does not know that an expression is never null."""
        own: Any = value
        return bool(own.nullable())

    def comparable(self, one: Java, other: Java) -> list[tuple[Java, Java]]:
        """Pairs of values without nulls that are equal where these two are equal or null both."""
        if not (self.may_be_null(one) or self.may_be_null(other)):
            return [(one, other)]
        ours, theirs = (self._or_some(each) for each in (one, other))
        return [(self.is_null(one), self.is_null(other)), (ours, theirs)]

    def _or_some(self, value: Any) -> Java:
        """The value; of a null one that is no null."""
        return self.first_known(value, self._jvm.expressions.Literal.default(value.dataType()))

    def struct(self, fields: Iterable[tuple[str, Java]]) -> Java:
        """A struct of these fields."""
        return self._jvm.expressions.CreateNamedStruct(
            self._jvm.seq(part for name, value in fields for part in (self.text(name), value))
        )

    def field(self, expression: Java, number: int) -> Java:
        """A field of a struct, by its place."""
        return self._jvm.expressions.GetStructField(expression, number, self._jvm.none)

    def field_of_each(self, structs: Java, number: int) -> Java:
        """An array of a field of an array's structs, by its place."""
        own: Any = structs
        type_ = own.dataType().elementType()
        fields, nulls = list(type_.fields()), own.dataType().containsNull()
        return self._jvm.expressions.GetArrayStructFields(structs, fields[number], number, len(fields), nulls)

    def array(self, items: Iterable[Java]) -> Java:
        """An array of these."""
        return self._jvm.expressions.CreateArray(self._jvm.seq(items), False)

    def array_of(self, values: Any, type_: Any) -> Java:
        """An array of values of this type as Spark has them, a sequence of Scala's or an array of Java's."""
        data = java_class(self._jvm.session, "org.apache.spark.sql.catalyst.util.GenericArrayData")(values)
        return self._jvm.expressions.Literal(data, self._jvm.types.ArrayType(type_, True))

    def pivots_of(self, function: Expression) -> list[Java]:
        """The constants that a pivot compares its column with, each an item of the array of all."""
        own: Any = function.java
        values = own.pivotColumnValues()
        every = self.array_of(values, own.pivotColumn().dataType())
        return [
            self._jvm.expressions.GetArrayItem(every, self.constant(place), False) for place in range(values.size())
        ]

    def without_nulls(self, array: Java) -> Java:
        """An array, of which Spark is told that no item is null."""
        return self._jvm.expressions.KnownNotContainsNull(array)

    def size(self, array: Java) -> Java:
        return self._jvm.expressions.Size(array, False)

    def reverse(self, array: Java) -> Java:
        return self._jvm.expressions.Reverse(array)

    def repeat(self, value: Java, often: Java) -> Java:
        """An array that has the value so often."""
        return self._jvm.expressions.ArrayRepeat(value, often)

    def explode(self, array: Java) -> Java:
        """The generator of a row for each item."""
        return self._jvm.expressions.Explode(array)

    def inline(self, array: Java) -> Java:
        """The generator of a row for each struct, with its fields."""
        return self._jvm.expressions.Inline(array)

    def concat(self, texts: Iterable[Java]) -> Java:
        """Texts, one after the other."""
        return self._jvm.expressions.Concat(self._jvm.seq(texts))

    def join_text(self, texts: Java, between: Java) -> Java:
        """The texts of an array as one."""
        return self._jvm.expressions.ArrayJoin(texts, between, self._jvm.none)

    def with_children(self, expression: Java, children: Iterable[Java]) -> Java:
        """The same expression of others."""
        return self._jvm.planner.of(expression, self._jvm.seq(children))

    def replace_parts(self, expression: Expression, by: Callable[[Expression], Java | None]) -> Java:
        """The expression with each topmost part replaced for which `by` gives something."""
        new = self._replace_parts(expression, by)
        return expression.java if new is None else new

    def _replace_parts(self, expression: Expression, by: Callable[[Expression], Java | None]) -> Java | None:
        new = by(expression)
        if new is not None:
            return new
        changed = [self._replace_parts(child, by) for child in expression.children]
        if all(each is None for each in changed):
            return None
        pairs = zip(changed, expression.children, strict=True)
        return self.with_children(expression.java, [own.java if each is None else each for each, own in pairs])
