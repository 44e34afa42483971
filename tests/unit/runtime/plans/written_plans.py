"""Expressions as values that no JVM has read, and a planner that writes down what is built of them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dagster_ckpt.runtime.catalyst.values import (
    AggregateCall,
    Expression,
    Java,
    SortTerm,
    SparkType,
    WindowCall,
    WindowFrame,
    WindowSpec,
)

LONG, TEXT, DOUBLE = SparkType("long"), SparkType("string"), SparkType("double")
LCASE = SparkType("string collate UTF8_LCASE", collated=True)
START, ROW, END = "UnboundedPreceding", "CurrentRow", "UnboundedFollowing"


class Written:
    """A planner: what it builds is a text, `greater(n, constant(0))`. `types` are those of what it is asked about."""

    def __init__(self, **types: SparkType) -> None:
        self._types = types

    @property
    def make(self) -> "Written":
        return self

    build = calls = convert = make

    def __getattr__(self, name: str) -> Any:
        return lambda *parts: f"{name}({', '.join(map(_text, parts))})"

    def types_of(self, expressions: Sequence[object]) -> list[SparkType]:
        return [self._types.get(str(each), LONG) for each in expressions]

    def constant_of(self, expression: Expression) -> object:
        return expression.constant

    def replace_parts(self, expression: Expression, by: Callable[[Expression], Java | None]) -> Java:
        new = by(expression)
        if new is not None:
            return new
        parts = ", ".join(str(self.replace_parts(each, by)) for each in expression.children)
        return Java(f"{expression.kind}({parts})") if expression.children else expression.java

    def are_equal(self, one: object, other: object) -> bool:
        return one == other

    def sql_of(self, expression: object) -> str:
        return str(expression)

    type_text_of = sql_of


def written(**types: SparkType) -> Any:
    return Written(**types)


def texts(built: Iterable[object]) -> list[str]:
    return list(map(str, built))


def _text(argument: object) -> str:
    match argument:
        case Expression():
            return argument.name or argument.kind
        case SparkType():
            return argument.name
        case list() | tuple() | map():
            return f"[{', '.join(map(_text, argument))}]"
    return str(argument)


def column(name: str, type_: SparkType = LONG, *, nullable: bool = True, number: int = 1) -> Expression:
    return Expression(
        "AttributeReference", type=type_, name=name, number=number, nullable=nullable, from_jvm=lambda: Java(name)
    )


def literal(value: int | None, type_: SparkType = LONG) -> Expression:
    return Expression(
        "Literal", type=type_, constant=value, foldable=True, nullable=value is None, from_jvm=lambda: Java(str(value))
    )


def function(kind: str, *children: Expression, **fields: object) -> Expression:
    return Expression(kind, children, fields=fields, from_jvm=lambda: Java(kind.lower()))


def aggregate(of: Expression, *, distinct: bool = False, where: Expression | None = None) -> AggregateCall:
    return AggregateCall(
        "AggregateExpression", function=of, distinct=distinct, where=where, from_jvm=lambda: Java(f"{of.java}()")
    )


def term(by: Expression, *, ascends: bool = True, nulls_first: bool = True) -> SortTerm:
    return SortTerm(
        "SortOrder", (by,), by=by, ascends=ascends, nulls_first=nulls_first, from_jvm=lambda: Java(f"order({by.name})")
    )


def over(
    called: Expression,
    *order: SortTerm,
    keys: Sequence[Expression] = (),
    frame: tuple[str | int, str | int] = (START, ROW),
    by_rows: bool = True,
    distances: SparkType = LONG,
) -> WindowCall:
    bounds = [Expression(each) if isinstance(each, str) else literal(each, distances) for each in frame]
    spec = WindowSpec(
        "WindowSpecDefinition",
        keys=tuple(keys),
        order=order,
        frame=WindowFrame("SpecifiedWindowFrame", by_rows=by_rows, lower=bounds[0], upper=bounds[1]),
        from_jvm=lambda: Java("spec"),
    )
    return WindowCall("WindowExpression", function=called, over=spec, from_jvm=lambda: Java(f"{called.kind} OVER"))
