"""A function of `agg` as one record: what the rest of the package knows of it is in there, or follows from it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns
from dagster_ckpt.operators.aggregates.kinds.counts import ValueCount
from dagster_ckpt.operators.aggregates.kinds.edge_rows import row_type
from dagster_ckpt.operators.shared.arrays.value_order import is_comparable, is_orderable
from dagster_ckpt.operators.shared.checks.pipeline_checks import is_number

Types = Mapping[str, pa.DataType]
"""The input's column types by name."""


@dataclass(frozen=True)
class AggregatePlan:
    """One output column: its field, its state, and how to compute it from the state.

    The field has the type of the result, and says whether it may be null.
    """

    field: pa.Field
    accumulators: tuple[Accumulator, ...]
    result: Callable[[Columns], pa.Array]


@dataclass(frozen=True)
class Request:
    """An aggregate that passed the `aggregate_checks`, of an input with these columns."""

    name: str
    aggregation: Aggregation
    types: Types
    event_time: str | None

    @property
    def column(self) -> str:
        """The column, or the first of several."""
        columns, column = self.aggregation.columns, self.aggregation.column
        column = columns[0] if columns else column
        assert column is not None, "only a count of rows has no column"
        return column

    @property
    def type(self) -> pa.DataType:
        """That of the column, or of several as one struct."""
        columns = self.aggregation.columns
        return self.types[self.column] if columns is None else row_type(columns, [self.types[name] for name in columns])

    @property
    def count(self) -> ValueCount:
        return ValueCount(self.column)

    @property
    def by(self) -> str:
        by = self.aggregation.by or self.event_time
        assert by is not None, "checks require an order"
        return by


Plan = Callable[[Request], AggregatePlan]
Planner = Callable[[str, Aggregation, Types, str | None], AggregatePlan]
"""Plans an aggregate from its name, the input and the event-time column."""


@dataclass(frozen=True)
class ColumnKind:
    """What columns a function takes; `needs` says it in an error."""

    fits: Callable[[pa.DataType], bool]
    needs: str


_ORDER = "values that have an order: not nested ones, for example"
ANYTHING = ColumnKind(lambda _: True, "a column")
NUMBERS = ColumnKind(is_number, "numbers: cast the column, or choose another")
INTEGERS = ColumnKind(pa.types.is_signed_integer, "integers: cast the column, or choose another")
BOOLEANS = ColumnKind(pa.types.is_boolean, "a boolean column: make one before the step, such as `x > 1`")
ORDERED = ColumnKind(is_orderable, _ORDER)
COMPARABLE = ColumnKind(is_comparable, _ORDER)


@dataclass(frozen=True)
class AggregateSpec:
    """A function of `agg`, in `registry.FUNCTIONS`.

    `call` makes an `Aggregation`. Its name is the function's in Python, in YAML and in stored pipelines, its parameters
    are the column and the options, and its docstring is the reference's.

    The plans say what is kept and what follows from it, each for inputs and tables of one sort: `in_row`, where the row
    of the group has all state (windows, keys that expire, `since`); `beside`, where rows only come and a table beside
    is possible; `retracted`, where rows are retracted. The last two are `in_row` where they are None. A plan's
    accumulators say whether Spark may compute them of rows before (`PartialAccumulator`), and what `explain` says of
    them (`Accumulator.keeps`). `irreversible` says why rows cannot be retracted, and what to use.

    `spark` are the classes of Spark's plan which this function is for, with and without DISTINCT if it is `idempotent`;
    `spark_distinct` those which it is for with DISTINCT alone. Empty: in SQL others do its work, or none.
    """

    call: Callable[..., Aggregation]
    takes: ColumnKind
    in_row: Plan
    beside: Plan | None = None
    retracted: Plan | None = None
    irreversible: str | None = None
    spark: tuple[str, ...] = field(kw_only=True)
    spark_distinct: tuple[str, ...] = ()
    idempotent: bool = False
    needs_sketches: bool = False

    @property
    def name(self) -> str:
        return self.call.__name__

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The parameters after the column."""
        return tuple(self._parameters)[1:]

    @property
    def is_of_column(self) -> bool:
        """Whether its first parameter is a column, or several: not the user's function."""
        return next(iter(self._parameters)) == "column"

    @property
    def can_count_rows(self) -> bool:
        """Whether it goes without a column."""
        return next(iter(self._parameters.values())).default is None

    @property
    def begins_later(self) -> bool:
        """Whether it takes `since="now"`."""
        return "since" in self.options

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.call).parameters
