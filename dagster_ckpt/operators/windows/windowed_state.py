"""What windows of every kind share: the columns of their state, and how these become the stream's table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates import aggregate_checks
from dagster_ckpt.operators.aggregates.aggregation import Aggregation
from dagster_ckpt.operators.aggregates.grouped_state import (
    GroupedState,
    aggregate_origins,
    aggregations_of,
    columns_of,
    spellings,
)
from dagster_ckpt.operators.aggregates.kinds.accumulator import Columns
from dagster_ckpt.operators.operator import Operator, Origins, StreamTable
from dagster_ckpt.operators.shared.arrays.nulls import fill_null, has_value
from dagster_ckpt.operators.shared.checks import pipeline_checks, window_checks
from dagster_ckpt.operators.shared.event_time_range import out_of_range
from dagster_ckpt.operators.shared.late_rows import DROP, check_late, late_tables
from dagster_ckpt.operators.shared.net_changes import keyed_table
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, hashes_in, micros, whole_number
from dagster_ckpt.operators.shared.window_kinds import (
    WINDOW_END,
    WINDOW_START,
    FixedWindow,
    Window,
    are_open,
    bound_origins,
    window_as_json,
    window_from_json,
)
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, SortKind, StateTableSpec

WINDOWS = "windows"
"""The state table with a row for each key and window."""
ENDS = "ends"
"""The timeline of the windows' ends."""
WINDOWS_OPENED = "windows_opened"
"""Windows of a key that got their first row in the epoch."""
WINDOWS_CLOSED = "windows_closed"
"""Windows of a key that were emitted in the epoch. None with early results, which are in the table from the start."""
_ROWS_MAX = 1 << 20
"""The rows to process at once; a row counts once for each window it is in."""


@dataclass(frozen=True)
class WindowOptions:
    """What an aggregate over windows computes, and how it emits results."""

    window: Window
    aggregations: Mapping[str, Aggregation]
    event_time: str
    early: bool
    late: str

    def parameters(self) -> dict[str, object]:
        """The options as plain JSON values."""
        return {
            "window": window_as_json(self.window),
            "aggregates": spellings(self.aggregations),
            "event_time": self.event_time,
            "early": self.early,
            "late": str(self.late),
        }

    @classmethod
    def of(cls, parameters: Mapping[str, object]) -> "WindowOptions":
        """The options from a pipeline's parameters."""
        values: Mapping[str, Any] = parameters
        window = window_from_json(values["window"])
        return cls(window, aggregations_of(parameters), values["event_time"], values["early"], values["late"])


@dataclass(frozen=True)
class WindowedState:
    """The columns of an aggregate over windows: the key, the bounds of the window, and the accumulators."""

    keys: tuple[pa.Field, ...]
    start: pa.Field
    end: pa.Field
    grouped: GroupedState

    @classmethod
    def of(cls, keys: tuple[str, ...], options: WindowOptions, schema: pa.Schema) -> "WindowedState":
        """Check what windows of every kind require. Raises `InvalidPipelineError`."""
        pipeline_checks.check_keys(keys, schema)
        aggregate_checks.check_aggregations(options.aggregations, keys, schema, options.event_time)
        window_checks.check_window_names([*keys, *options.aggregations], [WINDOW_START, WINDOW_END, HASH])
        check_late(options.late, schema)
        grouped = GroupedState.of(options.aggregations, schema, options.event_time)
        pipeline_checks.check_state_names(keys, [field.name for field in grouped.fields])
        time = schema.field(options.event_time).type
        start, end = (pa.field(name, time, nullable=False) for name in (WINDOW_START, WINDOW_END))
        state = cls(tuple(schema.field(key) for key in keys), start, end, grouped)
        pipeline_checks.check_columns(state.output)
        return state

    def pipeline(
        self, operator: str, options: WindowOptions, source: InputSpec, tables: Sequence[StateTableSpec]
    ) -> Pipeline:
        """The fingerprint of an operator with this state."""
        keys = tuple(field.name for field in self.keys)
        read = {*keys, *self.grouped.values, options.event_time}
        if options.late == DROP:
            source = replace(source, schema=pa.schema([field for field in source.schema if field.name in read]))
        return Pipeline(
            operator=operator,
            parameters=options.parameters(),
            inputs=(source,),
            keys=keys,
            tables=(*tables, *late_tables(options.late, [source], [options.event_time])),
            output=self.output,
            appends=not options.early,
        )

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns and the start of the window: the key of a state row."""
        return (*(field.name for field in self.keys), WINDOW_START)

    @property
    def output(self) -> pa.Schema:
        """The columns of the stream's table."""
        return pa.schema([*self.keys, self.start, self.end, *self.grouped.results])

    def windows(self, *, expire: bool) -> StateTableSpec:
        """The table `WINDOWS`. Its rows expire at the end of their window, or never."""
        schema = pa.schema([*self.keys, self.start, self.end, *self.grouped.fields])
        return StateTableSpec(WINDOWS, schema, self.key_names, time=WINDOW_END if expire else None)

    def ends(self) -> StateTableSpec:
        """The timeline `ENDS`."""
        schema = pa.schema([self.end, *self.keys, self.start, whole_number(HASH)])
        return StateTableSpec(ENDS, schema, (WINDOW_END, *self.key_names), SortKind.TIME, time=WINDOW_END)

    def windows_of(self, keys: pa.Table, starts: Positions) -> pa.Table:
        """The keys of state rows: these keys, with windows at these starts."""
        return pa.Table.from_arrays([*keys.columns, self._times(starts)], schema=pa.schema([*self.keys, self.start]))

    def state_rows(self, windows: pa.Table, ends: Positions, kept: Columns) -> pa.Table:
        """The rows of `WINDOWS` under these keys (`windows_of`)."""
        columns = [*windows.columns, self._times(ends), *kept.values()]
        return pa.Table.from_arrays(columns, schema=pa.schema([*windows.schema, self.end, *self.grouped.fields]))

    def ends_of(self, hashes: Hashes, state_rows: pa.Table) -> pa.Table:
        """The rows of `ENDS` for windows of keys with these hashes."""
        columns = state_rows.select([WINDOW_END, *self.key_names]).columns
        return pa.Table.from_arrays([*columns, hash_column(hashes)], schema=self.ends().schema)

    def results(self, state_rows: pa.Table) -> pa.Table:
        """The stream's table from rows of `WINDOWS`."""
        columns = columns_of(state_rows)
        keys = [columns[name] for name in (*self.key_names, WINDOW_END)]
        return pa.Table.from_arrays([*keys, *self.grouped.results_of(columns)], schema=self.output)

    @property
    def table(self) -> StreamTable:
        """The stream's table, if it has early results."""
        return keyed_table(WINDOWS, (*self.key_names, WINDOW_END), self.results)

    def _times(self, times: Positions) -> pa.Array:
        return pa.array(times).view(self.start.type)


