"""What aggregates keep for each group of rows, be it a key, a window or a session, and what is read from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.shared.accumulators.accumulator import Accumulator, Columns, GroupedRows
from dagster_ckpt.operators.shared.accumulators.accumulator_plan import AggregatePlan, Planner, plan
from dagster_ckpt.operators.shared.accumulators.counts import RowCount


@dataclass(frozen=True)
class GroupedState:
    """The accumulators of some aggregates, each kept once, and the results that are made of them.

    `values` are the input columns that the accumulators read.
    """

    plans: tuple[AggregatePlan, ...]
    accumulators: tuple[Accumulator, ...]
    values: tuple[str, ...]

    @classmethod
    def of(
        cls,
        aggregations: Mapping[str, Aggregation],
        schema: pa.Schema,
        event_time: str | None,
        also: Sequence[Accumulator] = (),
        planner: Planner = plan,
    ) -> "GroupedState":
        """The state of aggregates that `checks` has let pass. `also` is kept besides; it may read the event time.

        `planner` says what is kept with a group.
        """
        types = {field.name: field.type for field in schema}
        plans = tuple(planner(name, one, types, event_time) for name, one in aggregations.items())
        needed = (RowCount(), *(one for each in plans for one in each.accumulators), *also)
        named = [name for one in aggregations.values() for name in (one.column, one.by)]
        values = tuple(dict.fromkeys(name for name in (*named, event_time) if name is not None))
        return cls(plans, tuple(dict.fromkeys(needed)), values)

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The state columns."""
        return tuple(field for accumulator in self.accumulators for field in accumulator.fields)

    @property
    def results(self) -> tuple[pa.Field, ...]:
        """The output columns."""
        return tuple(one.field for one in self.plans)

    def of_rows(self, rows: pa.Table, order: Positions, starts: Positions) -> dict[str, pa.Array]:
        """The state columns of each group, of at least one: group g are the rows `order[starts[g]]` and so on."""
        values = take(flatten(rows.select(list(self.values))), order)
        grouped = GroupedRows(starts, np.diff(starts, append=len(order)), columns_of(values))
        return self._named(accumulator.of_rows(grouped) for accumulator in self.accumulators)

    def merged(self, old: Columns, new: Columns) -> dict[str, pa.Array]:
        """The state columns over the rows of both sides. In `old` all columns are null where a group is new."""
        return self._named(accumulator.merged(old, new) for accumulator in self.accumulators)

    def merged_with(self, found: Found, new: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """As `merged`: `found` is what a state table had for each of the groups."""
        return self.merged(self._spread(found), new) if found.present.any() else new

    def results_of(self, state_rows: Columns) -> list[pa.Array]:
        """The output columns of groups with these state columns."""
        return [one.result(state_rows) for one in self.plans]

    def _named(self, columns: Iterable[tuple[pa.Array, ...]]) -> dict[str, pa.Array]:
        return {
            field.name: column
            for accumulator, its_columns in zip(self.accumulators, columns, strict=True)
            for field, column in zip(accumulator.fields, its_columns, strict=True)
        }

    def _spread(self, found: Found) -> dict[str, pa.Array]:
        """The state columns of what was found, with a row for every group: all null where there was none."""
        rows = columns_of(found.rows.select([field.name for field in self.fields]))
        if found.present.all():
            return rows
        row = pa.array(np.cumsum(found.present) - 1, mask=~found.present)
        return {name: column.take(row) for name, column in rows.items()}


def columns_of(table: pa.Table) -> dict[str, pa.Array]:
    """The table's columns by name, each in one array."""
    return {name: flat(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def spelled(aggregations: Mapping[str, Aggregation]) -> list[dict[str, object]]:
    """The aggregates as plain JSON values."""
    return [{"name": name, **one.spelled()} for name, one in aggregations.items()]


def aggregations_of(parameters: Mapping[str, object]) -> dict[str, Aggregation]:
    """The aggregates as `spelled` has written them under `aggregates` in a pipeline's parameters."""
    aggregates: Any = parameters["aggregates"]
    return {one["name"]: Aggregation.of(one) for one in aggregates}
