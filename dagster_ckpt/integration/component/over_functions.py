"""The functions of `over`: `{before: {lag: delay}}` is `over(..., before=over.lag("delay"))`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.named_functions import call
from dagster_ckpt.integration.component.templates import Scalar, render_all
from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Over

_OfNothing = Literal["row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "count()"]
"""The functions that are written as a text, since they are of no column."""

_OF_COLUMN: Mapping[str, Callable[..., Over]] = {
    each.__name__: each
    for each in (
        *(over.ntile, over.lag, over.lead, over.first_value, over.last_value, over.nth_value),
        *(over.count, over.sum, over.min, over.max, over.avg, over.session_start),
    )
}
_OPTIONS = ("offset", "default", "n", "rows", "range")
_ALL = "*"
"""What `count` has for a column if it counts rows, as in SQL."""

_Frame = tuple[int | None, int | None]


def _of(function: str) -> Any:
    """The description is the one in Python."""
    return dg.Resolver.default(description=inspect.getdoc(getattr(over, function)))


class OverAttributes(dg.Model, dg.Resolvable):
    """One function: its name and column, such as `lag: dep_delay`, and the options of that function."""

    count: Annotated[str | None, _of("count")] = None
    sum: Annotated[str | None, _of("sum")] = None
    min: Annotated[str | None, _of("min")] = None
    max: Annotated[str | None, _of("max")] = None
    avg: Annotated[str | None, _of("avg")] = None
    lag: Annotated[str | None, _of("lag")] = None
    lead: Annotated[str | None, _of("lead")] = None
    first_value: Annotated[str | None, _of("first_value")] = None
    last_value: Annotated[str | None, _of("last_value")] = None
    nth_value: Annotated[str | None, _of("nth_value")] = None
    session_start: Annotated[str | None, _of("session_start")] = None
    ntile: Annotated[int | None, _of("ntile")] = None
    offset: Annotated[int | None, dg.Resolver.default(description="The distance of lag and lead, 1 by default.")] = None
    default: Annotated[
        Scalar | None, dg.Resolver.default(description="What lag and lead give where there is no such row.")
    ] = None
    n: Annotated[int | None, dg.Resolver.default(description="Which row of the frame nth_value takes, from 1.")] = None
    rows: Annotated[
        _Frame | None,
        dg.Resolver.default(
            description="The frame, in rows from the current one; null is the end of the partition.",
            examples=[[-9, 0]],
        ),
    ] = None
    range: Annotated[
        _Frame | None,
        dg.Resolver.default(
            description="The frame, where 0 includes all rows that are equal in the order.", examples=[[None, 0]]
        ),
    ] = None


def function_of(name: str, given: Mapping[str, Any] | str) -> Over:
    """The function of these attributes. `name` is the column that it makes, for the error.

    Raises `InvalidPipelineError` as `call` does.
    """
    if isinstance(given, str):
        of_nothing = get_args(_OfNothing)
        if given not in of_nothing:
            raise InvalidPipelineError(
                f"write {', '.join(of_nothing)}, and any other function with its column, such as {{lag: dep_delay}}. "
                f"over={name}, given={given}"
            )
        without: Over = getattr(over, given.removesuffix("()"))()
        return without
    values = {
        each: tuple(value) if each in {"rows", "range"} and value is not None else value
        for each, value in given.items()
    }
    if values.get("count") == _ALL:
        values["count"] = None
    made: Over = call("over", name, values, _OF_COLUMN, _OPTIONS)
    return made


def _functions(context: dg.ResolutionContext, given: Mapping[str, OverAttributes | str]) -> dict[str, Over]:
    found = {}
    for name, each in given.items():
        values = each if isinstance(each, str) else each.model_dump(exclude_unset=True)
        found[name] = function_of(name, render_all(context.at_path(name), values))
    return found


OverFunctions = Annotated[
    dict[str, Over],
    dg.Resolver(
        _functions,
        model_field_type=dict[str, OverAttributes.model() | _OfNothing],  # type: ignore[misc]
        description="A column for each function, by its name.",
        examples=[{"place": "row_number()", "before": {"lag": "dep_delay"}}],
    ),
]
