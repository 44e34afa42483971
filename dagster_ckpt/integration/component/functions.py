"""The functions of a step in YAML: a function's name with its column, and its options.

`{mean_delay: {avg: dep_delay}}` is `aggregate(mean_delay=agg.avg("dep_delay"))`, and `{before: {lag: delay}}` is
`over(..., before=over.lag("delay"))`.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, get_args

import dagster as dg
from pydantic import create_model

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.templates import Scalar, render_all
from dagster_ckpt.operators import agg, over
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.over import Over

_WithoutColumn = Literal["row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "count()"]
"""The functions that are written as a text, since they are of no column."""

_OVER_FUNCTIONS: Mapping[str, Callable[..., Over]] = {
    each.__name__: each
    for each in (
        *(over.ntile, over.lag, over.lead, over.first_value, over.last_value, over.nth_value),
        *(over.count, over.sum, over.min, over.max, over.avg, over.session_start),
    )
}
_OVER_OPTIONS = ("offset", "default", "n", "rows", "range")
_ALL = "*"
"""What `count` has for a column if it counts rows, as in SQL."""

_Frame = tuple[int | None, int | None]


def _resolver(function: str) -> Any:
    """The description is the one in Python."""
    return dg.Resolver.default(description=inspect.getdoc(getattr(over, function)))


class OverAttributes(dg.Model, dg.Resolvable):
    """One function: its name and column, such as `lag: dep_delay`, and the options of that function."""

    count: Annotated[str | None, _resolver("count")] = None
    sum: Annotated[str | None, _resolver("sum")] = None
    min: Annotated[str | None, _resolver("min")] = None
    max: Annotated[str | None, _resolver("max")] = None
    avg: Annotated[str | None, _resolver("avg")] = None
    lag: Annotated[str | None, _resolver("lag")] = None
    lead: Annotated[str | None, _resolver("lead")] = None
    first_value: Annotated[str | None, _resolver("first_value")] = None
    last_value: Annotated[str | None, _resolver("last_value")] = None
    nth_value: Annotated[str | None, _resolver("nth_value")] = None
    session_start: Annotated[str | None, _resolver("session_start")] = None
    ntile: Annotated[int | None, _resolver("ntile")] = None
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


def build_over(name: str, given: Mapping[str, Any] | str) -> Over:
    """The function of these attributes. `name` is the column that it makes, for the error.

    Raises `InvalidPipelineError` as `call` does.
    """
    if isinstance(given, str):
        of_nothing = get_args(_WithoutColumn)
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
    made: Over = call("over", name, values, _OVER_FUNCTIONS, _OVER_OPTIONS)
    return made


def _functions(context: dg.ResolutionContext, given: Mapping[str, OverAttributes | str]) -> dict[str, Over]:
    found = {}
    for name, each in given.items():
        values = each if isinstance(each, str) else each.model_dump(exclude_unset=True)
        found[name] = build_over(name, render_all(context.at_path(name), values))
    return found


OverFunctions = Annotated[
    dict[str, Over],
    dg.Resolver(
        _functions,
        model_field_type=dict[str, OverAttributes.model() | _WithoutColumn],  # type: ignore[misc]
        description="A column for each function, by its name.",
        examples=[{"place": "row_number()", "before": {"lag": "dep_delay"}}],
    ),
]


def call(
    what: str,
    name: str,
    given: Mapping[str, Any],
    functions: Mapping[str, Callable[..., Any]],
    options: Collection[str],
) -> Any:
    """What one of the functions returns for these values: its own name has the first argument, the others are options.

    `what` is the kind of function and `name` the column that it makes, for the error. Raises `InvalidPipelineError` for
    no function or several, and for options that the function does not take or lacks.
    """
    chosen = [each for each in given if each not in options]
    if len(chosen) != 1 or chosen[0] not in functions:
        raise InvalidPipelineError(
            f"write one function of a column, such as {{avg: dep_delay}}. {what}={name}, given={chosen}"
        )
    [function] = chosen
    others = {option: value for option, value in given.items() if option in options}
    _, *takes = inspect.signature(functions[function]).parameters.values()
    lacks = [each.name for each in takes if each.default is inspect.Parameter.empty and each.name not in others]
    known = [each.name for each in takes]
    if lacks or not others.keys() <= set(known):
        raise InvalidPipelineError(
            f"these options do not fit the function: {function} takes {known}. "
            f"{what}={name}, options={list(others)}, missing={lacks}"
        )
    return functions[function](given[function], **others)


COUNT_ROWS = "count()"
_FUNCTIONS: Mapping[str, Callable[..., Aggregation]] = {
    name: spec.call for name, spec in FUNCTIONS.items() if spec.is_of_column
}


_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "other": (str, "The second column of corr, covar_... and regr_... (there, x)."),
    "by": (str, "The column that orders first, last and collect; else event time."),
    "limit": (int, "The most values that collect keeps."),
    "error": (float, "The relative standard error of approx_count_distinct."),
    "q": (float, "That of percentile, percentile_disc and approx_quantile, from 0 to 1."),
    "accuracy": (int, "The accuracy of approx_quantile, from 10 to 10000."),
}


def _attribute(type_: Any, description: str | None) -> Any:
    return (Annotated[type_ | None, dg.Resolver.default(description=description)], None)


def _column_attribute(call: Callable[..., Aggregation]) -> Any:
    """The attribute of a function: its column, or several if it takes several. Its description is the one in Python."""
    [takes, *_] = inspect.signature(call).parameters.values()
    return _attribute(str if takes.annotation in (str, str | None) else str | list[str], inspect.getdoc(call))


class _Attributes(dg.Model, dg.Resolvable):
    pass


AggregateAttributes = create_model(
    "AggregateAttributes",
    __base__=_Attributes,
    __doc__="One aggregate: a function and its column, such as `avg: dep_delay`, and the options of that function.",
    **{name: _column_attribute(call) for name, call in _FUNCTIONS.items()},
    **{name: _attribute(*option) for name, option in _OPTIONS.items()},
)


def build_aggregation(name: str, given: Mapping[str, Any] | str) -> Aggregation:
    """The aggregate of these attributes. `name` is the column that it makes, for the error.

    Raises `InvalidPipelineError` for no function or several, and for options that the function does not take or lacks.
    """
    if isinstance(given, str):
        if given != COUNT_ROWS:
            raise InvalidPipelineError(
                f"write {COUNT_ROWS} for the number of rows, and any other aggregate with its column, such as "
                f"{{avg: dep_delay}}. aggregate={name}, given={given}"
            )
        return agg.count()
    made: Aggregation = call("aggregate", name, given, _FUNCTIONS, _OPTIONS)
    return made


def _aggregations(context: dg.ResolutionContext, given: Mapping[str, _Attributes | str]) -> dict[str, Aggregation]:
    found = {}
    for name, each in given.items():
        values = each if isinstance(each, str) else each.model_dump(exclude_unset=True)
        found[name] = build_aggregation(name, render_all(context.at_path(name), values))
    return found


Aggregations = Annotated[
    dict[str, Aggregation],
    dg.Resolver(_aggregations, model_field_type=dict[str, AggregateAttributes.model() | Literal["count()"]]),  # type: ignore[misc]
]
