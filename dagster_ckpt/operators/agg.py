"""The aggregates of `Stream.aggregate`: `agg.count()`, `agg.sum("column")` and so on.

Nulls are skipped, as in SQL; only `count()` without a column counts every row. An aggregate over only nulls is null (a
count is 0, a list is empty). NaN is greater than any other number and equal to itself, as in Spark. Result
types are Spark's.

With `since="now"` an aggregate that is added to a running stream begins with the next epoch, and keeps what the stream
has: its value is of the rows since then, and null for a key that has had none since. Leave `since` where it is
afterwards: it never begins again.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.ipc

GroupFunction = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""What `user_defined` takes: from the rows of many groups to one value for each."""


class Function(StrEnum):
    """What an aggregate computes."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    FIRST = "first"
    LAST = "last"
    STDDEV = "stddev"
    VARIANCE = "variance"
    COUNT_DISTINCT = "count_distinct"
    COLLECT = "collect"
    COUNT_IF = "count_if"
    BOOL_AND = "bool_and"
    BOOL_OR = "bool_or"
    STDDEV_POP = "stddev_pop"
    VAR_POP = "var_pop"
    CORR = "corr"
    COVAR_POP = "covar_pop"
    COVAR_SAMP = "covar_samp"
    REGR_SLOPE = "regr_slope"
    REGR_INTERCEPT = "regr_intercept"
    REGR_R2 = "regr_r2"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    SUM_DISTINCT = "sum_distinct"
    AVG_DISTINCT = "avg_distinct"
    PERCENTILE = "percentile"
    MEDIAN = "median"
    PERCENTILE_DISC = "percentile_disc"
    MODE = "mode"
    SKEWNESS = "skewness"
    KURTOSIS = "kurtosis"
    COLLECT_LIST = "collect_list"
    COLLECT_SET = "collect_set"
    USER_DEFINED = "user_defined"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"


NOW = "now"
"""The `since` of an aggregate that begins with the first epoch that has it."""

_MORE = ("limit", "error", "q", "accuracy", "other", "since")
"""The options that an aggregate may do without."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """One aggregate of one column, not yet checked against an input. Build it with the functions of this module.

    `column` is None for a count of rows; `by` is the column that orders `first`, `last` and `collect`, None for the
    event time; `other` is the second column of functions of two. The other fields are None for functions that do not
    take them. `code` is the user's function, which is no part of what is stored. `since` is `NOW`, or the number of the
    epoch after which the aggregate begins (`EpochContext.number`); None: it is of all rows.
    """

    function: Function
    column: str | None = None
    by: str | None = None
    limit: int | None = None
    error: float | None = None
    q: float | None = None
    accuracy: int | None = None
    other: str | None = None
    columns: tuple[str, ...] | None = None
    returns: pa.DataType | None = None
    code: GroupFunction | None = field(default=None, compare=False)
    since: str | int | None = None

    @classmethod
    def of_columns(
        cls,
        function: Function,
        columns: str | Sequence[str],
        by: str | None,
        limit: int | None = None,
        *,
        since: str | None = None,
    ) -> "Aggregation":
        """One of a column, or of several as one struct."""
        if isinstance(columns, str):
            return cls(function, columns, by, limit, since=since)
        given: Any = columns  # what is no sequence is refused later, with the name of the aggregate
        named = tuple(given) if isinstance(given, Sequence) else given
        return cls(function, None, by, limit, columns=named, since=since)

    @property
    def read(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        named = (self.column, self.other, self.by, *(self.columns or ()))
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def spelled(self) -> dict[str, object]:
        """The aggregate as plain JSON values. Options that older releases do not know are present only if set."""
        more = {name: getattr(self, name) for name in _MORE}
        if self.columns is not None:
            more["columns"] = list(self.columns)
        if self.returns is not None:
            more["returns"] = base64.b64encode(pa.schema([pa.field("", self.returns)]).serialize()).decode()
        return {
            "function": str(self.function),
            "column": self.column,
            "by": self.by,
            **{name: value for name, value in more.items() if value is not None},
        }

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Aggregation":
        """The aggregate from the output of `spelled`; other values are ignored."""
        more = {name: values[name] for name in _MORE if name in values}
        if "columns" in values:
            more["columns"] = tuple(values["columns"])
        if "returns" in values:
            [returned] = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(values["returns"])))
            more["returns"] = returned.type
        return cls(Function(values["function"]), values["column"], values["by"], **more)


def count(column: str | None = None, *, since: str | None = None) -> Aggregation:
    """The number of rows or, with a column, of rows with a value in it: a bigint, never null."""
    return Aggregation(Function.COUNT, column, since=since)


def sum(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001  (agg.sum is the standard name)
    """The total: bigint of integers, double of floats, decimal(p + 10, s) of decimal(p, s).

    A total that does not fit its type is an error that declines the epoch; it never wraps round. Over a table whose
    rows change, a total of floats is exact and rounded once.
    """
    return Aggregation(Function.SUM, column, since=since)


def min(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001
    """The least value of any column that is not nested; strings compare by their bytes, False before True."""
    return Aggregation(Function.MIN, column, since=since)


def max(column: str, *, since: str | None = None) -> Aggregation:  # noqa: A001
    """The greatest value of any column that is not nested; strings compare by their bytes, False before True."""
    return Aggregation(Function.MAX, column, since=since)


def avg(column: str, *, since: str | None = None) -> Aggregation:
    """The mean: a double, or decimal(p + 4, s + 4) of decimal(p, s). The total of integers is exact."""
    return Aggregation(Function.AVG, column, since=since)


def first(column: str | Sequence[str], by: str | None = None, *, since: str | None = None) -> Aggregation:
    """The value of the row with the least `by` (default: the event time); of several such rows the least value.

    Rows where the value or `by` is null are skipped. Several columns, as `["gate", "delay"]`, give their values in one
    row as a struct; then only a null in `by` counts, and of several such rows it is the one with the least values, in
    the order of the columns, a value before null.
    """
    return Aggregation.of_columns(Function.FIRST, column, by, since=since)


def last(column: str | Sequence[str], by: str | None = None, *, since: str | None = None) -> Aggregation:
    """The value of the row with the greatest `by` (default: the event time); of several such rows the greatest value.

    Rows where the value or `by` is null are skipped. Several columns as in `first`, a value before null here too.
    """
    return Aggregation.of_columns(Function.LAST, column, by, since=since)


def stddev(column: str, *, since: str | None = None) -> Aggregation:
    """The sample standard deviation, a double; null for fewer than two values."""
    return Aggregation(Function.STDDEV, column, since=since)


def variance(column: str, *, since: str | None = None) -> Aggregation:
    """The sample variance, a double; null for fewer than two values."""
    return Aggregation(Function.VARIANCE, column, since=since)


def stddev_pop(column: str, *, since: str | None = None) -> Aggregation:
    """The standard deviation of the population, a double; null without a value."""
    return Aggregation(Function.STDDEV_POP, column, since=since)


def var_pop(column: str, *, since: str | None = None) -> Aggregation:
    """The variance of the population, a double; null without a value."""
    return Aggregation(Function.VAR_POP, column, since=since)


def corr(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """Pearson's correlation of two number columns, a double; null for fewer than two rows.

    Rows with a null in either column are skipped, here and in the other functions of two columns. Their sums are exact,
    so the results do not depend on the order of the rows; a key takes about 160 bytes for all of them together. Where
    either column always has the same value, Spark divides by zero, and this is null.
    """
    return Aggregation(Function.CORR, column, other=other, since=since)


def covar_pop(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The covariance of the population, a double; null without a row. See `corr`."""
    return Aggregation(Function.COVAR_POP, column, other=other, since=since)


