"""The aggregates of a step: `{mean_delay: {avg: dep_delay}}` is `aggregate(mean_delay=agg.avg("dep_delay"))`."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import dagster as dg

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.named_functions import called
from dagster_ckpt.integration.component.templates import render_all
from dagster_ckpt.operators import agg
from dagster_ckpt.operators.agg import Aggregation, Function

COUNT_ROWS = "count()"
_FUNCTIONS: Mapping[str, Callable[..., Aggregation]] = {
    str(each): getattr(agg, each) for each in Function if each is not Function.USER_DEFINED
}
_OPTIONS = ("other", "by", "limit", "error", "q", "accuracy")


def _of(function: str) -> Any:
    """A column, for the aggregate of this name; its description is the one in Python."""
    return dg.Resolver.default(description=inspect.getdoc(getattr(agg, function)))


class AggregateAttributes(dg.Model, dg.Resolvable):
    """One aggregate: a function and its column, such as `avg: dep_delay`, and the options of that function."""

    count: Annotated[str | None, _of("count")] = None
    sum: Annotated[str | None, _of("sum")] = None
    min: Annotated[str | None, _of("min")] = None
    max: Annotated[str | None, _of("max")] = None
    avg: Annotated[str | None, _of("avg")] = None
    first: Annotated[str | list[str] | None, _of("first")] = None
    last: Annotated[str | list[str] | None, _of("last")] = None
    stddev: Annotated[str | None, _of("stddev")] = None
    variance: Annotated[str | None, _of("variance")] = None
    stddev_pop: Annotated[str | None, _of("stddev_pop")] = None
    var_pop: Annotated[str | None, _of("var_pop")] = None
    corr: Annotated[str | None, _of("corr")] = None
    covar_pop: Annotated[str | None, _of("covar_pop")] = None
    covar_samp: Annotated[str | None, _of("covar_samp")] = None
    regr_slope: Annotated[str | None, _of("regr_slope")] = None
    regr_intercept: Annotated[str | None, _of("regr_intercept")] = None
    regr_r2: Annotated[str | None, _of("regr_r2")] = None
    count_if: Annotated[str | None, _of("count_if")] = None
    bool_and: Annotated[str | None, _of("bool_and")] = None
    bool_or: Annotated[str | None, _of("bool_or")] = None
    count_distinct: Annotated[str | None, _of("count_distinct")] = None
    sum_distinct: Annotated[str | None, _of("sum_distinct")] = None
    avg_distinct: Annotated[str | None, _of("avg_distinct")] = None
    bit_and: Annotated[str | None, _of("bit_and")] = None
    bit_or: Annotated[str | None, _of("bit_or")] = None
    bit_xor: Annotated[str | None, _of("bit_xor")] = None
    percentile: Annotated[str | None, _of("percentile")] = None
    median: Annotated[str | None, _of("median")] = None
    percentile_disc: Annotated[str | None, _of("percentile_disc")] = None
    mode: Annotated[str | None, _of("mode")] = None
    skewness: Annotated[str | None, _of("skewness")] = None
    kurtosis: Annotated[str | None, _of("kurtosis")] = None
    collect_list: Annotated[str | None, _of("collect_list")] = None
    collect_set: Annotated[str | None, _of("collect_set")] = None
    collect: Annotated[str | list[str] | None, _of("collect")] = None
    approx_count_distinct: Annotated[str | None, _of("approx_count_distinct")] = None
    approx_quantile: Annotated[str | None, _of("approx_quantile")] = None
    other: Annotated[
        str | None, dg.Resolver.default(description="The second column of corr, covar_... and regr_... (there, x).")
    ] = None
    by: Annotated[
        str | None, dg.Resolver.default(description="The column that orders first, last and collect; else event time.")
    ] = None
    limit: Annotated[int | None, dg.Resolver.default(description="The most values that collect keeps.")] = None
    error: Annotated[
        float | None, dg.Resolver.default(description="The relative standard error of approx_count_distinct.")
    ] = None
    q: Annotated[
        float | None,
        dg.Resolver.default(description="That of percentile, percentile_disc and approx_quantile, from 0 to 1."),
    ] = None
    accuracy: Annotated[
        int | None, dg.Resolver.default(description="The accuracy of approx_quantile, from 10 to 10000.")
    ] = None


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
    made: Aggregation = called("aggregate", name, given, _FUNCTIONS, _OPTIONS)
    return made


def _aggregations(
    context: dg.ResolutionContext, given: Mapping[str, AggregateAttributes | str]
) -> dict[str, Aggregation]:
    found = {}
    for name, each in given.items():
        values = each if isinstance(each, str) else each.model_dump(exclude_unset=True)
        found[name] = aggregation_of(name, render_all(context.at_path(name), values))
    return found


Aggregations = Annotated[
    dict[str, Aggregation],
    dg.Resolver(_aggregations, model_field_type=dict[str, AggregateAttributes.model() | Literal["count()"]]),  # type: ignore[misc]
]