@dataclass(frozen=True)
class WindowedOperator(Operator):
    """The part of `Operator` that windows of every kind share.

    `checked` returns a window that is of the operator's kind, and raises `InvalidPipelineError` for any other.
    """

    checked: ClassVar["staticmethod[[object], Window]"]
    pipeline: Pipeline
    options: WindowOptions
    windowed: WindowedState

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        aggregations: Mapping[str, Aggregation],
        source: InputSpec,
        event_time: str | None,
        window: Window,
        early: bool = False,  # noqa: FBT001, FBT002  (as in the public API)
        late: str = DROP,
    ) -> Self:
        """Check and plan the operator; raises `InvalidPipelineError`.

        `source.schema` has all columns of the input, `pipeline.inputs[0].schema` those that `on_rows` reads, or all of
        them where late rows are kept.
        """
        window = cls.checked(window)
        time = window_checks.time_of_window(event_time, source.schema)
        options = WindowOptions(window, aggregations, time, early, late)
        return cls.of_options(options, WindowedState.of(keys, options, source.schema), source)

    @property
    def origins(self) -> Origins:
        return {**aggregate_origins(self.pipeline), **bound_origins(self.pipeline)}

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> Self:
        """The same operator from its fingerprint."""
        options, source = WindowOptions.of(pipeline.parameters), pipeline.inputs[0]
        window = cls.checked(options.window)  # before anything else: it may be of another operator
        time, early = options.event_time, options.early
        return cls.build(pipeline.keys, options.aggregations, source, time, window, early, options.late)

    @classmethod
    def of_options(cls, options: WindowOptions, windowed: WindowedState, source: InputSpec) -> Self:
        """The operator with these options, which are checked."""
        raise NotImplementedError

    @property
    def table(self) -> StreamTable | None:
        return self.windowed.table if self.options.early else None


def due(state: State, until_us: int, timeline: str = ENDS) -> Iterator[tuple[Hashes, pa.Table]]:
    """The rows of a timeline before a moment, in pieces, with the hashes that they were put under."""
    for piece in state.timeline(timeline).scan(None, until_us):
        yield hashes_in(piece), piece


def times_of(column: pa.Array | pa.ChunkedArray) -> tuple[Positions, Mask]:
    """Event times in microseconds, and which are in range; the others are 0."""
    column = flat(column)
    times, usable = micros(fill_null(column, 0)), has_value(column)
    if (outside := out_of_range(times)).any():
        times, usable = np.where(outside, 0, times), usable & ~outside
    return times, usable


def windows_of_rows(
    window: FixedWindow, times: pa.ChunkedArray, watermark_us: int | None
) -> Iterator[tuple[Positions, Positions]]:
    """The rows that are in windows which the watermark has not closed, and the start of each one's window.

    In pieces of some rows at once; a row is there once for each window.
    """
    all_us, usable = times_of(times)
    step = max(1, _ROWS_MAX // window.windows_of_a_row)
    for first in range(0, len(all_us), step):
        assigned = window.assign(all_us[first : first + step])
        at, starts = assigned.rows + first, assigned.starts
        open_ = usable[at] & are_open(window, starts, watermark_us)
        if not open_.all():
            at, starts = at[open_], starts[open_]
        if len(at):
            yield at, starts


def rows_at(rows: pa.Table, positions: Positions) -> pa.Table:
    """The rows at these positions, one chunk per column; not copied if they are all rows in order."""
    if len(positions) == rows.num_rows and (positions[1:] > positions[:-1]).all():
        return flatten(rows)
    return take(rows, positions)
