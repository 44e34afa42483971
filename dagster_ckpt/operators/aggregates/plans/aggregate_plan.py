"""A planned aggregate, and the request for one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns
from dagster_ckpt.operators.aggregates.kinds.counts import ValueCount
from dagster_ckpt.operators.aggregates.kinds.edge_rows import row_type

Types = Mapping[str, pa.DataType]
"""The input's column types by name."""


@dataclass(frozen=True)
class AggregatePlan:
    """One output column: its field, its state, and how to compute it from the state."""

    field: pa.Field
    accumulators: tuple[Accumulator, ...]
    result: Callable[[Columns], pa.Array]


Planner = Callable[[str, Aggregation, Types, str | None], AggregatePlan]
"""Plans an aggregate that passed the `checks`, from its name, the input and the event-time column."""


@dataclass(frozen=True)
class Request:
    """An aggregate of a column."""

    name: str
    aggregation: Aggregation
    column: str
    types: Types
    event_time: str | None

    @property
    def type(self) -> pa.DataType:
        """Of the column, or of several as one struct."""
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
