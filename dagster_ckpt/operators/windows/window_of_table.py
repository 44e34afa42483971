"""The aggregate over tumbling and hopping windows of a table: its rows come and go, however old they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, take
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.operators.aggregates import aggregate_checks
from dagster_ckpt.operators.aggregates.aggregate import GROUPS, RunningAggregate
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import aggregate_origins, aggregations_of
from dagster_ckpt.operators.aggregates.registry import FUNCTIONS
from dagster_ckpt.operators.operator import Changes, EpochContext, Operator, Origins, StreamTable
from dagster_ckpt.operators.shared.bounded.lookups import Lookups
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks, window_checks
from dagster_ckpt.operators.shared.late_rows import DROP, check_late, late_tables
from dagster_ckpt.operators.shared.net_changes import inserts, keyed_table
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, micros, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.window_kinds import WINDOW_END, WINDOW_START, FixedWindow, bound_origins
from dagster_ckpt.operators.windows.windowed_state import (
    WINDOWS_CLOSED,
    WINDOWS_OPENED,
    WindowOptions,
    due,
    windows_of_rows,
)
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SortKind, StateTableSpec

NAME = "window_of_table"
COUNTERS = (WINDOWS_OPENED, WINDOWS_CLOSED)
STARTS = "starts"
"""The timeline of the windows' starts, of windows that will be closed. A window may have lost its rows since."""
_OF_INPUT = "_window_start"
"""A column `window_start` of the input, within `groups`: its own name is that of the window."""


