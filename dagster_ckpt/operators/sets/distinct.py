"""Each row once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import (
    NONE_LATE,
    Changes,
    EpochContext,
    LiveRows,
    Operator,
    StreamTable,
    event_times_of,
)
from dagster_ckpt.operators.sets.whole_rows import WholeRows, changing, parameters, weight_names, wheres_of
from dagster_ckpt.operators.shared.net_changes import kept_rows, table_of_columns
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import ROWS_TABLE, InputSpec, Pipeline

NAME = "distinct"
ROWS = ROWS_TABLE
"""The state table: each distinct row, with the number of equal rows if the input updates or deletes rows."""


@dataclass(frozen=True)
class Distinct(Operator):
    """The distinct rows of the input. If that only appends, a row is appended when it is first there.

    -0.0 becomes 0.0, as in Spark.
    """

    pipeline: Pipeline
    rows: WholeRows
    counts: ZSetTable

    @classmethod
    def build(cls, source: InputSpec, where: str | None = None, event_time: str | None = None) -> "Distinct":
        """Check the input; raises `InvalidPipelineError`. An input with `_change_type` changes.

        `where` is the text of the condition that selected its rows, for the fingerprint.
        `event_time` is its event-time column, from which the watermark of the steps behind follows.
        """
        changes = changing(source)
        rows = WholeRows.of(NAME, [source], weight_names(1) if changes else ())
        counts = rows.weights_table(ROWS, [not changes], weighs=changes)
        pipeline = Pipeline(
            operator=NAME,
            parameters=parameters(rows, [source], rows.row_key, [where], [event_time], appends=not changes),
            inputs=(source,),
            keys=rows.keys,
            tables=(counts.spec,),
            output=rows.schema,
            appends=not changes,
        )
        return cls(pipeline, rows, counts)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Distinct":
        """The same operator from its fingerprint."""
        [where], [event_time] = wheres_of(pipeline), event_times_of(pipeline)
        return cls.build(pipeline.inputs[0], where, event_time)

    @property
    def table(self) -> StreamTable | None:
        return None if self.pipeline.appends else self._rows

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        net = self.rows.net(hashes, rows)
        if len(net):
            self.counts.add(net, state)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for touched in self.counts.epoch_changes(state):
            yield self._rows.changes_of(touched)

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        assert self.pipeline.appends, "else it has a table of its rows"
        for piece in live(ROWS):
            yield 0, kept_rows(piece, np.ones(piece.num_rows, dtype=np.int64), self.pipeline.inputs[0].schema)

    @property
    def _rows(self) -> StreamTable:
        return table_of_columns(ROWS, self.counts.spec.keys, self.rows.schema.names)
