"""The running aggregate of rows that are grouped where they are read: one row of state for each key goes on.

Worth it where an epoch has many rows for each key that it touches. The state is the same as without, so a stream may
change from one to the other in any epoch.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.aggregate import RunningAggregate
from dagster_ckpt.operators.aggregates.grouped_state import columns_of
from dagster_ckpt.operators.operator import NONE_LATE, EpochContext
from dagster_ckpt.operators.rows.append import AppendOnly
from dagster_ckpt.operators.shared.arrays.nulls import without_values
from dagster_ckpt.operators.shared.state_columns import ROWS
from dagster_ckpt.operators.step import OperatorStep, with_group
from dagster_ckpt.protocol.manifest.manifest import Pipeline

_NULL_ROWS = pa.field("_null_rows", pa.int64(), nullable=False)


@dataclass(frozen=True)
class LocalAggregate:
    """What makes rows of state of rows, and takes them in for a step; a key may be in several of them."""

    pipeline: Pipeline
    aggregate: RunningAggregate

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows of state: those of the key, the aggregate's, and how many rows have only nulls."""
        keys = self.pipeline.inputs[0].schema
        own = [*self.aggregate.grouped.fields, _NULL_ROWS]
        return pa.schema([*(keys.field(key) for key in self.pipeline.keys), *own])

    def of_rows(self, hashes: Hashes, rows: pa.Table) -> tuple[Hashes, pa.Table]:
        """A row of state for each key of the rows, of which there are some; and its hash."""
        keys = flatten(rows.select(list(self.pipeline.keys)))
        groups = key_order(hashes, self._with_group(keys, len(hashes)))
        first = groups.order[groups.starts]
        fresh = self.aggregate.grouped.of_rows(rows, groups.order, groups.starts)
        columns = take(keys, first).columns if self.pipeline.keys else []
        nulls = pa.array(
            np.add.reduceat(without_values(rows, len(hashes))[groups.order].astype(np.int64), groups.starts)
        )
        return hashes[first], pa.Table.from_arrays([*columns, *fresh.values(), nulls], schema=self.schema)

    @staticmethod
    def rows_in(rows: pa.Table) -> npt.NDArray[np.int64]:
        """How many rows each row of state stands for."""
        counts: npt.NDArray[np.int64] = flat(rows.column(ROWS)).to_numpy()
        return counts

    @staticmethod
    def null_rows_in(rows: pa.Table) -> int:
        """How many of the rows that these stand for have nothing but nulls."""
        return int(flat(rows.column(_NULL_ROWS.name)).to_numpy().sum())

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """See `Operator.on_rows`."""
        keys = self._with_group(flatten(rows.select(list(self.pipeline.keys))), len(hashes))
        groups = key_order(hashes, keys)
        first, sizes = groups.order[groups.starts], np.diff(groups.starts, append=len(hashes))
        state_rows = rows.select([field.name for field in self.aggregate.grouped.fields])
        merged = take(state_rows, first)
        for number_of_row in range(1, sizes.max(initial=0)):
            more = np.flatnonzero(sizes > number_of_row)
            other = take(state_rows, groups.order[groups.starts[more] + number_of_row])
            both = self.aggregate.grouped.merge(columns_of(take(merged, more)), columns_of(other))
            place = np.arange(len(first))
            place[more] = len(first) + np.arange(len(more))
            merged = take(
                flatten(pa.concat_tables([merged, pa.Table.from_arrays(list(both.values()), schema=merged.schema)])),
                place,
            )
        self.aggregate.merge(hashes[first], take(keys, first), columns_of(merged), state, context)
        return NONE_LATE

    def _with_group(self, keys: pa.Table, count: int) -> pa.Table:
        return keys if self.pipeline.keys else with_group(keys, count)


def local_aggregate(step: OperatorStep | AppendOnly) -> LocalAggregate | None:
    """What groups the rows of a step where they are read; None: the step needs each of them."""
    inner = None if isinstance(step, AppendOnly) else step.operator
    if not isinstance(inner, RunningAggregate) or not inner.only_adds:
        return None
    return LocalAggregate(step.pipeline, inner)
