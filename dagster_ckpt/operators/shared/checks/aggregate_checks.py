"""What the options of an aggregate may be, and which aggregates support retraction: see also `pipeline_checks`."""

from collections.abc import Mapping

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.agg import NOW, Aggregation, Function
from dagster_ckpt.operators.shared.accumulators import sketches
from dagster_ckpt.operators.shared.checks.updating_checks import check_changes, check_keys_stay

_ERROR_MIN, _ERROR_MAX = 0.005, 0.25
_ACCURACY_MIN, _ACCURACY_MAX = 10, 10_000
_SKETCH = "a sketch cannot forget a value"
_NO_RETRACTION: Mapping[Function, str] = {
    Function.APPROX_COUNT_DISTINCT: f"{_SKETCH}. Use count_distinct",
    Function.APPROX_QUANTILE: f"{_SKETCH}. Use percentile",
}


def check_options(name: str, aggregation: Aggregation) -> None:
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
