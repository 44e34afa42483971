"""What an aggregate may be, over rows that only come and where they are retracted: see also `pipeline_checks`."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.agg import NOW, Aggregation, Function
from dagster_ckpt.operators.aggregates.kinds import sketches
from dagster_ckpt.operators.shared.arrays.value_order import is_comparable, is_orderable
from dagster_ckpt.operators.shared.checks.pipeline_checks import check_column, is_number
from dagster_ckpt.operators.shared.checks.updating_checks import check_changes, check_keys_stay

_PAIRS = (
    Function.CORR,
    Function.COVAR_POP,
    Function.COVAR_SAMP,
    Function.REGR_SLOPE,
    Function.REGR_INTERCEPT,
    Function.REGR_R2,
)
_NUMERIC = (
    Function.SUM,
    Function.AVG,
    Function.STDDEV,
    Function.VARIANCE,
    Function.STDDEV_POP,
    Function.VAR_POP,
    Function.APPROX_QUANTILE,
    Function.PERCENTILE,
    Function.MEDIAN,
    Function.SKEWNESS,
    Function.KURTOSIS,
    Function.SUM_DISTINCT,
    Function.AVG_DISTINCT,
    *_PAIRS,
)
_WHOLE = (Function.BIT_AND, Function.BIT_OR, Function.BIT_XOR)
_BOOLEAN = (Function.COUNT_IF, Function.BOOL_AND, Function.BOOL_OR)
_ORDERED = (
    Function.MIN,
    Function.MAX,
    Function.FIRST,
    Function.LAST,
    Function.COUNT_DISTINCT,
    Function.COLLECT,
    Function.COLLECT_LIST,
    Function.COLLECT_SET,
    Function.PERCENTILE_DISC,
    Function.MODE,
    Function.APPROX_COUNT_DISTINCT,
)
_ERROR_MIN, _ERROR_MAX = 0.005, 0.25
_ACCURACY_MIN, _ACCURACY_MAX = 10, 10_000
_SKETCH = "a sketch cannot forget a value"
_NO_RETRACTION: Mapping[Function, str] = {
    Function.APPROX_COUNT_DISTINCT: f"{_SKETCH}. Use count_distinct",
    Function.APPROX_QUANTILE: f"{_SKETCH}. Use percentile",
}


def check_aggregations(
    aggregations: Mapping[str, Aggregation], keys: tuple[str, ...], schema: pa.Schema, event_time: str | None
) -> None:
    """At least one aggregate, each with a distinct name, over columns that exist and fit."""
    if not aggregations:
        raise InvalidPipelineError("an aggregate needs something to compute, such as rows=agg.count(). aggregates=()")
    taken = {key.casefold() for key in keys}
    for name, aggregation in aggregations.items():
        if not isinstance(aggregation, Aggregation):
            raise InvalidPipelineError(
                f"write an aggregate as agg.sum('column'). aggregate={name}, got={aggregation!r}"
            )
        if name.startswith("_") or not name:
            raise InvalidPipelineError(
                f"a name that begins with _ is the engine's own: choose another. aggregate={name}"
            )
        if name.casefold() in taken:
            raise InvalidPipelineError(f"the table has a column of this name already: choose another. aggregate={name}")
        taken.add(name.casefold())
        _check_aggregation(name, aggregation, schema, event_time)


def _check_options(name: str, aggregation: Aggregation) -> None:
    """The options besides columns are valid, and the library that the function needs is installed."""
    where = f"aggregate={name}, column={aggregation.column}"
    _check_since(aggregation.since, where)
    match aggregation.function:
        case Function.COLLECT:
            if not _is_whole(aggregation.limit, 1, 2**31 - 1):
                raise InvalidPipelineError(
                    f"collect needs the most values that a list may have: collect(column, limit), a whole number from "
                    f"1 on. {where}, limit={aggregation.limit!r}"
                )
        case Function.PERCENTILE | Function.PERCENTILE_DISC:
            if not _is_between(aggregation.q, 0, 1):
                raise InvalidPipelineError(
                    f"q= is a share from 0 to 1: 0.9 for the 90th percentile. {where}, q={aggregation.q!r}"
                )
        case Function.APPROX_COUNT_DISTINCT:
            if not _is_between(aggregation.error, _ERROR_MIN, _ERROR_MAX):
                raise InvalidPipelineError(
                    f"error= is a relative standard error from {_ERROR_MIN} to {_ERROR_MAX}. "
                    f"{where}, error={aggregation.error!r}"
                )
            _check_sketches(where)
        case Function.APPROX_QUANTILE:
            if not _is_between(aggregation.q, 0, 1):
                raise InvalidPipelineError(
                    f"q= is a share from 0 to 1: 0.5 for the median. {where}, q={aggregation.q!r}"
                )
            if not _is_whole(aggregation.accuracy, _ACCURACY_MIN, _ACCURACY_MAX):
                raise InvalidPipelineError(
                    f"accuracy= is a whole number from {_ACCURACY_MIN} to {_ACCURACY_MAX}. "
                    f"{where}, accuracy={aggregation.accuracy!r}"
                )
            _check_sketches(where)
        case _:
            pass


def check_updating(aggregations: Mapping[str, Aggregation], schema: pa.Schema, expire_after_us: int | None) -> None:
    """The input has the kind of each row, keys do not expire, and all aggregates support retraction."""
    check_changes(schema)
    check_keys_stay(expire_after_us)
    for name, aggregation in aggregations.items():
        if aggregation.since is not None:
            raise InvalidPipelineError(
                "the upstream table updates and deletes rows, and an aggregate that begins now would have rows taken "
                f"back that it never had: leave since out, and rebuild the stream. aggregate={name}"
            )
        if aggregation.function in _NO_RETRACTION:
            raise InvalidPipelineError(
                "the upstream table updates and deletes rows, and this aggregate does not support retraction: "
                f"{_NO_RETRACTION[aggregation.function]}, or aggregate a stream that only appends. aggregate={name}, "
                f"function={aggregation.function}, column={aggregation.column}"
            )


def _check_aggregation(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    function, column = aggregation.function, aggregation.column
    if aggregation.columns is not None or function is Function.USER_DEFINED:
        _check_of_rows(name, aggregation, schema, event_time)
        return
    if column is None:
        if function is not Function.COUNT:
            raise InvalidPipelineError(f"only count() goes without a column. aggregate={name}, function={function}")
        return
    type_ = check_column(column, f"aggregate {name}", schema).type
    for each in (column, aggregation.other) if function in _PAIRS else (column,):
        its_type = check_column(each, f"aggregate {name}", schema).type
        if function in _NUMERIC and not is_number(its_type):
            raise InvalidPipelineError(
                f"{function} needs numbers: cast the column, or choose another. "
                f"aggregate={name}, column={each}, type={its_type}"
            )
    if function in _WHOLE and not pa.types.is_signed_integer(type_):
        raise InvalidPipelineError(
            f"{function} needs integers: cast the column, or choose another. "
            f"aggregate={name}, column={column}, type={type_}"
        )
    if function in _BOOLEAN and not pa.types.is_boolean(type_):
        raise InvalidPipelineError(
            f"{function} needs a boolean column: make one before the step, such as `x > 1`. "
            f"aggregate={name}, column={column}, type={type_}"
        )
    is_fit = is_comparable if function is Function.COUNT_DISTINCT else is_orderable
    if function in _ORDERED and not is_fit(type_):
        raise InvalidPipelineError(
            f"{function} needs values that have an order: not nested ones, for example. "
            f"aggregate={name}, column={column}, type={type_}"
        )
    if function in (Function.FIRST, Function.LAST, Function.COLLECT):
        _check_by(name, aggregation, schema, event_time)
    _check_options(name, aggregation)


def _check_of_rows(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    function = aggregation.function
    if not isinstance(aggregation.columns, tuple) or not aggregation.columns:
        raise InvalidPipelineError(
            f"name the columns that {function} reads, such as ['delay']. aggregate={name}, got={aggregation.columns!r}"
        )
    for column in aggregation.columns:
        type_ = check_column(column, f"aggregate {name}", schema).type
        if not is_orderable(type_):
            raise InvalidPipelineError(
                f"{function} orders rows by all of these columns, so they need an order: not nested ones, for example. "
                f"aggregate={name}, column={column}, type={type_}"
            )
    if len(set(aggregation.columns)) < len(aggregation.columns):
        raise InvalidPipelineError(f"name each column once. aggregate={name}, columns={', '.join(aggregation.columns)}")
    if function is Function.USER_DEFINED:
        _check_returns(name, aggregation)
    else:
        _check_by(name, aggregation, schema, event_time)
        _check_options(name, aggregation)


def _check_returns(name: str, aggregation: Aggregation) -> None:
    if not isinstance(aggregation.returns, pa.DataType):
        raise InvalidPipelineError(
            f"returns= is the Arrow type of the result, such as pa.float64(). aggregate={name}, "
            f"returns={aggregation.returns!r}"
        )


def _check_by(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    by = aggregation.by or event_time
    if by is None:
        raise InvalidPipelineError(
            f"rows have no order: give {aggregation.function} a column as by=, or the stream an event "
            f"time by with_watermark(column, delay). aggregate={name}, column={aggregation.column}"
        )
    type_ = check_column(by, f"aggregate {name}", schema).type
    if not is_orderable(type_):
        raise InvalidPipelineError(f"by= needs values that have an order. aggregate={name}, by={by}, type={type_}")


def _check_since(since: object, where: str) -> None:
    if since not in (None, NOW) and not _is_whole(since, 0, 2**63 - 1):
        raise InvalidPipelineError(
            'since= is "now", for an aggregate that is added to a running stream and begins with its next epoch. '
            f"{where}, since={since!r}"
        )


def _check_sketches(where: str) -> None:
    if not sketches.is_installed():
        raise InvalidPipelineError(
            "this aggregate needs Apache DataSketches: install dagster-ckpt[sketches], also where Spark's workers run. "
            f"{where}"
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
