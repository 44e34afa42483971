"""Values of other types, and values that are equal where Spark calls them so."""

from typing import Any

from py4j.java_gateway import get_field

from dagster_ckpt.runtime.catalyst.builders.expressions import ExpressionBuilder
from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.trees import each_of, kind_of, nodes
from dagster_ckpt.runtime.catalyst.values import Columns, Java, SparkType


class Conversions:
    """Makes the same value in another type, as a text, or by a collation."""

    def __init__(self, jvm: Packages, make: ExpressionBuilder) -> None:
        self._jvm, self._make = jvm, make

    def cast(self, expression: Java, type_: SparkType) -> Java:
        """The expression with this type."""
        return self._jvm.planner.cast(expression, type_.java, self._jvm.conf)

    def cast_like(self, expression: Java, other: Java) -> Java:
        """The expression with the type of another."""
        return self._jvm.planner.castLike(expression, other, self._jvm.conf)

    def cast_to_text(self, expression: Java) -> Java:
        return self._jvm.planner.cast(expression, self._jvm.type("string"), self._jvm.conf)

    def cast_to_int(self, expression: Java) -> Java:
        return self._jvm.planner.cast(expression, self._jvm.type("int"), self._jvm.conf)

    def by_collation(self, value: Java) -> Java:
        """The value with Spark's keys in place of its text with a collation, at any depth; without such the value.

        Keys are binary, and equal where the texts are, and have their order.
        """
        return self._jvm.expressions.CollationKey.injectCollationKey(value)

    def without_collation(self, value: Java) -> Java:
        """The value with its text as it is, to be compared by its bytes."""
        return self._jvm.planner.withoutCollation(value, self._jvm.conf)

    def one_zero(self, number: Java) -> Java:
        """A floating-point number, 0.0 for -0.0, and one NaN for all."""
        known = kind_of(number) == "KnownFloatingPointNormalized"
        return number if known else self._jvm.rules.NormalizeNaNAndZero(number)

    def one_zero_within(self, value: Java) -> Java:
        """The same of all floating-point numbers within a value."""
        return self._jvm.rules.single("NormalizeFloatingNumbers").normalize(value)

    def json_of(self, value: Java) -> Java:
        """An array or a struct as a text in JSON."""
        return self._make.with_children(self._jvm.resolve_expression("to_json(array(1))"), [value])

    def of_json(self, text: Java, type_: SparkType) -> Java:
        """A value of this type from a text in JSON."""
        return self._of_json(text, type_.java)

    def list_of_json(self, text: Java, type_: SparkType) -> Java:
        """An array of values of this type, none of them null, from a text in JSON."""
        return self._of_json(text, self._jvm.types.ArrayType(type_.java, False))

    def _of_json(self, text: Java, type_: Any) -> Java:
        schema = str(type_.asNullable().sql()).replace("\\", "\\\\").replace("'", "\\'")
        return self._make.with_children(self._jvm.resolve_expression(f"from_json('', '{schema}')"), [text])

    def scalar_or_error(self, rows: Java, value: Java, error: str) -> Java:
        """The value; where the number of rows is above one, an error in its place."""
        number = self.cast_like(self._make.constant(1), rows)
        raises = self.cast_like(self._jvm.resolve_expression(f"raise_error('{error}')"), value)
        return self._make.if_else(self._make.greater(rows, number), raises, value)

    def are_collated(self, attributes: Columns) -> bool:
        """Whether one of these has text, at any depth, whose collation decides what is equal."""
        types = self._jvm.data_types.single("DataTypeUtils").fromAttributes(attributes)
        return not self._jvm.rows.single("UnsafeRowUtils").isBinaryStable(types)

    def differ_in_collations(self, one: SparkType, other: SparkType) -> bool:
        """Whether two types differ in the collations of their text alone."""
        return bool(self._plain(one).equals(self._plain(other)))

    def _plain(self, type_: SparkType) -> Any:
        return self._jvm.schemas.single("SchemaUtils").replaceCollatedStringWithString(type_.java).asNullable()

    def collation_keys_in(self, plan: Java) -> set[str]:
        """The collations whose keys a plan computes, each with the version of its rules."""
        parts = (part for node in nodes(plan) for each in each_of(node.expressions()) for part in nodes(each))
        keys = (part for part in parts if kind_of(part) == "CollationKey")
        factory = self._jvm.rows.CollationFactory
        found = {str(each.child().dataType().collationId()) for each in keys}
        versions = {number: get_field(factory.fetchCollation(int(number)), "version") for number in found}
        return {f"{factory.fullyQualifiedName(int(number))} {version}" for number, version in versions.items()}
