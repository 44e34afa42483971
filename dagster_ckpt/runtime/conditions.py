"""A condition on the rows of a table that changes: as text, and whether it always says the same of the same row."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OF_THE_MOMENT = ("CurrentDate", "CurrentTime", "CurrentTimestamp", "LocalTimestamp", "Now", "CurrentBatchTimestamp")
"""Expressions that Spark calls deterministic, because within one micro-batch they are."""
_OF_ANOTHER_TABLE = ("ScalarSubquery", "InSubquery", "Exists")
"""Expressions that ask other rows, which may be others later."""


def text_of(condition: "str | Column") -> str:
    """The condition as people read it; part of the stream's fingerprint."""
    if isinstance(condition, str):
        return condition
    column: Any = condition
    return str(column._jc.toString())  # noqa: SLF001  (str() adds to it)


def check_judges_by_values(filtered: "DataFrame", condition: "str | Column") -> None:
    """Raise `InvalidPipelineError` for a condition that could say one thing of a row when it comes, another later.

    `filtered` is the DataFrame that it was just applied to.
    """
    plan: Any = filtered._jdf.queryExecution().analyzed()  # noqa: SLF001  (there is no other way to it)
    expression = plan.condition()
    if CHANGE_TYPE in _columns(expression):
        raise InvalidPipelineError(
            f"this column says whether a row comes or goes, which the stream follows by itself: leave it out of the "
            f"condition. column={CHANGE_TYPE}, condition={text_of(condition)}"
        )
    names = {str(node.getClass().getSimpleName()) for node in _nodes(expression)}
    if not names.isdisjoint(_OF_ANOTHER_TABLE):
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition asks another table, whose rows may be "
            "others when a row goes than when it came: use the row's values only. "
            f"condition={text_of(condition)}"
        )
    if not names.isdisjoint(_OF_THE_MOMENT) or not expression.deterministic():
        raise InvalidPipelineError(
            "the upstream table updates and deletes rows, and this condition may say one thing of a row when it comes "
            "and another when it goes: use the row's values only, not the time of day or chance. "
            f"condition={text_of(condition)}"
        )


def _columns(expression: Any) -> Iterator[str]:
    references = expression.references().iterator()
    while references.hasNext():
        yield str(references.next().name())


def _nodes(expression: Any) -> Iterator[Any]:
    yield expression
    children = expression.children().iterator()
    while children.hasNext():
        yield from _nodes(children.next())
