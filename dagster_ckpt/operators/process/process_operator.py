"""The process function as an operator: rows in, user-defined state, the function's output appended."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import IncompatibleStateError
from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.nullability import all_nullable_within
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator
from dagster_ckpt.operators.process.function import ProcessFunction
from dagster_ckpt.operators.process.process_checks import check_function, check_process
from dagster_ckpt.operators.process.process_epoch import KEYS_EXPIRED, TIMERS_FIRED, ProcessEpoch
from dagster_ckpt.operators.process.process_tables import (
    EXPIRY,
    TIMERS,
    out_table,
    seen_table,
    tables_of_state,
    timeline,
)
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.late_rows import DROP, late_tables
from dagster_ckpt.operators.shared.net_changes import inserts
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec
from dagster_ckpt.protocol.transitions.compatibility import breaking_changes

NAME = "process"
COUNTERS = (TIMERS_FIRED, KEYS_EXPIRED)


@dataclass(frozen=True)
class ProcessOperator(Operator):
    """Calls the user's function with rows or timers and the state of their keys.

    The fingerprint has what the function declares, so that a change is detected; no manifest has the function itself. A
    row before the watermark, or with an event time out of range, is late: the function never receives it.
    """

    pipeline: Pipeline
    function: ProcessFunction

    @classmethod
    def build(
        cls,
        function: ProcessFunction,
        keys: tuple[str, ...],
        source: InputSpec,
        event_time: str | None = None,
        late: str = DROP,
        expire_after_us: int | None = None,
    ) -> "ProcessOperator":
        """Check the function and lay out its state; raises `InvalidPipelineError`.

        `expire_after_us`: all state of a key is deleted once the watermark is that far past its last row.
        """
        function = check_process(function, keys, source, event_time, late, expire_after_us)
        tables = _tables(function, keys, source.schema, event_time, expire_after_us)
        pipeline = Pipeline(
            operator=NAME,
            parameters={"event_time": event_time, "late": late, "expire_after_us": expire_after_us},
            inputs=(source,),
            keys=keys,
            tables=(*tables, *late_tables(late, (source,), (event_time,))),
            output=all_nullable_within(function.output),
            appends=True,
        )
        return cls(pipeline, function)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline, function: object) -> "ProcessOperator":
        """The same operator from its fingerprint and the user's function.

        Raises `IncompatibleStateError` for a function that declares something else.
        """
        event_time, late, expire_after_us = _from_parameters(pipeline)
        built = cls.build(
            check_function(function), pipeline.keys, pipeline.inputs[0], event_time, late, expire_after_us
        )
        if changes := breaking_changes(pipeline, built.pipeline):
            raise IncompatibleStateError(
                "the process function is not the one that the stream was opened with: deploy the same code everywhere. "
                f"operator={NAME}, function={type(function).__name__}, changes={'; '.join(changes)}"
            )
        return built

    @property
    def horizon_us(self) -> int | None:
        within = self.function.timers_within
        return None if within is None else within // timedelta(microseconds=1)

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        if rows.num_rows == 0:
            return NONE_LATE
        work = self._work(state, context)
        for made in work.begin():
            work.out.put(made)
        late = (
            NONE_LATE
            if work.event_time is None
            else late_rows(flat(rows.column(work.event_time)), context.watermark_us)
        )
        if len(late):
            in_time = np.delete(np.arange(rows.num_rows), late)
            hashes, rows = hashes[in_time], take(rows, in_time)
        if rows.num_rows:
            work.take_in(hashes, rows)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        work = self._work(state, context)
        for source in (work.begin, work.out.drain, work.fire):
            for made in source():
                yield inserts(made)
        work.end()

    def _work(self, state: State, context: EpochContext) -> ProcessEpoch:
        event_time, _, expire_after_us = _from_parameters(self.pipeline)
        return ProcessEpoch(self.function, self.pipeline, event_time, expire_after_us, state, context)


def _tables(
    function: ProcessFunction,
    keys: tuple[str, ...],
    rows: pa.Schema,
    event_time: str | None,
    expire_after_us: int | None,
) -> list[StateTableSpec]:
    key_fields = pa.schema([rows.field(key) for key in keys])
    tables = tables_of_state(function.state, key_fields)
    if event_time is not None:
        type_ = rows.field(event_time).type
        if function.timers_within is not None:
            tables.append(timeline(TIMERS, key_fields, type_))
        if expire_after_us is not None:
            tables.extend([seen_table(key_fields, type_), timeline(EXPIRY, key_fields, type_)])
    return [*tables, out_table(all_nullable_within(function.output))]


def _from_parameters(pipeline: Pipeline) -> tuple[str | None, str, int | None]:
    parameters: dict[str, Any] = pipeline.parameters
    return parameters["event_time"], parameters["late"], parameters["expire_after_us"]
