"""The rows of one epoch, each with a weight: how often it was added, less how often it was retracted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, hashes_in, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

WEIGHT = "_weight"
IN = "_in"
"""The epoch of a row, stored as a time, so that the rows of an epoch expire at no cost."""
ADDED = (HASH, WEIGHT, IN)
"""The columns that its table adds."""

_EPOCHS = pa.timestamp("us")


@dataclass(frozen=True)
class WeightedRows:
    """Rows of keys with these hashes; `rows` has the key columns first. A weight may be negative."""

    hashes: Hashes
    rows: pa.Table
    weights: Positions

    def only(self, positions: Positions) -> "WeightedRows":
        """The rows at these positions."""
        return WeightedRows(self.hashes[positions], take(self.rows, positions), self.weights[positions])

    def summed(self) -> "WeightedRows":
        """Each distinct row once, with the sum of its weights."""
        if len(self.hashes) == 0:
            return self
        groups = key_order(value_hashes(self.rows.columns, self.hashes), self.rows)
        distinct = self.only(groups.order[groups.starts])
        return replace(distinct, weights=np.add.reduceat(self.weights[groups.order], groups.starts))


@dataclass(frozen=True)
class EpochRows:
    """A table of an epoch's rows with their net weight, however the rows are cut and ordered. Empty between epochs."""

    spec: StateTableSpec
    keys: tuple[str, ...]

    @classmethod
    def of(cls, name: str, keys: Sequence[pa.Field], others: Sequence[pa.Field]) -> "EpochRows":
        """The table of this name for rows with these columns."""
        schema = pa.schema([*keys, *others, whole_number(HASH), whole_number(WEIGHT), pa.field(IN, _EPOCHS, False)])
        columns = tuple(field.name for field in (*keys, *others))
        return cls(StateTableSpec(name, schema, columns, time=IN), tuple(field.name for field in keys))

    def add(self, rows: WeightedRows, state: State, context: EpochContext) -> None:
        """Add rows, in the table's columns."""
        if len(rows.hashes) == 0:
            return
        table = state.table(self.spec.name)
        summed = replace(rows, rows=flatten(rows.rows)).summed()
        hashes = subkey_hashes(summed.hashes, summed.rows.columns[len(self.keys) :])
        found = table.get(hashes, summed.rows)
        weights = summed.weights.copy()
        weights[found.present] += flat(found.rows.column(WEIGHT)).to_numpy()
        there = np.flatnonzero((weights != 0) | found.present)
        if len(there) == 0:
            return
        epoch = pa.array(np.full(len(there), context.number, dtype=np.int64)).view(_EPOCHS)
        added = [hash_column(summed.hashes[there]), pa.array(weights[there]), epoch]
        put = pa.Table.from_arrays([*take(summed.rows, there).columns, *added], schema=self.spec.schema)
        table.put(hashes[there], put)

    def net(self, state: State, context: EpochContext) -> Iterator[WeightedRows]:
        """The rows whose weight is not 0, each once, in pieces; then the table is empty. Call it once, at the end.

        Between two pieces the caller may flush the state.
        """
        table = state.table(self.spec.name)
        for touched in table.touched():
            rows = touched.after.rows
            weights = flat(rows.column(WEIGHT)).to_numpy()
            left = np.flatnonzero(weights)
            if len(left):
                rows = take(rows, left)
                yield WeightedRows(hashes_in(rows), rows.select(list(self.spec.keys)), weights[left])
        table.expire(context.number + 1)
