"""Functions over a partition: Spark's as the engine's."""

from collections.abc import Callable, Mapping, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Frame, Over
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.query_plan import each_of
from dagster_ckpt.runtime.catalyst.values import Java

_RANKS: Mapping[str, Callable[[], Over]] = {
    "RowNumber": over.row_number,
    "Rank": over.rank,
    "DenseRank": over.dense_rank,
    "PercentRank": over.percent_rank,
    "CumeDist": over.cume_dist,
}
AGGREGATES: Mapping[str, Callable[..., Over]] = {
    "Sum": over.sum,
    "Average": over.avg,
    "Min": over.min,
    "Max": over.max,
    "Count": over.count,
    "First": over.first_value,
    "Last": over.last_value,
}
_WHOLE = ("ByteType", "ShortType", "IntegerType", "LongType")
_DISTANCES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_WHOLE, _WHOLE),
    "DateType": ("IntegerType", "DayTimeIntervalType"),
    **dict.fromkeys(("TimestampType", "TimestampNTZType"), ("DayTimeIntervalType",)),
}
"""Classes of distances' types, by that of what they are between."""
PLAIN = (*_WHOLE, "DoubleType", "BooleanType", "StringType")
"""Classes of types of which a default can be."""
_DAY_US = 24 * 60 * 60 * 1_000_000
_NO_DISTANCES = ("UnboundedPreceding", "UnboundedFollowing", "CurrentRow")
BESIDE: Mapping[str, Callable[..., Over]] = {"Lag": over.lag, "Lead": over.lead}


def arguments_of(catalyst: Catalyst, function: Java) -> list[Java]:
    """The column that the function needs, if any."""
    kind = catalyst.kind(function)
    if kind in BESIDE or kind == "NthValue":
        return [function.input()]
    if kind != "AggregateExpression":
        return []
    given, where = list(each_of(function.aggregateFunction().children())), catalyst.optional(function.filter())
    if catalyst.kind(function.aggregateFunction()) == "Count" and not given[0].nullable() and where is None:
        return []
    return [given[0] if where is None else catalyst.only_if(where, given[0])]


def function_of(catalyst: Catalyst, call: Java, columns: Sequence[str]) -> Over:
    """The engine's function for Spark's, over the column that `arguments_of` has."""
    function = call.windowFunction()
    kind = catalyst.kind(function)
    if kind in _RANKS:
        return _RANKS[kind]()
    if kind == "NTile":
        return over.ntile(number_in(function.buckets(), call))
    if kind in BESIDE and not function.ignoreNulls():
        ahead = number_in(function.offset(), call)
        return BESIDE[kind](columns[0], ahead if kind == "Lead" else -ahead, _default(catalyst, function.default()))
    frame = _frame(catalyst, call)
    if kind == "NthValue" and not function.ignoreNulls():
        return over.nth_value(columns[0], number_in(function.offset(), call), **frame)
    if kind == "AggregateExpression" and not function.isDistinct():
        name = catalyst.kind(function.aggregateFunction())
        ends = name in ("First", "Last")
        skips = ends and (function.aggregateFunction().ignoreNulls() or function.filter().isDefined())
        if name in AGGREGATES and not skips:
            return AGGREGATES[name](*columns, **frame)
    raise _refused(
        call,
        "use row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, nth_value, or first, last, "
        "count, sum, min, max, avg without DISTINCT, or any aggregate without ORDER BY; IGNORE NULLS is for lag, lead, "
        "and first, last and nth_value from an end of the partition on, as FILTER of first and last is",
    )


def _frame(catalyst: Catalyst, call: Java) -> dict[str, Frame]:
    frame = call.windowSpec().frameSpecification()
    by_rows = catalyst.kind(frame.frameType()) == "RowFrame"
    if not by_rows:
        _check_distances(catalyst, call, frame)
    unit = _DAY_US if not by_rows and _is_of_days(catalyst, call, frame) else 1
    bounds = (_bound(catalyst, frame.lower(), call, unit), _bound(catalyst, frame.upper(), call, unit))
    return {"rows" if by_rows else "range": bounds}


def _bound(catalyst: Catalyst, bound: Java, call: Java, unit: int) -> int | None:
    kind = catalyst.kind(bound)
    if kind in _NO_DISTANCES:
        return 0 if kind == "CurrentRow" else None
    return number_in(bound, call) // unit


def number_in(expression: Java, call: Java) -> int:
    """The number that a function or a frame is given, the same for all rows."""
    value = expression.eval(None) if expression.foldable() else None
    if not isinstance(value, int):
        raise _refused(call, "a bound that is neither a whole number nor an interval of days to seconds")
    return int(value)


def _default(catalyst: Catalyst, default: Java) -> object:
    assert default.foldable(), "others are computed beside the function"
    value, type_ = default.eval(None), catalyst.kind(default.dataType())
    return str(value.toString()) if value is not None and type_ == "StringType" else value


def _check_distances(catalyst: Catalyst, call: Java, frame: Java) -> None:
    """Distances are in the unit in which the engine measures values of the order."""
    distances = _distances(catalyst, frame)
    for order in each_of(call.windowSpec().orderSpec()) if distances else ():
        fits = _DISTANCES.get(catalyst.kind(order.child().dataType()), ())
        if not all(catalyst.kind(each.dataType()) in fits for each in distances):
            raise _refused(
                call,
                "RANGE with a distance of this type: order by a whole number, date or timestamp, with a distance of "
                "days or less, or count by ROWS",
            )


def _is_of_days(catalyst: Catalyst, call: Java, frame: Java) -> bool:
    """Whether a distance between dates is an interval, of which Spark takes whole days."""
    types = {catalyst.kind(each.child().dataType()) for each in each_of(call.windowSpec().orderSpec())}
    kinds = {catalyst.kind(each.dataType()) for each in _distances(catalyst, frame)}
    return "DateType" in types and "DayTimeIntervalType" in kinds


def _distances(catalyst: Catalyst, frame: Java) -> list[Java]:
    """The bounds of a frame that are so far from the row."""
    return [each for each in (frame.lower(), frame.upper()) if catalyst.kind(each) not in _NO_DISTANCES]


def _refused(call: Java, what: str) -> InvalidPipelineError:
    return InvalidPipelineError(f"over a partition this cannot be kept up to date: {what}. found={call.sql()}")
