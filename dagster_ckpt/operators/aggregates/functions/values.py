"""Functions of all values of a group: percentiles, lists, and the user's own."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, take_array
from dagster_ckpt.operators.aggregates.aggregation import Aggregation, GroupFunction
from dagster_ckpt.operators.aggregates.bags import bag_functions
from dagster_ckpt.operators.aggregates.bags.bags import BagFunction
from dagster_ckpt.operators.aggregates.functions.of_bags import BagPlan, OfBag, beside, within
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows, Keeps
from dagster_ckpt.operators.aggregates.spec import NUMBERS, ORDERED, AggregatePlan, AggregateSpec, ColumnKind, Request
from dagster_ckpt.operators.shared.arrays.lists import alike, groups_of, lists_of, values_of
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import order_column

__all__ = [
    "collect",
    "collect_list",
    "collect_set",
    "kurtosis",
    "median",
    "mode",
    "percentile",
    "percentile_disc",
    "skewness",
    "user_defined",
]

_MEDIAN = 0.5


def percentile(column: str, q: float, *, since: str | None = None) -> Aggregation:
    """The exact `q`-percentile (0 to 1) of numbers, a double; between two values in proportion, as in Spark.

    All distinct values of a key are kept, with their number, and read in each epoch that touches the key: an epoch
    costs as much as the touched keys have distinct values. For large keys use `approx_quantile`.
    """
    return Aggregation("percentile", column, q=q, since=since)


def median(column: str, *, since: str | None = None) -> Aggregation:
    """The value in the middle, a double: `percentile(column, 0.5)`."""
    return Aggregation("median", column, since=since)


def percentile_disc(column: str, q: float, *, since: str | None = None) -> Aggregation:
    """The first value, in their order, that at least the share `q` (0 to 1) of all values is not above.

    It is one of the values, of any column that is not nested. Kept as by `percentile`.
    """
    return Aggregation("percentile_disc", column, q=q, since=since)


def mode(column: str, *, since: str | None = None) -> Aggregation:
    """The most frequent value, of several the least, of any column that is not nested. Kept as by `percentile`."""
    return Aggregation("mode", column, since=since)


def skewness(column: str, *, since: str | None = None) -> Aggregation:
    """How far the values lean to one side, a double; null if all are the same. Kept as by `percentile`."""
    return Aggregation("skewness", column, since=since)


def kurtosis(column: str, *, since: str | None = None) -> Aggregation:
    """The excess kurtosis, that of a normal distribution being 0: a double; null if all values are the same.

    Kept as by `percentile`.
    """
    return Aggregation("kurtosis", column, since=since)


def collect_list(column: str, *, since: str | None = None) -> Aggregation:
    """A list of all values, in their order, of any column that is not nested; without a value it is empty.

    All distinct values of a key are kept, with their number. The list is in the table, and written again in each epoch
    that touches its key: with thousands of values for a key, `collect` of the first ones costs less.
    """
    return Aggregation("collect_list", column, since=since)


def collect_set(column: str, *, since: str | None = None) -> Aggregation:
    """A list of the distinct values, in their order: see `collect_list`."""
    return Aggregation("collect_set", column, since=since)


def user_defined(function: GroupFunction, columns: Sequence[str], returns: pa.DataType) -> Aggregation:
    """What your function makes of the rows of each key.

        def span(rows: pa.Table) -> pa.Array:
            found = rows.group_by("_group", use_threads=False).aggregate([("delay", "min"), ("delay", "max")])
            return pc.subtract(found["delay_max"], found["delay_min"])

        flights.key_by("carrier").aggregate(span=agg.user_defined(span, ["delay"], returns=pa.int32()))

    Each call gets all rows of many keys at once: these columns, and `_group`, the number of the row's key in this call,
    from 0 and ascending. Within a key equal rows are side by side, ordered by the columns, nulls last. It returns one
    value for each key, of the type `returns`, in the order of their numbers. It is called again for a key whenever its
    rows change, so the result must follow from them alone: no clock, no chance. The distinct rows of a key are kept:
    see `percentile`.

    The function is no part of the stream's fingerprint: a changed one computes the keys that are touched from then on.
    """
    return Aggregation("user_defined", columns=tuple(columns), returns=returns, code=function)


def collect(column: str | Sequence[str], limit: int, by: str | None = None, *, since: str | None = None) -> Aggregation:
    """A list of the first `limit` values by `by` (default: the event time); those of one `by` with the least first.

    Duplicates are kept. Rows where the value or `by` is null are skipped; if all are, the list is empty. The list is
    rewritten in every epoch that touches it: keep `limit` in the thousands at most. Several columns give a list of
    structs, as in `first`.
    """
    return Aggregation.of_columns("collect", column, by, limit, since=since)


def _percentile(request: Request) -> BagPlan:
    q = _MEDIAN if request.aggregation.q is None else request.aggregation.q
    field = pa.field(request.name, pa.float64())
    return BagPlan((request.column,), field, bag_functions.percentile(q), (q,))


def _percentile_disc(request: Request) -> BagPlan:
    q = request.aggregation.q
    assert q is not None, "checks require it"
    field = pa.field(request.name, request.type)
    return BagPlan((request.column,), field, bag_functions.percentile_disc(q), (q,))


def _mode(request: Request) -> BagPlan:
    return BagPlan((request.column,), pa.field(request.name, request.type), bag_functions.mode)


def _moment(function: BagFunction) -> OfBag:
    return lambda request: BagPlan((request.column,), pa.field(request.name, pa.float64()), function)


def _list(*, distinct: bool) -> OfBag:
    def of_bag(request: Request) -> BagPlan:
        field = pa.field(request.name, pa.list_(request.type), nullable=False)
        empty = pa.scalar([], field.type)
        return BagPlan((request.column,), field, bag_functions.values(distinct=distinct), empty=empty)

    return of_bag


def _first_rows(request: Request) -> BagPlan:
    columns, limit = request.aggregation.columns, request.aggregation.limit
    assert limit is not None, "checks require it"
    field = pa.field(request.name, pa.list_(request.type), nullable=False)
    return BagPlan(
        (request.by, *(columns or (request.column,))),
        field,
        bag_functions.first_values(limit, columns),
        (limit,),
        None if columns is None else 1,
        pa.scalar([], field.type),
        limit,
    )


def _first_values(request: Request) -> AggregatePlan:
    if request.aggregation.columns is not None:
        return within(_first_rows)(request)
    limit = request.aggregation.limit
    assert limit is not None, "checks require it"
    first = FirstValues(request.column, request.type, request.by, request.types[request.by], limit)
    values, _ = first.names
    return AggregatePlan(first.fields[0].with_name(request.name), (first,), lambda state: state[values])


def _user_defined(request: Request) -> BagPlan:
    one, name = request.aggregation, request.name
    assert one.columns is not None, "checks require it"
    assert one.returns is not None, "checks require it"
    function = bag_functions.user_defined(name, one.columns, one.returns, one.code)
    # By its name: two functions of the same columns are not one.
    return BagPlan(one.columns, pa.field(name, one.returns), function, (name,), required=0)


def _only_beside(request: Request) -> AggregatePlan:
    raise InvalidPipelineError(
        "a user-defined aggregate keeps all rows of a key in a table beside, which neither a window nor a key that "
        "expires has: leave expire_after out; for windows make their start a column, and a key. "
        f"aggregate={request.name}"
    )


def _spec(
    call: Callable[..., Aggregation], takes: ColumnKind, of_bag: OfBag, *spark: str, **more: Any
) -> AggregateSpec:
    kept = beside(of_bag)
    return AggregateSpec(call, takes, within(of_bag), beside=kept, retracted=kept, spark=spark, **more)


_user_defined_beside = beside(_user_defined)
SPECS = (
    _spec(percentile, NUMBERS, _percentile, "Percentile"),
    _spec(median, NUMBERS, _percentile),  # Spark's is a percentile
    _spec(percentile_disc, ORDERED, _percentile_disc, "PercentileDisc", "ApproximatePercentile"),
    _spec(mode, ORDERED, _mode, "Mode"),
    _spec(skewness, NUMBERS, _moment(bag_functions.skewness), "Skewness"),
    _spec(kurtosis, NUMBERS, _moment(bag_functions.kurtosis), "Kurtosis"),
    _spec(collect_list, ORDERED, _list(distinct=False), "CollectList", "ListAgg"),
    _spec(
        collect_set,
        ORDERED,
        _list(distinct=True),
        "CollectSet",
        spark_distinct=("CollectList", "ListAgg"),
        idempotent=True,
    ),
    AggregateSpec(
        user_defined, ORDERED, _only_beside, beside=_user_defined_beside, retracted=_user_defined_beside, spark=()
    ),
    AggregateSpec(collect, ORDERED, _first_values, retracted=beside(_first_rows), spark=()),
)


@dataclass(frozen=True)
class FirstValues(Accumulator):
    """The values of the `limit` rows with the least `by`, in that order; of rows with one `by`, the least values first.

    Rows where either is null are skipped.
    """

    column: str
    type: pa.DataType
    by: str
    by_type: pa.DataType
    limit: int

    @property
    def keeps(self) -> Keeps:
        return Keeps(f"the first {self.limit} values of {self.column}")

    @property
    def names(self) -> tuple[str, str]:
        """Its state columns: the values and their `by`."""
        pair = f"{json.dumps(self.column)} by {json.dumps(self.by)}"
        return f"_first_{self.limit}({pair})", f"_first_{self.limit}_at({pair})"

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        types = (self.type, self.by_type)
        return tuple(
            pa.field(name, pa.list_(type_), nullable=False) for name, type_ in zip(self.names, types, strict=True)
        )

    def of_rows(self, rows: GroupedRows) -> tuple[pa.Array, ...]:
        value, by = rows.columns[self.column], rows.columns[self.by]
        usable = np.flatnonzero(has_value(value) & has_value(by))
        return self._first(
            rows.group_of_row[usable], take_array(value, usable), take_array(by, usable), len(rows.starts)
        )

    def merge(self, old: Columns, new: Columns) -> tuple[pa.Array, ...]:
        values, bys = ((old[name], new[name]) for name in self.names)
        return self._first(groups_of(values), values_of(values), values_of(bys), len(values[1]))

    def _first(self, groups: Positions, values: pa.Array, bys: pa.Array, count: int) -> tuple[pa.Array, ...]:
        if len(groups) == 0:
            return lists_of(groups, values, count), lists_of(groups, bys, count)
        order = np.lexsort((order_column(values).codes, order_column(bys).codes, groups))
        groups = groups[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        place = np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
        kept = place < self.limit
        return tuple(lists_of(groups[kept], alike(take_array(column, order[kept])), count) for column in (values, bys))
