"""The rows of both inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, WithoutTable
from dagster_ckpt.operators.sets.whole_rows import WholeRows, changing, parameters, repeated, times_of, wheres_of
from dagster_ckpt.operators.shared.net_changes import labelled
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.protocol.change_columns import DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

NAME = "union_all"
EPOCH = "epoch"
"""The state table: the rows of the current epoch, and by how much the number of each changes."""
MORE, AT = "_more", "_at"


@dataclass(frozen=True)
class UnionAll(WithoutTable):
    """All rows of both inputs, equal ones as often as both have them. It keeps nothing after an epoch.

    The union of inputs that only append is append-only.
    """

    pipeline: Pipeline
    rows: WholeRows

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        wheres: Sequence[str | None] = (None, None),
        event_times: Sequence[str | None] = (None, None),
    ) -> "UnionAll":
        """Check the inputs; raises `InvalidPipelineError`. An input with `_change_type` changes.

        `wheres` are the texts of the conditions that selected their rows: part of the fingerprint, as with `Mirror`.
        `event_times` are their event-time columns, from which the watermark of the steps behind follows.
        """
        appends = not any(map(changing, inputs))
        rows = replace(WholeRows.of(NAME, inputs, (MORE, AT)), alike=flat)
        schema = pa.schema([*rows.schema, whole_number(MORE), pa.field(AT, pa.timestamp("us"), nullable=False)])
        pipeline = Pipeline(
            operator=NAME,
            parameters=parameters(rows, inputs, None, wheres, event_times, appends=appends),
            inputs=tuple(inputs),
            keys=rows.keys,
            tables=(StateTableSpec(EPOCH, schema, tuple(rows.schema.names), time=AT),),
            output=rows.schema,
            appends=appends,
        )
        return cls(pipeline, rows)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "UnionAll":
        """The same operator from its fingerprint."""
        return cls.build(pipeline.inputs, wheres_of(pipeline), times_of(pipeline))

    @property
    def event_times(self) -> tuple[str | None, ...]:
        return times_of(self.pipeline)

    @property
    def horizon_us(self) -> int | None:
        return None

    @property
    def counters(self) -> tuple[str, ...]:
        return ()

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        net = self.rows.net(hashes, rows)
        if len(net.more):
            table = state.table(EPOCH)
            found = table.get(net.hashes, net.rows)
            more = net.more.copy()
            more[found.present] += flat(found.rows.column(MORE)).to_numpy()
            at = pa.array(np.full(len(more), context.number)).cast(pa.timestamp("us"))
            columns = [*net.rows.columns, pa.array(more), at]
            put = pa.Table.from_arrays(columns, schema=self.pipeline.tables[0].schema)
            table.put(net.hashes, put, before=found)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        table = state.table(EPOCH)
        for touched in table.touched():
            yield self._changes(touched.after.rows)
        table.expire(context.number + 1)

    def _changes(self, rows: pa.Table) -> Changes:
        more = flat(rows.column(MORE)).to_numpy()
        rows = rows.select(self.rows.schema.names)

        def made() -> pa.Table:
            come, gone = np.flatnonzero(more > 0), np.flatnonzero(more < 0)
            added, removed = (repeated(take(rows, at), np.abs(more[at])) for at in (come, gone))
            return labelled([(INSERT, added), (DELETE, removed)])

        return Changes(int(np.abs(more).sum()), made)
