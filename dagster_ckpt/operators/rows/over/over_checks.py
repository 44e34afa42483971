"""What the functions over a partition may be: each error names the column, the reason, and what there is."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.operators.over import Frame, Function, Over
from dagster_ckpt.operators.rows.over import distances
from dagster_ckpt.operators.rows.over.values import AGGREGATES, PLACED
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.arrays.value_order import is_orderable
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.ranked import ordered_tree
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn
from dagster_ckpt.operators.shared.row_order import check_total_order
from dagster_ckpt.operators.shared.zsets import epoch_rows

STEP = "over"
_NUMERIC = (Function.SUM, Function.AVG)
_COUNTED = (Function.LAG, Function.LEAD, Function.NTH_VALUE, Function.NTILE)
LEAST = {Function.NTH_VALUE: 1, Function.NTILE: 1}
"""The least number that a function takes, where that is not `-BOUND_MAX`."""
_BOUNDS = 2
BOUND_MAX = 10_000
"""The most rows from the current one to a bound of its frame: so many are read beside each change."""

DISTANCE_MAX = 1 << 61
"""The greatest distance between values: the sum of two fits in 64 bits."""


def check_rows(keys: tuple[str, ...], schema: pa.Schema, by: Sequence[OrderColumn]) -> None:
    """Check that the rows can be ordered, found and stored."""
    pipeline_checks.check_columns(schema)
    pipeline_checks.check_storable(schema)
    pipeline_checks.check_keys(keys, schema)
    check_total_order(schema)
    pipeline_checks.check_hashable(schema, "rows are found by all their columns")
    for column in by:
        if column.name in keys:
            raise InvalidPipelineError(
                "all rows of a key are equal in its columns: order them by others. "
                f"by={column.name}, keys={', '.join(keys)}"
            )


def check_functions(
    functions: Mapping[str, object], keys: tuple[str, ...], schema: pa.Schema, by: Sequence[OrderColumn]
) -> None:
    """At least one function, each over a column that exists, fits and is no key, with a frame that there can be."""
    if not functions:
        raise InvalidPipelineError("over needs something to compute, such as place=over.row_number(). functions=()")
    for name, function in functions.items():
        if not isinstance(function, Over):
            raise InvalidPipelineError(
                f"write a function as over.sum('column'), from dagster_ckpt import over. function={name}, "
                f"got={function!r}"
            )
        where = f"function={name}, column={function.column}"
        if function.column is not None or function.function is not Function.COUNT:
            _check_column(name, function, schema, where)
        if function.column in keys:
            raise InvalidPipelineError(
                "all rows of a partition are equal in its key: compute of another column, or of a copy of this one. "
                f"{where}, keys={', '.join(keys)}"
            )
        if function.function in _COUNTED:
            _check_number(function, where)
        if function.function in (*AGGREGATES, *PLACED):
            _check_frame(function, where)
            _check_distance(function, schema, by, where)
        if function.function is Function.SESSION_START:
            _check_session(function, schema, by, where)


def check_output(schema: pa.Schema, output: pa.Schema, beside: Sequence[str]) -> None:
    """The functions' columns have names of their own, and the state has no name twice."""
    taken = {name.casefold() for name in schema.names}
    for name in output.names[len(schema) :]:
        if name.startswith("_") or not name:
            raise InvalidPipelineError(
                f"a name that begins with _ is the engine's own: choose another. function={name}"
            )
        if name.casefold() in taken:
            raise InvalidPipelineError(f"the input has a column of this name already: choose another. function={name}")
    pipeline_checks.check_columns(output)
    expiry_checks.check_names_are_free(schema, [*ordered_tree.ADDED, *epoch_rows.ADDED, *beside])


def _check_column(name: str, function: Over, schema: pa.Schema, where: str) -> None:
    kind = function.function
    if kind not in (*AGGREGATES, *PLACED, Function.LAG, Function.LEAD, Function.SESSION_START):
        return
    pipeline_checks.check_column(function.column, f"function {name}", schema)
    type_ = schema.field(function.column).type
    if kind in _NUMERIC and not pipeline_checks.is_number(type_):
        raise InvalidPipelineError(f"{kind} needs numbers: cast the column, or choose another. {where}, type={type_}")
    if kind in (Function.MIN, Function.MAX) and not is_orderable(type_):
        raise InvalidPipelineError(
            f"{kind} needs values that have an order: not nested ones, for example. {where}, type={type_}"
        )
    if function.default is not None:
        if not isinstance(function.default, bool | int | float | str):
            raise InvalidPipelineError(
                f"default= is a number, a string or a boolean; of another type, leave it out. {where}, "
                f"default={function.default!r}"
            )
        try:
            pa.scalar(function.default, type_)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidPipelineError(
                f"default= has another type than the column. {where}, type={type_}, default={function.default!r}"
            ) from error


def _check_number(function: Over, where: str) -> None:
    kind, n = function.function, function.n
    least = LEAST.get(kind, -BOUND_MAX)
    if not _is_whole(n) or not least <= n <= BOUND_MAX:  # type: ignore[operator]
        raise InvalidPipelineError(f"{kind} takes a whole number from {least} to {BOUND_MAX}. {where}, n={n!r}")


def _check_session(function: Over, schema: pa.Schema, by: Sequence[OrderColumn], where: str) -> None:
    start, end = schema.field(by[0].name).type, schema.field(function.column).type
    if len(by) > 1 or by[0].descending or start != end:
        raise InvalidPipelineError(
            "a session's rows are ordered by when they start, one column that ascends, of the type of their end. "
            f"{where}, type={end}, by={', '.join(each.spelling() for each in by)}, type of by={start}"
        )


def _check_frame(function: Over, where: str) -> None:
    if function.rows is not None and function.range is not None:
        raise InvalidPipelineError(f"a frame is by rows= or by range=, not by both. {where}")
    frames: dict[str, object] = {"rows": function.rows, "range": function.range}
    for unit, frame in frames.items():
        if frame is None:
            continue
        if not _is_frame(frame):
            raise InvalidPipelineError(
                f"a frame is two whole numbers or None, such as (-2, 0) or (None, 0). {where}, {unit}={frame!r}"
            )
        first, last = frame
        if first is not None and last is not None and first > last:
            raise InvalidPipelineError(f"a frame ends before it begins. {where}, {unit}={frame!r}")
        if unit == "rows" and max(abs(each) for each in (first or 0, last or 0)) > BOUND_MAX:
            raise InvalidPipelineError(
                f"a bound is at most {BOUND_MAX} rows away, since so many are read beside each change; for all rows "
                f"use None. {where}, {unit}={frame!r}"
            )


def _check_distance(function: Over, schema: pa.Schema, by: Sequence[OrderColumn], where: str) -> None:
    distances_ = [bound for bound in function.range or () if bound]
    if not distances_:
        return
    type_ = schema.field(by[0].name).type
    if len(by) > 1 or not distances.is_measurable(type_):
        raise InvalidPipelineError(
            "a distance in range= is one between values of the only column in by=, a whole number, date or timestamp: "
            f"order by one such column, or count rows with rows=. {where}, range={function.range!r}, "
            f"by={', '.join(each.spelling() for each in by)}, type={type_}"
        )
    if max(map(abs, distances_)) > DISTANCE_MAX:
        raise InvalidPipelineError(
            f"a distance is at most {DISTANCE_MAX}; for all rows use None. {where}, range={function.range!r}"
        )


def _is_frame(value: object) -> TypeGuard[Frame]:
    if not isinstance(value, tuple) or len(value) != _BOUNDS:
        return False
    return all(each is None or _is_whole(each) for each in value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
