"""The running aggregate: one row per key, updated as rows arrive."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, flatten, take
from dagster_ckpt.lsm.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State, Touched
from dagster_ckpt.operators import checks
from dagster_ckpt.operators.accumulators.accumulator import Accumulator, Columns, GroupedRows
from dagster_ckpt.operators.accumulators.counts import LastTime, RowCount
from dagster_ckpt.operators.agg import Aggregation, Function
from dagster_ckpt.operators.changes import changes_between
from dagster_ckpt.operators.operator import Changes, EpochContext
from dagster_ckpt.operators.plan import AggregatePlan, plan
from dagster_ckpt.protocol.manifest import InputSpec, Pipeline, StateTableSpec

NAME = "aggregate"
GROUPS = "groups"
"""The operator's one state table: a row per key."""
KEYS_TOUCHED = "keys_touched"
"""Distinct keys among the epoch's rows."""
COUNTERS = (KEYS_TOUCHED,)


@dataclass(frozen=True)
class RunningAggregate:
    """One row per key with the aggregates over all rows so far. No row is ever too late for it."""

    pipeline: Pipeline
    plans: tuple[AggregatePlan, ...]
    accumulators: tuple[Accumulator, ...]
    values: tuple[str, ...]
    """The input columns that the accumulators read."""

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        aggregations: Mapping[str, Aggregation],
        source: InputSpec,
        event_time: str | None = None,
    ) -> "RunningAggregate":
        """Check and plan the operator; raises `InvalidPipelineError`.

        `source.schema` has all columns of the input, `pipeline.inputs[0].schema` those that `on_rows` reads.
        """
        checks.check_keys(keys, source.schema)
        checks.check_event_time(event_time, source.schema)
        checks.check_aggregations(aggregations, keys, source.schema, event_time)
        types = {field.name: field.type for field in source.schema}
        plans = tuple(plan(name, one, types, event_time) for name, one in aggregations.items())
        needed = (RowCount(), *(one for each in plans for one in each.accumulators), LastTime(event_time))
        accumulators = tuple(dict.fromkeys(needed))  # several aggregates may need the same: it is kept once
        kept = [field for accumulator in accumulators for field in accumulator.fields]
        checks.check_state_names(keys, [field.name for field in kept])
        values = _values(aggregations, event_time)
        used = [field for field in source.schema if field.name in {*keys, *values}]
        key_fields = [source.schema.field(key) for key in keys]
        output = pa.schema([*key_fields, *(one.field for one in plans)])
        checks.check_columns(output)
        pipeline = Pipeline(
            operator=NAME,
            parameters=_parameters(aggregations, event_time),
            inputs=(replace(source, schema=pa.schema(used)),),
            keys=keys,
            tables=(StateTableSpec(GROUPS, pa.schema([*key_fields, *kept]), keys),),
            output=output,
        )
        return cls(pipeline, plans, accumulators, values)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "RunningAggregate":
        """The same operator from its fingerprint."""
        aggregations, event_time = _from_parameters(pipeline.parameters)
        return cls.build(pipeline.keys, aggregations, pipeline.inputs[0], event_time)

    @property
    def logged(self) -> str:
        return GROUPS

    @property
    def counters(self) -> tuple[str, ...]:
        return COUNTERS

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> int:
        if rows.num_rows == 0:
            return 0
        table = state.table(GROUPS)
        keys = flatten(rows.select(list(self.pipeline.keys)))
        groups = key_order(hashes, keys)
        first = groups.order[groups.starts]
        group_hashes, group_keys = hashes[first], take(keys, first)
        values = take(flatten(rows.select(list(self.values))), groups.order)
        fresh = self._of_rows(GroupedRows(groups.starts, groups.sizes, _columns(values)))
        found = table.get(group_hashes, group_keys)
        merged = self._merged(_spread(found, self._kept), fresh) if found.present.any() else fresh
        schema = self.pipeline.tables[0].schema
        table.put(group_hashes, pa.Table.from_arrays([*group_keys.columns, *merged.values()], schema=schema))
        return 0

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for touched in state.table(GROUPS).touched():
            context.counters[KEYS_TOUCHED] += len(touched.hashes)
            yield self.changes_of(touched)

    def changes_of(self, touched: Touched) -> Changes:
        before, after = (Found(side.present, self.table(side.rows)) for side in (touched.before, touched.after))
        return changes_between(before, after, self.pipeline.keys)

    @property
    def _kept(self) -> tuple[str, ...]:
        """The state columns besides the key's."""
        return tuple(field.name for accumulator in self.accumulators for field in accumulator.fields)

    def table(self, state_rows: pa.Table) -> pa.Table:
        columns = _columns(state_rows)
        results = [plan.result(columns) for plan in self.plans]
        keys = [columns[key] for key in self.pipeline.keys]
        return pa.Table.from_arrays([*keys, *results], schema=self.pipeline.output)

    def _of_rows(self, rows: GroupedRows) -> dict[str, pa.Array]:
        return {
            field.name: column
            for accumulator in self.accumulators
            for field, column in zip(accumulator.fields, accumulator.of_rows(rows), strict=True)
        }

    def _merged(self, old: Columns, new: Columns) -> dict[str, pa.Array]:
        return {
            field.name: column
            for accumulator in self.accumulators
            for field, column in zip(accumulator.fields, accumulator.merged(old, new), strict=True)
        }


def _columns(table: pa.Table) -> dict[str, pa.Array]:
    return {name: flat(column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _spread(found: Found, names: tuple[str, ...]) -> dict[str, pa.Array]:
    """These columns of what was found, with a row for every key asked for: all null where there was none."""
    rows = found.rows.select(list(names))
    if found.present.all():
        return _columns(rows)
    row = pa.array(np.cumsum(found.present) - 1, mask=~found.present)
    return {name: column.take(row) for name, column in _columns(rows).items()}


def _values(aggregations: Mapping[str, Aggregation], event_time: str | None) -> tuple[str, ...]:
    named = [name for one in aggregations.values() for name in (one.column, one.by)]
    return tuple(dict.fromkeys(name for name in (*named, event_time) if name is not None))


def _parameters(aggregations: Mapping[str, Aggregation], event_time: str | None) -> dict[str, object]:
    return {
        "aggregates": [
            {"name": name, "function": str(one.function), "column": one.column, "by": one.by}
            for name, one in aggregations.items()
        ],
        "event_time": event_time,
    }


def _from_parameters(parameters: Mapping[str, object]) -> tuple[dict[str, Aggregation], str | None]:
    aggregates: Any = parameters["aggregates"]
    event_time: Any = parameters["event_time"]
    return {
        one["name"]: Aggregation(Function(one["function"]), one["column"], one["by"]) for one in aggregates
    }, event_time
