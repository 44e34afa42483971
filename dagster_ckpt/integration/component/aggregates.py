"""The aggregates of a step: `{mean_delay: {avg: dep_delay}}` is `aggregate(mean_delay=agg.avg("dep_delay"))`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import create_model

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.named_functions import call
from dagster_ckpt.integration.component.templates import render_all
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS

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


def _column_of(call: Callable[..., Aggregation]) -> Any:
    """The attribute of a function: its column, or several if it takes several. Its description is the one in Python."""
    [takes, *_] = inspect.signature(call).parameters.values()
    return _attribute(str if takes.annotation in (str, str | None) else str | list[str], inspect.getdoc(call))


class _Attributes(dg.Model, dg.Resolvable):
    pass


AggregateAttributes = create_model(
    "AggregateAttributes",
    __base__=_Attributes,
    __doc__="One aggregate: a function and its column, such as `avg: dep_delay`, and the options of that function.",
    **{name: _column_of(call) for name, call in _FUNCTIONS.items()},
    **{name: _attribute(*option) for name, option in _OPTIONS.items()},
)


def aggregation_of(name: str, given: Mapping[str, Any] | str) -> Aggregation:
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
        found[name] = aggregation_of(name, render_all(context.at_path(name), values))
    return found


Aggregations = Annotated[
    dict[str, Aggregation],
    dg.Resolver(_aggregations, model_field_type=dict[str, AggregateAttributes.model() | Literal["count()"]]),  # type: ignore[misc]
]
