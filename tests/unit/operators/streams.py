"""Drive an operator over epochs of batches, without an engine, and look at what comes out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.ids import Epoch, Shard
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.operators import EpochContext, RunningAggregate
from dagster_ckpt.operators.agg import Aggregation
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.protocol.manifest.manifest import InputSpec
from tests.unit.operators.dict_state import DictState


def context() -> EpochContext:
    return EpochContext(epoch=Epoch(1), shards=(Shard(0),), of=1, watermark_us=None, memory_bytes=1 << 20)


def build(
    schema: pa.Schema, keys: tuple[str, ...], event_time: str | None = None, **aggregations: Aggregation
) -> RunningAggregate:
    return RunningAggregate.build(keys, aggregations, InputSpec((), schema), event_time)


def state_of(operator: RunningAggregate) -> DictState:
    return DictState.of(operator.pipeline)


def colliding(rows: pa.Table) -> Hashes:
    """One hash for every key."""
    return np.full(rows.num_rows, 7, dtype=np.uint64)


@dataclass
class Streamed:
    """A running operator, fed epoch by epoch."""

    operator: RunningAggregate
    state: DictState = field(init=False)
    context: EpochContext = field(default_factory=context)

    def __post_init__(self) -> None:
        self.state = state_of(self.operator)

    def epoch(self, *batches: pa.Table) -> list[dict[str, object]]:
        """The epoch's changes."""
        self.context = context()
        for batch in batches:
            self.operator.on_rows(0, colliding(batch), batch, self.state, self.context)
        pieces = list(self.operator.finish(self.state, self.context))
        for changes in pieces:
            assert changes.count == changes.rows.num_rows
        self.state.next_epoch()
        return [row for changes in pieces for row in changes.rows.to_pylist()]

    def table(self) -> pa.Table:
        return self.operator.table.rows(self.state.tables[GROUPS].live())


def aggregated(rows: pa.Table, keys: Iterable[str] = ("k",), **aggregations: Aggregation) -> Mapping[object, Any]:
    """The one aggregate asked for, by the one key, over all rows as one batch."""
    streamed = Streamed(build(rows.schema, tuple(keys), None, **aggregations))
    streamed.epoch(rows)
    (name,), (key,) = aggregations, keys
    result = streamed.table().to_pydict()
    return dict(zip(result[key], result[name], strict=True))
