"""What an aggregate may be, over rows that only come and where they are retracted: see also `pipeline_checks`."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.aggregates.aggregation import NOW, Aggregation
from dagster_ckpt.operators.aggregates.kinds import sketches
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.aggregates.spec import AggregateSpec
from dagster_ckpt.operators.shared.arrays.value_order import is_orderable
from dagster_ckpt.operators.shared.checks.pipeline_checks import check_column
from dagster_ckpt.operators.shared.checks.updating_checks import check_changes, check_keys_stay

_ERROR_MIN, _ERROR_MAX = 0.005, 0.25
_ACCURACY_MIN, _ACCURACY_MAX = 10, 10_000
_LIMIT_MAX = 2**31 - 1


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


def check_updating(aggregations: Mapping[str, Aggregation], schema: pa.Schema, expire_after_us: int | None) -> None:
    """Check that each input row has its change type, keys do not expire, and all aggregates support retraction."""
    check_changes(schema)
    check_keys_stay(expire_after_us)
    for name, aggregation in aggregations.items():
        if aggregation.since is not None:
            raise InvalidPipelineError(
                "the upstream table updates and deletes rows, and an aggregate that begins now would have rows taken "
                f"back that it never had: leave since out, and rebuild the stream. aggregate={name}"
            )
        irreversible = FUNCTIONS[aggregation.function].irreversible
        if irreversible is not None:
            raise InvalidPipelineError(
                "the upstream table updates and deletes rows, and this aggregate does not support retraction: "
                f"{irreversible}, or aggregate a stream that only appends. aggregate={name}, "
                f"function={aggregation.function}, column={aggregation.column}"
            )


def _check_aggregation(name: str, aggregation: Aggregation, schema: pa.Schema, event_time: str | None) -> None:
    spec, columns = FUNCTIONS[aggregation.function], aggregation.columns
    if columns is not None or not spec.is_of_column:
        _check_rows(name, aggregation, schema)
    elif aggregation.column is None:
        if not spec.can_count_rows:
            raise InvalidPipelineError(f"only count() goes without a column. aggregate={name}, function={spec.name}")
        return
    else:
        for column in (aggregation.column, aggregation.other) if "other" in spec.options else (aggregation.column,):
            type_ = check_column(column, f"aggregate {name}", schema).type
            if not spec.takes.fits(type_):
                raise InvalidPipelineError(
                    f"{spec.name} needs {spec.takes.needs}. aggregate={name}, column={column}, type={type_}"
                )
    if "by" in spec.options:
        _check_by(name, aggregation, schema, event_time)
    _check_options(name, spec, aggregation)


def _check_rows(name: str, aggregation: Aggregation, schema: pa.Schema) -> None:
    function, columns = aggregation.function, aggregation.columns
    if not isinstance(columns, tuple) or not columns:
        raise InvalidPipelineError(
            f"name the columns that {function} reads, such as ['delay']. aggregate={name}, got={columns!r}"
        )
    for column in columns:
        type_ = check_column(column, f"aggregate {name}", schema).type
        if not is_orderable(type_):
            raise InvalidPipelineError(
                f"{function} orders rows by all of these columns, so they need an order: not nested ones, for example. "
                f"aggregate={name}, column={column}, type={type_}"
            )
    if len(set(columns)) < len(columns):
        raise InvalidPipelineError(f"name each column once. aggregate={name}, columns={', '.join(columns)}")


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


def _check_options(name: str, spec: AggregateSpec, aggregation: Aggregation) -> None:
    """The options besides columns are valid, and the library that the function needs is installed."""
    where = f"aggregate={name}, column={aggregation.column}"
    for option in spec.options:
        is_valid, needed = _OPTIONS.get(option, _ANY)
        value = getattr(aggregation, option)
        if not is_valid(value):
            raise InvalidPipelineError(f"{needed.format(function=spec.name)}. {where}, {option}={value!r}")
    if spec.needs_sketches and not sketches.is_installed():
        raise InvalidPipelineError(
            "this aggregate needs Apache DataSketches: install dagster-ckpt[sketches], also where Spark's workers run. "
            f"{where}"
        )


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


_Check = tuple[Callable[[object], bool], str]
_ANY: _Check = (lambda _: True, "")
_OPTIONS: Mapping[str, _Check] = {
    "limit": (
        lambda value: _is_whole(value, 1, _LIMIT_MAX),
        "{function} needs a limit to the length of its list: {function}(column, limit), a whole number from 1 on",
    ),
    "q": (lambda value: _is_between(value, 0, 1), "q= is a share from 0 to 1: 0.5 for the median"),
    "error": (
        lambda value: _is_between(value, _ERROR_MIN, _ERROR_MAX),
        f"error= is a relative standard error from {_ERROR_MIN} to {_ERROR_MAX}",
    ),
    "accuracy": (
        lambda value: _is_whole(value, _ACCURACY_MIN, _ACCURACY_MAX),
        f"accuracy= is a whole number from {_ACCURACY_MIN} to {_ACCURACY_MAX}",
    ),
    "returns": (
        lambda value: isinstance(value, pa.DataType),
        "returns= is the Arrow type of the result, such as pa.float64()",
    ),
    "since": (
        lambda value: value in (None, NOW) or _is_whole(value, 0, 2**63 - 1),
        'since= is "now", for an aggregate that is added to a running stream and begins with its next epoch',
    ),
}
"""Whether an option has a valid value, and what it needs, for the error."""
