"""Keys of a query as columns that a step can have as keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.plans.catalyst import Catalyst, Expression

_BY_TEXT = ("float", "double")
"""Types whose text is exact, and a key where they are none."""


@dataclass(frozen=True)
class Key:
    """An expression of a key. A step has `columns` for it; `value` makes the expression again of these."""

    catalyst: Catalyst
    expression: Expression

    def columns(self) -> list[Expression]:
        """What the step has as keys: a struct's fields, and of a type that is no key its text, which is exact."""
        return list(self._columns(self.expression))

    def compared(self) -> list[Expression]:
        """What a join has as keys, where null equals nothing: but within a struct it equals null."""
        catalyst = self.catalyst
        if str(self.expression.dataType().typeName()) != "struct":
            return self.columns()
        whole, *fields = self.columns()
        known = catalyst.only_if(catalyst.expressions.Not(whole), whole)
        return [known, *(part for each in fields for part in catalyst.comparable(each))]

    def value(self, columns: Sequence[Expression]) -> Expression:
        """The key's value, from the step's columns."""
        return self._value(self.expression.dataType(), iter(columns))

    def _columns(self, expression: Expression) -> Iterator[Expression]:
        catalyst, type_ = self.catalyst, expression.dataType()
        name = str(type_.typeName())
        if name == "struct":
            yield catalyst.expressions.IsNull(expression)
            for number in range(len(type_.fields())):
                yield from self._columns(catalyst.field(expression, number))
        elif name in ("array", "map", "variant"):
            raise InvalidPipelineError(
                "rows are not brought together by values of this type: group or join by its parts. "
                f"found={expression.sql()}, type={type_.simpleString()}"
            )
        elif name in _BY_TEXT or name.startswith("interval "):
            yield catalyst.cast(expression, catalyst.type_of("string"))
        else:
            yield expression

    def _value(self, type_: object, columns: Iterator[Expression]) -> Expression:
        catalyst = self.catalyst
        kind = str(type_.typeName())  # type: ignore[attr-defined]  # in the JVM
        if kind != "struct":
            return catalyst.cast(next(columns), type_)
        is_null = next(columns)
        fields = list(type_.fields())  # type: ignore[attr-defined]
        made = catalyst.struct([(str(f.name()), self._value(f.dataType(), columns)) for f in fields])
        return catalyst.expressions.If(is_null, catalyst.null_of(type_), catalyst.cast(made, type_))
