"""The running aggregate: one row per key, updated as rows arrive."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.key_hash import key_hashes
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State, StateTable
from dagster_ckpt.operators.aggregates import aggregate_checks
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import (
    GroupedState,
    aggregate_origins,
    aggregations_of,
    columns_of,
    spellings,
)
from dagster_ckpt.operators.aggregates.kinds.accumulator import Keeps
from dagster_ckpt.operators.aggregates.kinds.counts import LAST_TIME, LastTime
from dagster_ckpt.operators.aggregates.registry import plan, plan_updating, plan_with_tables
from dagster_ckpt.operators.aggregates.side_tables import SideTable, side_tables_of
from dagster_ckpt.operators.aggregates.spec import Planner
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, Origins, StreamTable
from dagster_ckpt.operators.shared import expiry_checks, retraction
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.late_rows import DROP, late_tables
from dagster_ckpt.operators.shared.net_changes import inserts, keyed_table, sides_of
from dagster_ckpt.operators.shared.state_columns import HASH, ROWS
from dagster_ckpt.operators.shared.time_to_live import AT, TimeToLive
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

NAME = "aggregate"
GROUPS = "groups"
"""The state table with a row per key, from which the stream's table is derived."""
KEYS_TOUCHED = "keys_touched"
"""Distinct keys among the epoch's rows, and keys that expired."""
COUNTERS = (KEYS_TOUCHED,)
ALWAYS = "always"
"""The parameter of a group of all rows that has its row from the first epoch on, whether there are rows or not."""


