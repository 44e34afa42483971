"""The rows of the left input that the right one has too, or has not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.operators.operator import (
    NONE_LATE,
    Changes,
    EpochContext,
    LiveRows,
    Operator,
    Origins,
    event_times_of,
)
from dagster_ckpt.operators.sets.whole_rows import (
    WholeRows,
    both_origins,
    changing,
    parameters,
    weight_names,
    wheres_of,
)
from dagster_ckpt.operators.shared.net_changes import copies_of_touched, kept_rows
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline

NAME = "set_operation"
COUNTS = "counts"
"""The state table: each distinct row of either input, with its count in each."""
_INPUTS = 2


class Kind(StrEnum):
    """Which rows the output has. A row that the inputs have l and r times is there as often as the comment says."""

    INTERSECT = "intersect"  # once, if l and r are above 0
    INTERSECT_ALL = "intersect_all"  # min(l, r) times
    SUBTRACT = "subtract"  # once, if l is above 0 and r is 0
    EXCEPT_ALL = "except_all"  # max(l - r, 0) times

    @property
    def is_set(self) -> bool:
        """Whether no two rows of the output are equal."""
        return self in (Kind.INTERSECT, Kind.SUBTRACT)

    @property
    def is_of_both(self) -> bool:
        """Whether each row of the output is in both inputs."""
        return self in (Kind.INTERSECT, Kind.INTERSECT_ALL)

    def times(self, counts: Positions) -> Positions:
        """How often the output has each row, from its counts in the left and the right input."""
        left, right = counts
        times: Mapping[Kind, Callable[[], Positions]] = {
            Kind.INTERSECT: lambda: ((left > 0) & (right > 0)).astype(np.int64),
            Kind.INTERSECT_ALL: lambda: np.minimum(left, right),
            Kind.SUBTRACT: lambda: ((left > 0) & (right <= 0)).astype(np.int64),
            Kind.EXCEPT_ALL: lambda: np.maximum(left - right, 0),
        }
        return times[self]()


@dataclass(frozen=True)
class SetOperation(Operator):
    """Intersection and difference of two inputs as bags (`..._all`) or as sets. -0.0 becomes 0.0, as in Spark.

    An intersection of inputs that only append is append-only.
    """

    pipeline: Pipeline
    kind: Kind
    rows: WholeRows
    counts: ZSetTable

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        kind: str,
        wheres: Sequence[str | None] = (None, None),
        event_times: Sequence[str | None] = (None, None),
    ) -> "SetOperation":
        """Check the inputs; raises `InvalidPipelineError`. An input with `_change_type` changes.

        `wheres` are the texts of the conditions that selected their rows, for the fingerprint.
        `event_times` are their event-time columns, from which the watermark of the steps behind follows.
        """
        assert len(inputs) == _INPUTS, "a set operation has two inputs"
        if kind not in tuple(Kind):
            raise InvalidPipelineError(
                f"there is no such set operation: choose one of {', '.join(Kind)}. kind={kind!r}"
            )
        which = Kind(kind)
        rows = WholeRows.of(kind, inputs, weight_names(_INPUTS))
        once = tuple(which.is_set and not changing(source) for source in inputs)
        counts = rows.weights_table(COUNTS, once)
        grows = which.is_of_both and not any(map(changing, inputs))
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "kind": str(kind),
                **parameters(rows, inputs, rows.row_key if which.is_set else None, wheres, event_times, appends=grows),
            },
            inputs=tuple(inputs),
            keys=rows.keys,
            tables=(counts.spec,),
            output=rows.schema,
            appends=grows,
        )
        return cls(pipeline, which, rows, counts)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "SetOperation":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        return cls.build(pipeline.inputs, options["kind"], wheres_of(pipeline), event_times_of(pipeline))

    @property
    def origins(self) -> Origins:
        return both_origins(self.pipeline) if self.kind.is_of_both else super().origins

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        net = self.rows.net(hashes, rows)
        if len(net):
            weights = np.zeros((_INPUTS, len(net)), dtype=np.int64)
            weights[number] = net.weights
            self.counts.add(replace(net, weights=weights), state)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        yield from map(self._changes, self.counts.epoch_changes(state))

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        for piece in live(COUNTS):
            for number, name in enumerate(self.counts.weights):
                times = flat(piece.column(name)).to_numpy()
                yield number, kept_rows(piece, times, self.pipeline.inputs[number].schema)

    def _changes(self, touched: Touched) -> Changes:
        before, after = (self.kind.times(self.counts.weights_of(side)) for side in (touched.before, touched.after))
        return copies_of_touched(touched, after - before, self.rows.schema.names)
