"""Whether what Spark does between two steps is so little that a task can do it itself: from Spark's analysed plan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dagster_ckpt.runtime.catalyst.reader import nodes_above
from dagster_ckpt.runtime.catalyst.trees import columns_of_frame, plan_of
from dagster_ckpt.runtime.catalyst.values import Expression
from dagster_ckpt.runtime.task.arrow_work import ArrowValue, ArrowWork, ColumnAt, Remainder, Widened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Spark's whole numbers."""
_Columns = dict[int, ArrowValue]
"""How columns follow from those of the changes, by Spark's number of each."""


def find_arrow_work(rows: "DataFrame", worked: "DataFrame", names: Sequence[str]) -> ArrowWork | None:
    """How these columns of the result follow from the columns of the rows.

    None: not by selecting, renaming and the arithmetic of `arrow_work` alone.
    """
    added = nodes_above(worked.sparkSession, plan_of(worked), plan_of(rows))
    if any(node.kind not in ("Project", "SubqueryAlias") for node in added):
        return None
    before = columns_of_frame(rows)
    columns: _Columns = {number: ColumnAt(place) for place, (_, number) in enumerate(before)}
    for project in reversed(added):
        if project.kind == "Project":
            values = {each.number: _value(each, columns) for each in project.expressions}
            columns = {number: value for number, value in values.items() if number is not None and value is not None}
    by_name = {name: columns.get(number) for name, number in reversed(columns_of_frame(worked))}
    found = tuple(value for name in names if (value := by_name.get(name)) is not None)
    return found if len(found) == len(names) else None


def _value(expression: Expression, columns: _Columns) -> ArrowValue | None:
    """The value of an expression over columns; None: it has another meaning, or may have one."""
    match expression:
        case Expression(kind="AttributeReference", number=int(number)):
            return columns.get(number)
        case Expression(kind="Alias", children=[child]):
            return _value(child, columns)
        case Expression(kind="Cast", children=[child]):
            bits, had = _WHOLE_BITS.get(expression.type.name), _WHOLE_BITS.get(child.type.name)
            value = _value(child, columns)
            return None if value is None or bits is None or had is None or bits < had else Widened(value, bits)
        case Expression(kind="Remainder", children=[left, right]):
            value, by = _value(left, columns), _whole_literal(right)
            return None if value is None or left.type.name not in _WHOLE_BITS or not by else Remainder(value, by)
    return None


def _whole_literal(expression: Expression) -> int | None:
    """The whole number above 0 that is written there, as large as its type allows."""
    bits = _WHOLE_BITS.get(expression.type.name)
    while expression.kind == "Cast" and expression.type.name in _WHOLE_BITS:
        [expression] = expression.children
    if bits is None or expression.type.name not in _WHOLE_BITS:
        return None
    value = expression.constant
    return value if value is not None and 0 < value < 1 << (bits - 1) else None
