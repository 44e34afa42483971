"""The running aggregate of rows that Spark has aggregated before: one row of partial aggregates for each key.

Worth it where an epoch has many rows for each key that it touches: then Spark's generated code reads them, and few
groups are shuffled. The state is the same either way, so a stream may change from one to the other in any epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.kinds.partials import Partial, PartialAccumulator
from dagster_ckpt.operators.operator import NONE_LATE, EpochContext
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.step import OperatorStep, with_group
from dagster_ckpt.protocol.manifest.manifest import Pipeline

_ROWS = 0
"""The place of the count of rows among the partial aggregates: every aggregate keeps it, as its first accumulator."""


@dataclass(frozen=True)
class PartialAggregate:
    """What takes in rows of partial aggregates for a step: the key columns, then one column for each.

    Each call of `on_rows` has a key at most once.
    """

    pipeline: Pipeline
    aggregate: RunningAggregate

    @property
    def schema(self) -> pa.Schema:
        """The columns of the input: those of the key, then the partial aggregates by number."""
        keys = self.pipeline.inputs[0].schema
        own = [pa.field(_name(number), each.type) for number, each in enumerate(self.partials({}))]
        return pa.schema([*(keys.field(key) for key in self.pipeline.keys), *own])

    def partials(self, names: Mapping[str, str]) -> list[Partial]:
        """The partial aggregates in SQL, in the order of the schema. `names` are those of the columns there."""
        return [each for one in self._accumulators for each in one.partials(lambda name: names.get(name, name))]

    @staticmethod
    def rows_in(rows: pa.Table) -> npt.NDArray[np.int64]:
        """How many rows each row of partial aggregates stands for."""
        counts: npt.NDArray[np.int64] = flat(rows.column(_name(_ROWS))).to_numpy()
        return counts

    @staticmethod
    def null_rows_in(_: pa.Table) -> int:
        """How many of the rows that these stand for have nothing but nulls: Spark counts none."""
        return 0

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """See `Operator.on_rows`."""
        some = np.flatnonzero(self.rows_in(rows))  # without keys SQL has a group also where there is no row
        if len(some) < len(hashes):
            hashes, rows = hashes[some], rows.take(pa.array(some))
        if len(hashes) == 0:
            return NONE_LATE
        columns = map(flat, rows.columns[len(self.pipeline.keys) :])
        fresh: dict[str, pa.Array] = {}
        for one in self._accumulators:
            own = tuple(next(columns) for _ in one.partials(str))
            names = [field.name for field in one.fields]
            fresh |= zip(names, one.of_partials(own, len(hashes)), strict=True)
        keys = rows.select(list(self.pipeline.keys))
        self.aggregate.merge(
            hashes, keys if self.pipeline.keys else with_group(keys, len(hashes)), fresh, state, context
        )
        return NONE_LATE

    @property
    def _accumulators(self) -> list[PartialAccumulator]:
        return [one for one in self.aggregate.grouped.accumulators if isinstance(one, PartialAccumulator)]


def partial_aggregate(step: OperatorStep | AppendOnly) -> PartialAggregate:
    """The intake of partial aggregates, for a step that `can_be_partial`."""
    inner = _running_aggregate(step)
    assert inner is not None, "all that the operator does with rows can be done with partial aggregates"
    return PartialAggregate(step.pipeline, inner)


def can_be_partial(step: OperatorStep | AppendOnly) -> bool:
    """Whether partial aggregates of its rows are all that the step needs."""
    return _running_aggregate(step) is not None


def _running_aggregate(step: OperatorStep | AppendOnly) -> RunningAggregate | None:
    inner = None if isinstance(step, AppendOnly) else step.operator
    if not isinstance(inner, RunningAggregate) or not inner.only_adds:
        return None
    accumulators = inner.grouped.accumulators
    is_partial = all(isinstance(each, PartialAccumulator) and each.in_place for each in accumulators)
    return inner if is_partial else None


def _name(number: int) -> str:
    return f"_partial_{number}"
