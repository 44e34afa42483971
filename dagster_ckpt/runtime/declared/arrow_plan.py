"""Whether what Spark does between two steps is so little that a task can do it itself: from Spark's analysed plan."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dagster_ckpt.runtime.catalyst.query_plan import column_number, columns_of, each_of, kind_of, plan_of
from dagster_ckpt.runtime.task.arrow_work import ArrowValue, ArrowWork, ColumnAt, Remainder, Widened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WHOLE_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Spark's whole numbers."""
_Columns = dict[int, ArrowValue]
"""How columns follow from those of the changes, by Spark's number of each."""


def arrow_work_of(rows: "DataFrame", worked: "DataFrame", names: Sequence[str]) -> ArrowWork | None:
    """How these columns of the result follow from the columns of the rows.

    None: not by selecting, renaming and the arithmetic of `arrow_work` alone.
    """
    base, node = plan_of(rows), plan_of(worked)
    projects = []
    while not node.fastEquals(base):
        children = list(each_of(node.children()))
        if len(children) != 1 or kind_of(node) not in ("Project", "SubqueryAlias"):
            return None
        if kind_of(node) == "Project":
            projects.append(node)
        [node] = children
    columns: _Columns = {number: ColumnAt(place) for place, (_, number) in enumerate(columns_of(node.output()))}
    for project in reversed(projects):
        values = {column_number(each): _value(each, columns) for each in each_of(project.projectList())}
        columns = {number: value for number, value in values.items() if value is not None}
    by_name = {name: columns.get(number) for name, number in reversed(columns_of(plan_of(worked).output()))}
    found = tuple(value for name in names if (value := by_name.get(name)) is not None)
    return found if len(found) == len(names) else None


def _value(expression: Any, columns: _Columns) -> ArrowValue | None:
    """The value of an expression over columns; None: it has another meaning, or may have one."""
    match kind_of(expression):
        case "AttributeReference":
            return columns.get(column_number(expression))
        case "Alias":
            return _value(expression.child(), columns)
        case "Cast":
            bits, had = _bits(expression), _bits(expression.child())
            value = _value(expression.child(), columns)
            return None if value is None or bits is None or had is None or bits < had else Widened(value, bits)
        case "Remainder":
            value, by = _value(expression.left(), columns), _whole_literal(expression.right())
            return None if value is None or _bits(expression.left()) is None or not by else Remainder(value, by)
    return None


def _whole_literal(expression: Any) -> int | None:
    """The whole number above 0 that is written there, as large as its type allows."""
    bits = _bits(expression)
    while kind_of(expression) == "Cast" and _bits(expression) is not None:
        expression = expression.child()
    if bits is None or kind_of(expression) != "Literal" or _bits(expression) is None:
        return None
    value = expression.value()
    return int(value) if value is not None and 0 < int(value) < 1 << (bits - 1) else None


def _bits(expression: Any) -> int | None:
    return _WHOLE_BITS.get(str(expression.dataType().simpleString()))