def covar_samp(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The sample covariance, a double; null for fewer than two rows. See `corr`."""
    return Aggregation(Function.COVAR_SAMP, column, other=other, since=since)


def regr_slope(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """The slope of the line that fits `column` (y) by `other` (x) best, a double; null if x is always the same."""
    return Aggregation(Function.REGR_SLOPE, column, other=other, since=since)


def regr_intercept(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """Where the line that fits `column` (y) by `other` (x) best is at x = 0, a double; null if x is always the same."""
    return Aggregation(Function.REGR_INTERCEPT, column, other=other, since=since)


def regr_r2(column: str, other: str, *, since: str | None = None) -> Aggregation:
    """How well that line fits, from 0 to 1, a double; null if x is always the same, 1 if only y is."""
    return Aggregation(Function.REGR_R2, column, other=other, since=since)


def count_if(column: str, *, since: str | None = None) -> Aggregation:
    """The number of rows in which a boolean column is true: a bigint, never null."""
    return Aggregation(Function.COUNT_IF, column, since=since)


def bool_and(column: str, *, since: str | None = None) -> Aggregation:
    """Whether all values of a boolean column are true."""
    return Aggregation(Function.BOOL_AND, column, since=since)


def bool_or(column: str, *, since: str | None = None) -> Aggregation:
    """Whether any value of a boolean column is true."""
    return Aggregation(Function.BOOL_OR, column, since=since)


def count_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The exact number of distinct values: a bigint, never null. Of any column that is not nested, or of a struct.

    Each value is kept once per key, or per window of a key, for as long as that key or window is kept. Without
    `expire_after` the cost of an epoch depends on its rows alone. With it, and in windows, the values are one list,
    which is rewritten in every epoch that touches it: for hundreds of thousands, use `approx_count_distinct`.
    """
    return Aggregation(Function.COUNT_DISTINCT, column, since=since)


def bit_and(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that all values of a column of integers have, in its type.

    Over a table whose rows change this and `bit_or` keep each distinct value of a key: see `percentile`.
    """
    return Aggregation(Function.BIT_AND, column, since=since)


def bit_or(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that any value of a column of integers has, in its type."""
    return Aggregation(Function.BIT_OR, column, since=since)


def bit_xor(column: str, *, since: str | None = None) -> Aggregation:
    """The bits that an odd number of values of a column of integers have, in its type."""
    return Aggregation(Function.BIT_XOR, column, since=since)


def sum_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The total of the distinct values, as SQL's `sum(DISTINCT column)`; see `sum`. Kept as by `count_distinct`."""
    return Aggregation(Function.SUM_DISTINCT, column, since=since)


def avg_distinct(column: str, *, since: str | None = None) -> Aggregation:
    """The mean of the distinct values, as SQL's `avg(DISTINCT column)`; see `avg`. Kept as by `count_distinct`."""
    return Aggregation(Function.AVG_DISTINCT, column, since=since)


def percentile(column: str, q: float, *, since: str | None = None) -> Aggregation:
    """The exact `q`-percentile (0 to 1) of numbers, a double; between two values in proportion, as in Spark.

    All distinct values of a key are kept, with their number, and read in each epoch that touches the key: an epoch
    costs as much as the touched keys have distinct values. For large keys use `approx_quantile`.
    """
    return Aggregation(Function.PERCENTILE, column, q=q, since=since)


def median(column: str, *, since: str | None = None) -> Aggregation:
    """The value in the middle, a double: `percentile(column, 0.5)`."""
    return Aggregation(Function.MEDIAN, column, since=since)


def percentile_disc(column: str, q: float, *, since: str | None = None) -> Aggregation:
    """The first value, in their order, that at least the share `q` (0 to 1) of all values is not above.

    It is one of the values, of any column that is not nested. Kept as by `percentile`.
    """
    return Aggregation(Function.PERCENTILE_DISC, column, q=q, since=since)


def mode(column: str, *, since: str | None = None) -> Aggregation:
    """The most frequent value, of several the least, of any column that is not nested. Kept as by `percentile`."""
    return Aggregation(Function.MODE, column, since=since)


def skewness(column: str, *, since: str | None = None) -> Aggregation:
    """How far the values lean to one side, a double; null if all are the same. Kept as by `percentile`."""
    return Aggregation(Function.SKEWNESS, column, since=since)


def kurtosis(column: str, *, since: str | None = None) -> Aggregation:
    """How much of the spread is far out, less that of a normal distribution: a double; null if all values are the same.

    Kept as by `percentile`.
    """
    return Aggregation(Function.KURTOSIS, column, since=since)


def collect_list(column: str, *, since: str | None = None) -> Aggregation:
    """A list of all values, in their order, of any column that is not nested; without a value it is empty.

    All distinct values of a key are kept, with their number. The list is in the table, and written again in each epoch
    that touches its key: with thousands of values for a key, `collect` of the first ones costs less.
    """
    return Aggregation(Function.COLLECT_LIST, column, since=since)


def collect_set(column: str, *, since: str | None = None) -> Aggregation:
    """A list of the distinct values, in their order: see `collect_list`."""
    return Aggregation(Function.COLLECT_SET, column, since=since)


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
    return Aggregation(Function.USER_DEFINED, columns=tuple(columns), returns=returns, code=function)


def collect(column: str | Sequence[str], limit: int, by: str | None = None, *, since: str | None = None) -> Aggregation:
    """A list of the first `limit` values by `by` (default: the event time); those of one `by` with the least first.

    Duplicates are kept. Rows where the value or `by` is null are skipped; if all are, the list is empty. The list is
    rewritten in every epoch that touches it: keep `limit` in the thousands at most. Several columns give a list of
    structs, as in `first`.
    """
    return Aggregation.of_columns(Function.COLLECT, column, by, limit, since=since)


def approx_count_distinct(column: str, error: float = 0.05, *, since: str | None = None) -> Aggregation:
    """The approximate number of distinct values: a bigint, never null. Needs `dagster-ckpt[sketches]`.

    `error` is the relative standard error, from 0.005 to 0.25: two of three results are within it. A key takes at most
    about 2 / error ** 2 bytes. The same values give the same result in any order.
    """
    return Aggregation(Function.APPROX_COUNT_DISTINCT, column, error=error, since=since)


def approx_quantile(column: str, q: float, accuracy: int = 500, *, since: str | None = None) -> Aggregation:
    """The approximate `q`-quantile (0 to 1) of numbers: a double. Needs `dagster-ckpt[sketches]`.

    NaN and infinities are skipped. Uses a t-digest, most accurate near 0 and 1. There is no guarantee; in measurements,
    the share of values below the result was within 4 / accuracy of `q`. `accuracy` is from 10 to 10000, and a key takes
    at most about 21 * accuracy bytes. How the rows are batched may change the result within that error.
    """
    return Aggregation(Function.APPROX_QUANTILE, column, q=q, accuracy=accuracy, since=since)
