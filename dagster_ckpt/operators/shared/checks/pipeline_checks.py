"""What a pipeline may be: each error names the column, the reason, and what there is."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError, did_you_mean
from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.shared.accumulators.value_order import is_comparable, is_orderable
from dagster_ckpt.operators.shared.checks.aggregate_checks import check_options
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH

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


def check_columns(schema: pa.Schema) -> None:
    """Column names are distinct, and none is one that the change log adds."""
    seen: dict[str, str] = {}
    for name in schema.names:
        if name.casefold() in (EPOCH, CHANGE_TYPE):
            raise InvalidPipelineError(f"the change log adds this column itself: rename yours. column={name}")
        if name.casefold() in seen:
            raise InvalidPipelineError(
                "a Spark session that is not case-sensitive could not tell these columns apart: rename one. "
                f"columns={seen[name.casefold()]}, {name}"
            )
        seen[name.casefold()] = name


def check_storable(schema: pa.Schema) -> None:
    """No column has a type that the change log's files cannot hold."""
    for field in schema:
        if _holds_nothing(field.type):
            raise InvalidPipelineError(
                "Parquet cannot hold a struct without fields: give it one, or leave the column out. "
                f"column={field.name}, type={field.type}"
            )


def check_keys(keys: tuple[str, ...], schema: pa.Schema) -> None:
    """At least one key column, each once, of a type in which equal values have equal bytes."""
    if not keys:
        raise InvalidPipelineError("this step needs key columns: call key_by(column, ...) before it. keys=()")
    for key in keys:
        field = _field(key, "key", schema)
        if keys.count(key) > 1:
            raise InvalidPipelineError(f"a column can be key only once. key={key}")
        if not is_key(field.type):
            raise InvalidPipelineError(
                "keys are integers, strings, binary, booleans, dates, timestamps or decimals: cast this column, or "
                f"choose another. key={key}, type={field.type}"
            )


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


def check_event_time(event_time: str | None, schema: pa.Schema) -> None:
    """The event-time column, if there is one, is a timestamp of microseconds."""
    if event_time is not None:
        type_ = _field(event_time, "event time", schema).type
        if not (pa.types.is_timestamp(type_) and type_.unit == "us"):
            raise InvalidPipelineError(
                f"event time must be a timestamp: cast the column. column={event_time}, type={type_}"
            )


def check_column(name: str, use: str, schema: pa.Schema) -> None:
    """The input has this column, once. `use` is its purpose, for the error."""
    _field(name, use, schema)


def check_state_names(keys: Iterable[str], state: Iterable[str]) -> None:
    """No key has the name of a column that the state adds."""
    for key in set(keys).intersection(state):
        raise InvalidPipelineError(f"the state has a column of this name: rename the key before key_by. key={key}")


def _check_aggregation(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    function, column = aggregation.function, aggregation.column
    if aggregation.columns is not None or function is Function.USER_DEFINED:
        _check_of_rows(name, aggregation, schema, event_time)
        return
    if column is None:
        if function is not Function.COUNT:
            raise InvalidPipelineError(f"only count() goes without a column. aggregate={name}, function={function}")
        return
    type_ = _field(column, f"aggregate {name}", schema).type
    for each in (column, aggregation.other) if function in _PAIRS else (column,):
        its_type = _field(each, f"aggregate {name}", schema).type
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
    check_options(name, aggregation)


def _check_of_rows(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    function = aggregation.function
    if not isinstance(aggregation.columns, tuple) or not aggregation.columns:
        raise InvalidPipelineError(
            f"name the columns that {function} reads, such as ['delay']. aggregate={name}, got={aggregation.columns!r}"
        )
    for column in aggregation.columns:
        type_ = _field(column, f"aggregate {name}", schema).type
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
        check_options(name, aggregation)


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
    type_ = _field(by, f"aggregate {name}", schema).type
    if not is_orderable(type_):
        raise InvalidPipelineError(f"by= needs values that have an order. aggregate={name}, by={by}, type={type_}")


def _field(name: str | None, use: str, schema: pa.Schema) -> pa.Field:
    if not isinstance(name, str):
        raise InvalidPipelineError(f"name the column with a string. use={use}, got={name!r}")
    if schema.names.count(name) > 1:
        raise InvalidPipelineError(f"the input has several columns of this name: rename them. column={name}, use={use}")
    if name in schema.names:
        return schema.field(name)
    raise InvalidPipelineError(
        f"the input has no such column.{did_you_mean(name, schema.names)} "
        f"column={name}, use={use}, columns={', '.join(schema.names)}"
    )


def _holds_nothing(type_: pa.DataType) -> bool:
    if pa.types.is_struct(type_) and type_.num_fields == 0:
        return True
    return any(_holds_nothing(type_.field(index).type) for index in range(type_.num_fields))


def is_number(type_: pa.DataType) -> bool:
    """Whether sums of this type are taken."""
    kinds = pa.types
    return bool(kinds.is_signed_integer(type_) or kinds.is_floating(type_) or kinds.is_decimal128(type_))


def is_key(type_: pa.DataType) -> bool:
    """Whether equal values of this type have equal bytes, so that a key may have it."""
    return is_orderable(type_) and not pa.types.is_floating(type_)
