"""The rows of both inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, Origins, event_times_of
from dagster_ckpt.operators.sets.whole_rows import WholeRows, both_origins, changing, parameters, wheres_of
from dagster_ckpt.operators.shared.zsets import epoch_rows
from dagster_ckpt.operators.shared.zsets.epoch_rows import EpochRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "union_all"
EPOCH = "epoch"
"""The state table: the rows of the current epoch, and by how much the number of each changes."""


@dataclass(frozen=True)
class UnionAll(Operator):
    """All rows of both inputs, as SQL's UNION ALL. It keeps nothing after an epoch.

    The union of inputs that only append is append-only.
    """

    pipeline: Pipeline
    rows: WholeRows
    arrived: EpochRows

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        wheres: Sequence[str | None] = (None, None),
        event_times: Sequence[str | None] = (None, None),
    ) -> "UnionAll":
        """Check the inputs; raises `InvalidPipelineError`. An input with `_change_type` changes.

        `wheres` are the texts of the conditions that selected their rows, for the fingerprint.
        `event_times` are their event-time columns, from which the watermark of later steps follows.
        """
        appends = not any(map(changing, inputs))
        rows = WholeRows.of(NAME, inputs, epoch_rows.ADDED)
        arrived = EpochRows.of(EPOCH, rows.schema, ())
        pipeline = Pipeline(
            operator=NAME,
            parameters=parameters(rows, inputs, None, wheres, event_times, appends=appends),
            inputs=tuple(inputs),
            keys=rows.keys,
            tables=(arrived.spec,),
            output=rows.schema,
            appends=appends,
        )
        return cls(pipeline, rows, arrived)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "UnionAll":
        """The same operator from its fingerprint."""
        return cls.build(pipeline.inputs, wheres_of(pipeline), event_times_of(pipeline))

    @property
    def origins(self) -> Origins:
        return both_origins(self.pipeline)

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        delta = ZSet.of_changes(self.rows.hashes(hashes, rows), rows, self.arrived.spec.keys)
        self.arrived.add(delta, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for net in self.arrived.net(state, context):
            yield net.to_changes(self.rows.schema.names)
