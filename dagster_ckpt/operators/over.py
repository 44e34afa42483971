"""The functions of `Stream.over`: `over.row_number()`, `over.lag("column")`, `over.sum("column", rows=(-2, 0))`.

They are SQL's functions over a partition, with Spark's names, results and types. A *frame* says of which rows a
function is computed: `rows=(first, last)` counts rows from the current one, so `(-2, 0)` is the row and the two before
it, and None is the end of the partition. `range=(first, last)` is by values of the order: 0 means the first or last row
that is equal to the current one in the order (a *peer*), and None as before. Another number is a distance from the
current row's value in the only column of the order: of whole numbers, of days between dates, of microseconds between
timestamps. Without a frame it is `range=(None, 0)`, as in SQL: all rows up to the current one and those equal to it.

Nulls are skipped by aggregates, and an aggregate of no value is null (a count is 0). The functions that return a row's
value do not skip them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Frame = tuple[int | None, int | None]

_FLOAT = "float"
"""The name under which a float that JSON does not have is spelled as text."""


class Function(StrEnum):
    """What is computed."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    NTILE = "ntile"
    LAG = "lag"
    LEAD = "lead"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    NTH_VALUE = "nth_value"
    SESSION_START = "session_start"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"


@dataclass(frozen=True, slots=True)
class Over:
    """One function of a row's partition, not yet checked against an input. Build it with the functions of this module.

    `n` is the distance of `lag` and `lead`, the place of `nth_value`, and the number of buckets of `ntile`.
    """

    function: Function
    column: str | None = None
    n: int | None = None
    default: object = None
    rows: Frame | None = None
    range: Frame | None = None

    def spelling(self) -> dict[str, object]:
        """The function as plain JSON values."""
        frames = {name: None if each is None else list(each) for name, each in self._frames.items()}
        return {
            "function": str(self.function),
            "column": self.column,
            "n": self.n,
            "default": _spelled_constant(self.default),
            **frames,
        }

    @property
    def _frames(self) -> dict[str, Frame | None]:
        return {"rows": self.rows, "range": self.range}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Over":
        """The function from the output of `spelling`; other values are ignored."""
        rows, range_ = (None if values[name] is None else tuple(values[name]) for name in ("rows", "range"))
        default = _constant(values["default"])
        return cls(Function(values["function"]), values["column"], values["n"], default, rows, range_)


def _spelled_constant(value: object) -> object:
    """A constant as a JSON value; JSON has neither NaN nor infinity."""
    return {_FLOAT: str(float(value))} if isinstance(value, float) and not math.isfinite(value) else value


def _constant(spelled: object) -> object:
    return float(spelled[_FLOAT]) if isinstance(spelled, Mapping) else spelled


def row_number() -> Over:
    """The place of the row, from 1: an int. Rows that tie are ordered by their other columns."""
    return Over(Function.ROW_NUMBER)


def rank() -> Over:
    """One more than the number of rows that come before it: an int. Rows that tie have one rank."""
    return Over(Function.RANK)


def dense_rank() -> Over:
    """The rank without gaps: an int."""
    return Over(Function.DENSE_RANK)


def percent_rank() -> Over:
    """(rank - 1) / (rows - 1), a double; 0 of a single row. A change emits the whole partition."""
    return Over(Function.PERCENT_RANK)


def cume_dist() -> Over:
    """The share of rows that come before it or tie with it, a double. A change emits the whole partition."""
    return Over(Function.CUME_DIST)


def ntile(n: int) -> Over:
    """The number of the row's bucket, from 1 to `n`, of buckets of equal size: an int. The first may have one more.

    A change may emit the whole partition.
    """
    return Over(Function.NTILE, n=n)


def lag(column: str, offset: int = 1, default: object = None) -> Over:
    """The column's value in the row `offset` rows before, or `default` if there is none."""
    return Over(Function.LAG, column, offset, default)


def lead(column: str, offset: int = 1, default: object = None) -> Over:
    """The column's value in the row `offset` rows behind, or `default` if there is none."""
    return Over(Function.LEAD, column, offset, default)


def first_value(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A002
    """The column's value in the first row of the frame, null or not."""
    return Over(Function.FIRST_VALUE, column, rows=rows, range=range)


def last_value(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A002
    """The column's value in the last row of the frame, null or not."""
    return Over(Function.LAST_VALUE, column, rows=rows, range=range)


def nth_value(column: str, n: int, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A002
    """The column's value in row `n` of the frame, from 1; null if the frame has fewer."""
    return Over(Function.NTH_VALUE, column, n, rows=rows, range=range)


def session_start(end: str) -> Over:
    """Where the session of the row begins: rows are in one session unless one starts after all before it have ended.

    A row starts at its value in the order, which is one column that ascends, and ends at its value in `end`, a column
    of the same type. A row that starts where another one ends is in that one's session, as in Spark's session windows.
    A row that starts at null is in none.
    """
    return Over(Function.SESSION_START, end)


def count(column: str | None = None, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A002
    """The number of the frame's rows or, with a column, of those with a value in it: a bigint."""
    return Over(Function.COUNT, column, rows=rows, range=range)


def sum(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A001, A002
    """The total: bigint of integers, double of floats, decimal(p + 10, s) of decimal(p, s).

    It is exact, and that of floats rounded once. One that does not fit its type is an error that declines the epoch.
    """
    return Over(Function.SUM, column, rows=rows, range=range)


def min(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A001, A002
    """The least value of a column that is not nested."""
    return Over(Function.MIN, column, rows=rows, range=range)


def max(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A001, A002
    """The greatest value of a column that is not nested."""
    return Over(Function.MAX, column, rows=rows, range=range)


def avg(column: str, *, rows: Frame | None = None, range: Frame | None = None) -> Over:  # noqa: A002
    """The mean: a double, or decimal(p + 4, s + 4) of decimal(p, s)."""
    return Over(Function.AVG, column, rows=rows, range=range)
