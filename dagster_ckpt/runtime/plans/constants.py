"""Rows that a query has in its text, such as VALUES, as rows of a stream: they come with the first epoch, and stay."""

from typing import TYPE_CHECKING

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import agg
from dagster_ckpt.runtime.catalyst.values import Node
from dagster_ckpt.runtime.declared.stream import global_aggregate
from dagster_ckpt.runtime.plans.parts import Part, types_of

if TYPE_CHECKING:
    from dagster_ckpt.runtime.plans.compiler import Compiler


def constants(compiler: "Compiler", plan: Node) -> Part:
    """The rows of a plan that does not stream. Raises `InvalidPipelineError` for one that reads a table."""
    catalyst = compiler.catalyst
    if not catalyst.is_constant(plan):
        raise InvalidPipelineError(
            "rows of a table that does not stream would be added once more in each epoch: read the table as a "
            f"stream. found={plan.java.nodeName()}, columns={', '.join(name for name, _ in plan.output)}"
        )
    output = catalyst.output_of(plan)
    inline = catalyst.expressions.Inline(catalyst.constants_of(plan))
    own = catalyst.projection(output)
    return compiler.one_row.then(lambda below, beside: own(catalyst.generated(inline, output, below), beside), output)


def one_row(compiler: "Compiler", leaf: Node) -> Part:
    """One row that is there from the first epoch on: that of an aggregate, as in SQL, here of no rows of the leaf."""
    catalyst = compiler.catalyst
    nothing = compiler.part(catalyst.read(catalyst.filtered(catalyst.constant(False), leaf.java)))
    column = catalyst.null_of(catalyst.type_of("boolean"))
    made = global_aggregate(nothing.columns([column], ["v0"]), {"a0": agg.count("v0")})
    [type_] = types_of(made, 1)
    return Part(catalyst, (), stream=made, attributes=(catalyst.attribute("a0", type_),))
