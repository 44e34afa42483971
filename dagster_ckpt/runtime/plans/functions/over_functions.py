"""Functions over a partition: Spark's as the engine's."""

import re
from collections.abc import Callable, Mapping, Sequence

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators import over
from dagster_ckpt.operators.over import Frame, Over
from dagster_ckpt.runtime.catalyst.catalyst import Catalyst
from dagster_ckpt.runtime.catalyst.values import AggregateCall, Expression, Java, WindowCall, WindowFrame, WindowSpec

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
_WHOLE = ("byte", "short", "integer", "long")
_DISTANCES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_WHOLE, _WHOLE),
    "date": ("integer", "days"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), ("days",)),
}
"""Types of distances, by that of what they are between. Those of intervals of days to seconds are one here."""
_OF_DAYS = re.compile(r"interval (day|hour|minute|second)\b")
PLAIN = (*_WHOLE, "double", "boolean", "string")
"""Types of which a default can be."""
_DAY_US = 24 * 60 * 60 * 1_000_000
_NO_DISTANCES = ("UnboundedPreceding", "UnboundedFollowing", "CurrentRow")
BESIDE: Mapping[str, Callable[..., Over]] = {"Lag": over.lag, "Lead": over.lead}


def call_in(named: Expression) -> WindowCall:
    """The call that has a name."""
    call = named.value
    assert isinstance(call, WindowCall), "a window has calls over it"
    return call


def arguments_of(catalyst: Catalyst, function: Expression) -> list[Java]:
    """The column that the function needs, if any."""
    if function.kind in BESIDE or function.kind == "NthValue":
        return [function.children[0].java]
    if not isinstance(function, AggregateCall):
        return []
    given, where = function.function.children[0], function.where
    if function.function.kind == "Count" and not given.nullable and where is None:
        return []
    return [given.java if where is None else catalyst.make.when(where.java, given.java)]


def function_of(catalyst: Catalyst, call: WindowCall, columns: Sequence[str]) -> Over:
    """The engine's function for Spark's, over the column that `arguments_of` has."""
    function, kind = call.function, call.function.kind
    if kind in _RANKS:
        return _RANKS[kind]()
    if kind == "NTile":
        return over.ntile(number_in(catalyst, function.children[0], call))
    if kind in BESIDE and not ignores_nulls(function):
        _, offset, default = function.children
        return BESIDE[kind](columns[0], number_in(catalyst, offset, call), _default(catalyst, default))
    frame = _frame(catalyst, call)
    if kind == "NthValue" and not ignores_nulls(function):
        return over.nth_value(columns[0], number_in(catalyst, function.children[1], call), **frame)
    if isinstance(function, AggregateCall) and not function.distinct:
        name = function.function.kind
        skips = name in ("First", "Last") and (ignores_nulls(function.function) or function.where is not None)
        if name in AGGREGATES and not skips:
            return AGGREGATES[name](*columns, **frame)
    raise _refusal(
        catalyst,
        call,
        "use row_number, rank, dense_rank, percent_rank, cume_dist, ntile, lag, lead, nth_value, or first, last, "
        "count, sum, min, max, avg without DISTINCT, or any aggregate without ORDER BY; IGNORE NULLS is for lag, lead, "
        "and first, last and nth_value from an end of the partition on, as FILTER of first and last is",
    )


def ignores_nulls(function: Expression) -> bool:
    """Whether a function skips rows without a value."""
    return bool(function.fields["ignoreNulls"])


def _frame(catalyst: Catalyst, call: WindowCall) -> dict[str, Frame]:
    frame = call.over.frame
    if not frame.by_rows:
        _check_distances(catalyst, call)
    unit = _DAY_US if not frame.by_rows and _is_of_days(call.over) else 1
    bounds = (_frame_end(catalyst, frame.lower, call, unit), _frame_end(catalyst, frame.upper, call, unit))
    return {"rows" if frame.by_rows else "range": bounds}


def _frame_end(catalyst: Catalyst, bound: Expression, call: WindowCall, unit: int) -> int | None:
    if bound.kind in _NO_DISTANCES:
        return 0 if bound.kind == "CurrentRow" else None
    return number_in(catalyst, bound, call) // unit


def number_in(catalyst: Catalyst, expression: Expression, call: WindowCall) -> int:
    """The number that a function or a frame is given, the same for all rows."""
    if expression.constant is None:
        raise _refusal(catalyst, call, "a bound that is neither a whole number nor an interval of days to seconds")
    return int(expression.constant)


def _default(catalyst: Catalyst, default: Expression) -> object:
    assert default.foldable, "others are computed beside the function"
    return catalyst.constant_of(default)


def _check_distances(catalyst: Catalyst, call: WindowCall) -> None:
    """Distances are in the unit in which the engine measures values of the order."""
    distances = _distances(call.over.frame)
    for term in call.over.order if distances else ():
        fits = _DISTANCES.get(term.by.type.name, ())
        if not all(_type_of_distance(each) in fits for each in distances):
            raise _refusal(
                catalyst,
                call,
                "RANGE with a distance of this type: order by a whole number, date or timestamp, with a distance of "
                "days or less, or count by ROWS",
            )


def _is_of_days(spec: WindowSpec) -> bool:
    """Whether a distance between dates is an interval, of which Spark takes whole days."""
    types = {term.by.type.name for term in spec.order}
    return "date" in types and "days" in map(_type_of_distance, _distances(spec.frame))


def _type_of_distance(distance: Expression) -> str:
    return "days" if _OF_DAYS.match(distance.type.name) else distance.type.name


def _distances(frame: WindowFrame) -> list[Expression]:
    """The bounds of a frame that are so far from the row."""
    return [each for each in (frame.lower, frame.upper) if each.kind not in _NO_DISTANCES]


def _refusal(catalyst: Catalyst, call: WindowCall, what: str) -> InvalidPipelineError:
    return InvalidPipelineError(
        f"over a partition this cannot be kept up to date: {what}. found={catalyst.sql_of(call.java)}"
    )
