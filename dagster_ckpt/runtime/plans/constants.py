"""Rows that a query has in its text, such as VALUES, as rows of a stream: they come with the first epoch."""

from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.declared.query_plan import each_of
from dagster_ckpt.runtime.plans.catalyst import Node
from dagster_ckpt.runtime.plans.parts import Part

if TYPE_CHECKING:
    from dagster_ckpt.runtime.plans.compiler import Compiler

_ROWS_MAX = 1_000
"""Each row is a part of the plan."""


def constants(compiler: "Compiler", plan: Node, streaming: Node) -> Part:
    """The rows of a plan that does not stream. `streaming` is any node of the query that does.

    They stand beside the one row of an aggregate of nothing, which is there from the first epoch on.

    Raises `InvalidPipelineError` for a plan that reads a table.
    """
    catalyst, output = compiler.catalyst, list(each_of(plan.output()))
    rows = catalyst.constant_rows(plan, _ROWS_MAX)
    if rows is None:
        columns = ", ".join(str(each.name()) for each in output)
        raise InvalidPipelineError(
            "rows of a table that does not stream are beside rows that do: read the table as a stream. "
            f"found=Union, table={columns}"
        )
    _, _, one = catalyst.counted(catalyst.constant(1), catalyst.filtered(catalyst.constant(False), streaming))
    values = [[catalyst.field(row, place) for place in range(len(output))] for row in rows]
    return compiler.part(one).then(
        lambda below, beside: catalyst.expanded([[*each, *beside] for each in values], [*output, *beside], below),
        output,
    )