@dataclass(frozen=True)
class RunningAggregate(Operator):
    """One row per key with the aggregates over all rows so far.

    With a time to live (`ttl`) a key without new rows leaves the table, and a later row starts it again; rows below the
    watermark are then late. Without one no row is late. `sides` are tables beside the one of the keys. `always`: the
    one group of all rows has a row in the table whether there are any, as in SQL.
    """

    pipeline: Pipeline
    grouped: GroupedState
    ttl: TimeToLive | None
    sides: tuple[SideTable, ...]
    updating: bool
    always: bool = False

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        aggregations: Mapping[str, Aggregation],
        source: InputSpec,
        event_time: str | None = None,
        expire_after_us: int | None = None,
        late: str = DROP,
        *,
        updating: bool = False,
        where: str | None = None,
    ) -> "RunningAggregate":
        """Check and plan the operator; raises `InvalidPipelineError`.

        `source.schema` has all columns of the input, `pipeline.inputs[0].schema` those that `on_rows` reads.
        `updating`: `_change_type` marks each input row as added or retracted; `where` is then the text of the condition
        that selected the rows, if any, for the fingerprint.
        """
        schema = source.schema
        _check(keys, aggregations, schema, event_time)
        expiry_checks.check_expiry(NAME, expire_after_us, late, event_time, schema)
        if updating:
            aggregate_checks.check_updating(aggregations, schema, expire_after_us)
        planner = plan_updating if updating else plan_with_tables if expire_after_us is None else plan
        grouped, sides = _plan(keys, aggregations, schema, None if updating else event_time, planner)
        key_fields = [schema.field(key) for key in keys]
        groups = StateTableSpec(GROUPS, pa.schema([*key_fields, *grouped.fields]), keys)
        ttl = None if expire_after_us is None else TimeToLive(groups, LAST_TIME, expire_after_us)
        beside = [spec for side in sides for spec in side.specs]
        added = [*([AT, HASH] if ttl else []), *(name for spec in beside for name in spec.schema.names[len(keys) :])]
        pipeline_checks.check_state_names(keys, [*(field.name for field in grouped.fields), *added])
        output = pa.schema([*key_fields, *grouped.results])
        pipeline_checks.check_columns(output)
        kept_late = late_tables(late, [source], [event_time])
        read = {*keys, *grouped.values, event_time, CHANGE_TYPE if updating else None}
        used = schema if kept_late else pa.schema([field for field in schema if field.name in read])
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                **_parameters(aggregations, event_time, expire_after_us, late),
                **(updating_checks.parameters(where) if updating else {}),
            },
            inputs=(replace(source, schema=used),),
            keys=keys,
            tables=(groups, *([ttl.expiries] if ttl else []), *beside, *kept_late),
            output=output,
        )
        return cls(pipeline, grouped, ttl, sides, updating)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, code: object = None) -> "RunningAggregate":
        """The same operator from its fingerprint, and the user's code (`aggregations_of`)."""
        options: dict[str, Any] = pipeline.parameters
        operator = cls.build(
            pipeline.keys,
            aggregations_of(options, code),
            pipeline.inputs[0],
            options["event_time"],
            options.get("expire_after_us"),
            options.get("late", DROP),
            updating=options.get(updating_checks.UPDATING, False),
            where=options.get(updating_checks.WHERE),
        )
        return operator.lasting() if options.get(ALWAYS, False) else operator

    def lasting(self) -> "RunningAggregate":
        """The aggregate of all rows as one group, which has a row from the first epoch on, even without rows."""
        assert self.ttl is None, "a group that lasts does not expire"
        pipeline = replace(self.pipeline, parameters={**self.pipeline.parameters, ALWAYS: True})
        return replace(self, pipeline=pipeline, always=True)

    @property
    def only_adds(self) -> bool:
        """Whether a row only adds to its group, whenever it comes: rows may be grouped before they come here."""
        return not (self.updating or self.sides) and self.ttl is None and self.event_times == (None,)

    @property
    def horizon_us(self) -> int | None:
        # Keys expire, but no row waits to be emitted: at the end of the input the table stays.
        return None if self.ttl is None else 0

    @property
    def table(self) -> StreamTable:
        return keyed_table(GROUPS, self.pipeline.keys, self.results)

    @property
    def origins(self) -> Origins:
        return aggregate_origins(self.pipeline)

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        late = self._late(rows, context)
        if len(late):
            used = np.delete(np.arange(rows.num_rows), late)
            hashes, rows = hashes[used], take(rows, used)
        if self.updating:
            come, back = sides_of(rows)
            self._take_in(hashes[come], take(rows, come), state, context)
            self._take_in(hashes[back], take(rows, back), state, context, back=True)
        else:
            self._take_in(hashes, rows, state, context)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for _ in self.settle(state, context):
            yield inserts(self.pipeline.output.empty_table())
        for touched in state.table(GROUPS).touched_keys():
            if self.ttl is not None:
                self.ttl.schedule(touched, state)
            context.counters[KEYS_TOUCHED] += len(touched.hashes)
            yield self.table.changes_of(touched)

    def settle(self, state: State, context: EpochContext) -> Iterator[None]:
        """Bring the state to the end of the epoch, after all its rows; between pieces the caller may flush."""
        table = state.table(GROUPS)
        if self.always and 0 in context.shards:
            self._begin(state, context)
        if self.ttl is not None:
            yield from self.ttl.expire(state, context)
        for side in self.sides:
            for hashes, settled in side.settle(state, context):
                self._settle(hashes, settled, table)
                yield
        if self.updating:
            counts = self._columns_of(lambda keeps: keeps.counts) - {ROWS}
            totals = self._columns_of(lambda keeps: not keeps.counts) - {LAST_TIME, *self._settled_names}
            retraction.drop_emptied(self.pipeline.tables[0], state, sorted(counts), sorted(totals), stays=self.always)

    def merge(
        self, hashes: Hashes, keys: pa.Table, fresh: dict[str, pa.Array], state: State, context: EpochContext
    ) -> None:
        """Merge the state of groups' new rows (`fresh`, the columns of `grouped`) with theirs; a key is there once."""
        table = state.table(GROUPS)
        found = table.get(hashes, keys)
        living = found if self.ttl is None else self.ttl.drop_expired(found, context)
        merged = self.grouped.merge_with(living, fresh)
        schema = self.pipeline.tables[0].schema
        put = pa.Table.from_arrays([*flatten(keys).columns, *merged.values()], schema=schema)
        table.put(hashes, put, before=found)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """The rows of the table from those of `GROUPS`."""
        columns = columns_of(state_rows)
        keys = [columns[key] for key in self.pipeline.keys]
        return pa.Table.from_arrays([*keys, *self.grouped.results_of(columns)], schema=self.pipeline.output)

    def _late(self, rows: pa.Table, context: EpochContext) -> Positions:
        [event_time] = self.event_times
        if self.ttl is None or event_time is None:
            return NONE_LATE
        return late_rows(flat(rows.column(event_time)), context.watermark_us)

    def _columns_of(self, which: Callable[[Keeps], bool]) -> set[str]:
        """The state columns of the accumulators that keep something like this."""
        return {field.name for each in self.grouped.accumulators if which(each.keeps) for field in each.fields}

    @property
    def _settled_names(self) -> set[str]:
        """The state columns of a group that are known at the end of the epoch."""
        return {name for side in self.sides for name in side.settles}

    def _settle(self, hashes: Hashes, settled: pa.Table, table: StateTable) -> None:
        """Replace columns of groups that have a row; `settled` has their keys and these columns."""
        found = table.get(hashes, settled.select(list(self.pipeline.keys)))
        assert found.present.all(), "a group of this epoch has a row"
        rows = found.rows
        for name in settled.column_names[len(self.pipeline.keys) :]:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), settled.column(name))
        table.put(hashes, flatten(rows), before=found)

    def _begin(self, state: State, context: EpochContext) -> None:
        """Give the one group of all rows its row if it has none: what a row of nulls leaves that does not count."""
        table, keys = state.table(GROUPS), list(self.pipeline.keys)
        rows = flatten(pa.table([pa.nulls(1, field.type) for field in self._read], schema=pa.schema(self._read)))
        group = rows.select(keys)
        hashes = key_hashes(group)
        found = table.get(hashes, group)
        if found.present.any():
            return
        for side in self.sides:
            if side.columns:
                rows = side.take_in(hashes, rows, state, context, back=False)
        fresh = self.grouped.of_rows(rows, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        fresh[ROWS] = pa.array([0], fresh[ROWS].type)
        put = pa.Table.from_arrays([*group.columns, *fresh.values()], schema=self.pipeline.tables[0].schema)
        table.put(hashes, put, before=found)

    @property
    def _read(self) -> list[pa.Field]:
        return [field.with_nullable(True) for field in self.pipeline.inputs[0].schema if field.name != CHANGE_TYPE]

    def _take_in(
        self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool = False
    ) -> None:
        """Add rows, or retract them (`back`)."""
        if rows.num_rows == 0:
            return
        keys = flatten(rows.select(list(self.pipeline.keys)))
        groups = key_order(hashes, keys)
        first = groups.order[groups.starts]
        group_hashes, group_keys = hashes[first], take(keys, first)
        for side in self.sides:
            rows = side.take_in(hashes, rows, state, context, back=back)
        fresh = self.grouped.of_rows(rows, groups.order, groups.starts)
        if back:
            subtracted = self._columns_of(lambda keeps: keeps.subtracts) - self._settled_names
            fresh |= retraction.negate({name: fresh[name] for name in fresh if name in subtracted})
        self.merge(group_hashes, group_keys, fresh, state, context)


def _check(
    keys: tuple[str, ...], aggregations: Mapping[str, Aggregation], schema: pa.Schema, event_time: str | None
) -> None:
    pipeline_checks.check_keys(keys, schema)
    pipeline_checks.check_event_time(event_time, schema)
    aggregate_checks.check_aggregations(aggregations, keys, schema, event_time)


def _plan(
    keys: tuple[str, ...],
    aggregations: Mapping[str, Aggregation],
    schema: pa.Schema,
    event_time: str | None,
    planner: Planner,
) -> tuple[GroupedState, tuple[SideTable, ...]]:
    """The state of each key, and the tables beside. A key that may expire keeps all its state in its row."""
    grouped = GroupedState.of(aggregations, schema, event_time, also=[LastTime(event_time)], planner=planner)
    sides = side_tables_of(grouped.accumulators, keys, schema)
    return replace(grouped, values=(*grouped.values, *(name for side in sides for name in side.columns))), sides


def _parameters(
    aggregations: Mapping[str, Aggregation],
    event_time: str | None,
    expire_after_us: int | None,
    late: str,
) -> dict[str, object]:
    """The options as plain JSON values. Options that older releases do not know are present only if set."""
    expiry = {} if expire_after_us is None else {"expire_after_us": expire_after_us, "late": str(late)}
    return {"aggregates": spellings(aggregations), "event_time": event_time, **expiry}
