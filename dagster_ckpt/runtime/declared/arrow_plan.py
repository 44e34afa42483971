"""What Arrow can do of a stream's stateless work in place of Spark: from Spark's analysed plan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError

from dagster_ckpt.runtime.catalyst.moments import moment_in
from dagster_ckpt.runtime.catalyst.reader import nodes_above
from dagster_ckpt.runtime.catalyst.trees import columns_of_frame, plan_of
from dagster_ckpt.runtime.catalyst.values import Expression, Filter, Node, Projection, SparkType
from dagster_ckpt.runtime.task.arrow_work import (
    FUNCTIONS,
    ArrowCall,
    ArrowValue,
    ArrowWork,
    ColumnAt,
    Constant,
    LeftToSparkError,
    Remainder,
    Widened,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE = {"byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64()}
"""Spark's whole numbers."""
_REAL = {"float": pa.float32(), "double": pa.float64()}
_TYPES = {
    **_WHOLE,
    **_REAL,
    "boolean": pa.bool_(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Spark's types of constants."""
_KINDS = {
    **dict.fromkeys(_WHOLE, "whole"),
    **dict.fromkeys(_REAL, "real"),
    "boolean": "boolean",
    "string": "text",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
}
"""The kinds that `ArrowFunction.kinds` names, by Spark's types."""
_CONDITIONS = {"CaseWhen", "If"}
"""Functions whose every other argument is a condition, but the last one."""
_Columns = dict[int, ArrowValue | LeftToSparkError]
"""How columns follow from those below, by Spark's number of each; or what Spark computes for one."""


def find_arrow_work(rows: "DataFrame", worked: "DataFrame", names: Sequence[str]) -> ArrowWork | None:
    """How these columns of the result follow from the columns of the rows.

    None: not by what Arrow always has a value for.
    """
    added = nodes_above(worked.sparkSession, plan_of(worked), plan_of(rows))
    try:
        work = arrow_work(added, columns_of_frame(rows), columns_of_frame(worked), names)
    except LeftToSparkError:
        return None
    return None if work.raises else work


def arrow_work(
    added: Sequence[Node], before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]], names: Sequence[str]
) -> ArrowWork:
    """How these columns of the result follow by the nodes that were added on top, the last first.

    `before` and `after` are the columns below and above them, each with Spark's number. Raises `LeftToSparkError`.
    """
    columns: _Columns = {number: ColumnAt(place) for place, (_, number) in enumerate(before)}
    where: list[ArrowValue] = []
    for node in reversed(added):
        match node:
            case Projection(columns=made):
                columns = {each.number: _value_or_reason(each, columns) for each in made if each.number is not None}
            case Filter(condition=condition):
                where += (_value(each, columns) for each in _conjuncts(condition))
            case Node(kind="SubqueryAlias"):
                pass
            case _:
                raise LeftToSparkError(f"Spark computes {node.kind}")
    numbers = dict(reversed(after))
    return ArrowWork(tuple(_column(numbers[name], columns) for name in names), tuple(where))


def _value_or_reason(made: Expression, columns: _Columns) -> ArrowValue | LeftToSparkError:
    try:
        return _value(made, columns)
    except LeftToSparkError as reason:
        return reason


def _conjuncts(condition: Expression) -> list[Expression]:
    if condition.kind == "And":
        return [each for side in condition.children for each in _conjuncts(side)]
    return [condition]


def _value(expression: Expression, columns: _Columns) -> ArrowValue:
    """The value of an expression over columns. Raises `LeftToSparkError` where it may have another in Arrow."""
    if expression.foldable and (constant := _constant(expression)) is not None:
        return constant
    match expression:
        case Expression(kind="AttributeReference", number=int(number)):
            return _column(number, columns)
        case Expression(kind="Alias", children=[child]):
            return _value(child, columns)
        case Expression(kind="Cast", children=[child]) if (wider := _wider(child.type, expression.type)) is not None:
            return Widened(_value(child, columns), wider)
        case Expression(kind="Remainder", children=[left, right]):
            by = _whole_literal(right)
            if by and left.type.name in _WHOLE:
                return Remainder(_value(left, columns), by)
        case Expression(kind=kind) if kind in FUNCTIONS and _has_known_types(kind, expression.children):
            return ArrowCall(kind, tuple(_value(each, columns) for each in expression.children))
    raise LeftToSparkError(f"Spark computes {expression.kind}")


def _column(number: int, columns: _Columns) -> ArrowValue:
    found = columns.get(number)
    if found is None:
        raise LeftToSparkError("a column is not one of the rows that are read")
    if isinstance(found, LeftToSparkError):
        raise found
    return found


def _has_known_types(function: str, arguments: Sequence[Expression]) -> bool:
    """Whether the function is the same in Arrow for arguments of these types."""
    values = arguments
    if function in _CONDITIONS:
        values = [*arguments[1::2], *(arguments[-1:] if len(arguments) % 2 else ())]
    kinds = FUNCTIONS[function].kinds
    return all(_KINDS.get(each.type.name) in kinds and not each.type.collated for each in values) and (
        len({each.type.name for each in values}) == 1
    )


def _wider(had: SparkType, wanted: SparkType) -> pa.DataType | None:
    """The type of a number that holds all values of another, or of a double."""
    if had.name in _WHOLE and wanted.name in _WHOLE:
        return _WHOLE[wanted.name] if _WHOLE[had.name].bit_width <= _WHOLE[wanted.name].bit_width else None
    return _REAL["double"] if had.name in (*_WHOLE, "float") and wanted.name == "double" else None


def _constant(expression: Expression) -> ArrowValue | None:
    """What Spark makes of an expression without columns; None: it depends on when, or Arrow has no such constant."""
    type_ = _TYPES.get(expression.type.name)
    if type_ is None or expression.type.collated or not expression.deterministic:
        return None
    if expression.kind != "Literal" and any(moment_in(part) for part in expression.parts()):
        return None
    own: Any = expression.java
    try:
        value = own.eval(None)
    except Py4JError:  # Spark says what it refuses when it comes to the first row
        return None
    if value is not None and expression.type.name == "string":
        value = str(value.toString())
    return Constant(pa.array([value], _STORED.get(type_, type_)).cast(type_))


_STORED = {pa.date32(): pa.int32(), _TYPES["timestamp"]: pa.int64(), _TYPES["timestamp_ntz"]: pa.int64()}
"""What Spark keeps a value of a type as, where that is not its own."""


def _whole_literal(expression: Expression) -> int | None:
    """The whole number above 0 that is written there, as large as its type allows."""
    type_ = _WHOLE.get(expression.type.name)
    while expression.kind == "Cast" and expression.type.name in _WHOLE:
        [expression] = expression.children
    if type_ is None or expression.type.name not in _WHOLE:
        return None
    value = expression.constant
    return value if value is not None and 0 < value < 1 << (type_.bit_width - 1) else None
