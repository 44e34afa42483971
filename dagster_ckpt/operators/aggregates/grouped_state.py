"""The state of aggregates for each group of rows (a key, a window or a session), and their results."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators.aggregates.aggregation import Aggregation, GroupFunction
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator, Columns, GroupedRows
from dagster_ckpt.operators.aggregates.kinds.counts import RowCount
from dagster_ckpt.operators.aggregates.registry import plan
from dagster_ckpt.operators.aggregates.since import plan_since
from dagster_ckpt.operators.aggregates.spec import AggregatePlan, Planner
from dagster_ckpt.operators.operator import Origins, input_origins
from dagster_ckpt.protocol.manifest.manifest import Pipeline


@dataclass(frozen=True)
class GroupedState:
    """The accumulators of several aggregates, each kept once, and the results computed from them.

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
        """The state of aggregates that passed the `checks`. `also`: more accumulators; they may read the event time.

        `planner` chooses what is kept in the row of a group.
        """
        types = {field.name: field.type for field in schema}
        plans = tuple(_plan_one(planner, name, one, types, event_time) for name, one in aggregations.items())
        needed = (RowCount(), *(one for each in plans for one in each.accumulators), *also)
        named = [name for one in aggregations.values() for name in one.read]
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
        """The state columns of at least one group: group g has the rows `order[starts[g]]` up to the next start."""
        values = take(flatten(rows.select(list(self.values))), order)
        grouped = GroupedRows(starts, np.diff(starts, append=len(order)), columns_of(values))
        return self._by_name(accumulator.of_rows(grouped) for accumulator in self.accumulators)

    def merge(self, old: Columns, new: Columns) -> dict[str, pa.Array]:
        """The state columns over the rows of both sides. In `old` all columns are null for a new group."""
        return self._by_name(accumulator.merge(old, new) for accumulator in self.accumulators)

    def merge_with(self, found: Found, new: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """As `merge`: `found` are the groups' rows in a state table."""
        return self.merge(self._spread(found), new) if found.present.any() else new

    def results_of(self, state_rows: Columns) -> list[pa.Array]:
        """The output columns of groups with these state columns."""
        return [one.result(state_rows) for one in self.plans]

    def _by_name(self, columns: Iterable[tuple[pa.Array, ...]]) -> dict[str, pa.Array]:
        return {
            field.name: column
            for accumulator, its_columns in zip(self.accumulators, columns, strict=True)
            for field, column in zip(accumulator.fields, its_columns, strict=True)
        }

    def _spread(self, found: Found) -> dict[str, pa.Array]:
        """The state columns of the rows found, one row for every group: all null where there was none."""
        rows = columns_of(found.rows.select([field.name for field in self.fields]))
        if found.present.all():
            return rows
        row = pa.array(np.cumsum(found.present) - 1, mask=~found.present)
        return {name: column.take(row) for name, column in rows.items()}


def _plan_one(
    planner: Planner, name: str, one: Aggregation, types: Mapping[str, pa.DataType], event_time: str | None
) -> AggregatePlan:
    if one.since is None:
        return planner(name, one, types, event_time)
    # A table beside would be read for the keys of older rows too: all that it needs is in the row of the group.
    return plan_since(plan(name, one, types, event_time), one.since)


def columns_of(table: pa.Table) -> dict[str, pa.Array]:
    """The table's columns by name, each in one array."""
    return {name: flat(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def spellings(aggregations: Mapping[str, Aggregation]) -> list[dict[str, object]]:
    """The aggregates as plain JSON values."""
    return [{"name": name, **one.spelling()} for name, one in aggregations.items()]


def aggregations_of(parameters: Mapping[str, object], code: object = None) -> dict[str, Aggregation]:
    """The aggregates from the output of `spelling`, under `aggregates` in a pipeline's parameters.

    `code` has the functions of those that the user defined, by name (`code_of`); without them they compute nothing.
    """
    aggregates: Any = parameters["aggregates"]
    functions: Mapping[str, GroupFunction] = code if isinstance(code, Mapping) else {}
    return {one["name"]: replace(Aggregation.of(one), code=functions.get(one["name"])) for one in aggregates}


def aggregate_origins(step: Pipeline) -> Origins:
    """The origins of the keys and results of a step with aggregates."""
    results = {
        name: [(0, column) for column in (one.column, one.other, *(one.columns or ())) if column is not None]
        for name, one in aggregations_of(step.parameters).items()
    }
    return {**input_origins(step), **results}


def code_of(aggregations: Mapping[str, object]) -> dict[str, GroupFunction] | None:
    """The functions of the aggregates that the user defined, by name; None: there are none."""
    named = {name: one.code for name, one in aggregations.items() if isinstance(one, Aggregation)}
    return {name: code for name, code in named.items() if code is not None} or None