@dataclass(frozen=True)
class WindowOfTable(Operator):
    """One row per key and window with the aggregates over the rows that are in it now.

    It is the running aggregate of the key and the window: `groups`. With early results all windows are in the table
    as long as they have rows, and no row is late: it is the aggregate in SQL. Otherwise a window is closed when the
    watermark reaches its end; its row is emitted, once, and what comes or goes later is late for it. A row without an
    event time is in no window, and late.
    """

    pipeline: Pipeline
    options: WindowOptions
    window: FixedWindow
    groups: RunningAggregate

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        options: WindowOptions,
        source: InputSpec,
        *,
        updating: bool = True,
        where: str | None = None,
    ) -> "WindowOfTable":
        """Check and plan the operator; raises `InvalidPipelineError`.

        `source.schema` has all columns of the input, `pipeline.inputs[0].schema` those that `on_rows` reads, or all of
        them where late rows are kept. `updating` and `where` as in `RunningAggregate.build`.
        """
        window = window_checks.fixed_window_of_table(options.window)
        time = window_checks.time_of_window(options.event_time, source.schema)
        aggregations, early, late = options.aggregations, options.early, options.late
        window_checks.check_window_names([*keys, *aggregations], [WINDOW_START, WINDOW_END, HASH])
        check_late(late, pa.schema([field for field in source.schema if field.name != CHANGE_TYPE]))
        start = pa.field(WINDOW_START, source.schema.field(time).type, nullable=False)
        aggregate_checks.check_aggregations(aggregations, keys, source.schema, time)
        groups = RunningAggregate.build(
            (*keys, WINDOW_START),
            {name: _within(one, time) for name, one in aggregations.items()},
            replace(source, schema=_rename_start(source.schema).append(start)),
            updating=updating,
            where=where,
        )
        if not early:
            groups = _closing(groups)
        read = {_origin(name) for name in groups.pipeline.inputs[0].schema.names if name != WINDOW_START} | {time}
        used = source.schema if late != DROP else pa.schema([field for field in source.schema if field.name in read])
        output = _with_ends(groups.pipeline.output, len(keys))
        pipeline_checks.check_columns(output)
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                **options.parameters(),
                updating_checks.UPDATING: updating,
                **({} if where is None else {updating_checks.WHERE: where}),
            },
            inputs=(replace(source, schema=used),),
            keys=keys,
            tables=(
                *groups.pipeline.tables,
                *(() if early else (_starts(groups.pipeline, keys, start),)),
                *late_tables(late, [replace(source, schema=used)], [time]),
            ),
            output=output,
            appends=not early,
        )
        return cls(pipeline, options, window, groups)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, code: object = None) -> "WindowOfTable":
        """The same operator from its fingerprint, and the user's code (`aggregations_of`)."""
        values: Mapping[str, Any] = pipeline.parameters
        updating, where = values[updating_checks.UPDATING], values.get(updating_checks.WHERE)
        options = replace(WindowOptions.of(values), aggregations=aggregations_of(values, code))
        return cls.build(pipeline.keys, options, pipeline.inputs[0], updating=updating, where=where)

    @property
    def horizon_us(self) -> int | None:
        return None if self.options.early else self.window.size_us

    @property
    def table(self) -> StreamTable | None:
        return self._windows if self.options.early else None

    @property
    def origins(self) -> Origins:
        return {**aggregate_origins(self.pipeline), **bound_origins(self.pipeline)}

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        used, times = np.zeros(rows.num_rows, dtype=np.bool_), rows.column(self.options.event_time)
        for at, starts in windows_of_rows(self.window, times, None if self.options.early else context.watermark_us):
            used[at] = True
            self._take_in(hashes, rows, at, starts, state, context)
        return np.flatnonzero(~used)

    def _take_in(
        self, hashes: Hashes, rows: pa.Table, at: Positions, starts: Positions, state: State, context: EpochContext
    ) -> None:
        """Add or retract the rows at `at`, each in the window at `starts`."""
        schema = self.groups.pipeline.inputs[0].schema
        begin = pa.array(starts).view(schema.field(WINDOW_START).type)
        names = [_origin(name) for name in schema.names if name != WINDOW_START]
        taken = dict(zip(names, take(rows.select(names), at).columns, strict=True))
        columns = [begin if name == WINDOW_START else taken[_origin(name)] for name in schema.names]
        placed = flatten(pa.Table.from_arrays(columns, schema=schema))
        self.groups.on_rows(0, subkey_hashes(hashes[at], [begin]), placed, state, context)

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for _ in self.groups.settle(state, context):
            yield inserts(self.pipeline.output.empty_table())
        for touched in state.table(GROUPS).touched_keys():
            new = touched.after.present & ~touched.before.present
            context.counters[WINDOWS_OPENED] += int(np.count_nonzero(new))
            if self.options.early:
                yield self._windows.changes_of(touched)
            else:
                self._schedule(touched, new, state)
                yield inserts(self.pipeline.output.empty_table())
        if not self.options.early and context.watermark_us is not None:
            yield from self._close_windows(state, context.watermark_us, context)

    def _schedule(self, touched: Touched, new: Mask, state: State) -> None:
        """Put an entry for each window that has rows now and had none before; one that is still there is replaced."""
        hashes = touched.hashes[new]
        if len(hashes):
            spec = next(table for table in self.pipeline.tables if table.name == STARTS)
            rows = take(touched.after.rows.select(list(spec.keys)), np.flatnonzero(new[touched.after.present]))
            entries = pa.Table.from_arrays([*rows.columns, hash_column(hashes)], schema=spec.schema)
            state.timeline(STARTS).put(hashes, entries)

    def _close_windows(self, state: State, watermark_us: int, context: EpochContext) -> Iterator[Changes]:
        """Emit the windows whose end the watermark has reached, and drop them."""
        until_us = watermark_us - self.window.size_us + 1
        lookups = Lookups(state.table(GROUPS), context.memory_bytes // 4)
        pieces = OutputPieces(self.pipeline.output, context.memory_bytes // 2)
        for hashes, starts in due(state, until_us, STARTS):
            for _, found in lookups.find(hashes, starts.select(list(self.groups.pipeline.keys))):
                context.counters[WINDOWS_CLOSED] += found.rows.num_rows
                yield from pieces.add(self.results(found.rows))
        yield from pieces.rest()
        for table in self.groups.pipeline.tables:
            if table.time == WINDOW_START:
                state.table(table.name).expire(until_us)
        state.timeline(STARTS).expire(until_us)

    @property
    def _windows(self) -> StreamTable:
        return keyed_table(GROUPS, (*self.pipeline.keys, WINDOW_START, WINDOW_END), self.results)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """The rows of the table from those of `GROUPS`."""
        rows = self.groups.results(state_rows)
        start = flat(rows.column(WINDOW_START))
        end = pa.array(micros(start) + self.window.size_us).view(start.type)
        at = self.pipeline.output.get_field_index(WINDOW_END)
        columns = [*rows.columns[:at], end, *rows.columns[at:]]
        return pa.Table.from_arrays(columns, schema=self.pipeline.output)


def _within(aggregation: Aggregation, event_time: str) -> Aggregation:
    """The aggregate as the groups compute it: in the order of the event time, if it has no other."""
    by = event_time if "by" in FUNCTIONS[aggregation.function].options and aggregation.by is None else aggregation.by
    named = (aggregation.column, aggregation.other, by)
    column, other, by = (_OF_INPUT if name == WINDOW_START else name for name in named)
    columns = aggregation.columns and tuple(_OF_INPUT if name == WINDOW_START else name for name in aggregation.columns)
    return replace(aggregation, column=column, other=other, by=by, columns=columns)


def _rename_start(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_name(_OF_INPUT) if field.name == WINDOW_START else field for field in schema])


def _origin(name: str) -> str:
    """The name in the input of a column of the groups' input."""
    return WINDOW_START if name == _OF_INPUT else name


def _closing(groups: RunningAggregate) -> RunningAggregate:
    """The groups, in tables that drop the windows before a time."""
    tables = tuple(each if each.time else replace(each, time=WINDOW_START) for each in groups.pipeline.tables)
    return replace(groups, pipeline=replace(groups.pipeline, tables=tables))


def _starts(groups: Pipeline, keys: tuple[str, ...], start: pa.Field) -> StateTableSpec:
    """The timeline `STARTS`."""
    key_fields = [groups.tables[0].schema.field(key) for key in keys]
    schema = pa.schema([start, *key_fields, whole_number(HASH)])
    return StateTableSpec(STARTS, schema, (WINDOW_START, *keys), SortKind.TIME, time=WINDOW_START)


def _with_ends(output: pa.Schema, keys: int) -> pa.Schema:
    start = output.field(WINDOW_START)
    return output.insert(keys + 1, start.with_name(WINDOW_END))
