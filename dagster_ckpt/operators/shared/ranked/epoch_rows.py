"""The rows of one epoch, each with a weight: how often it was added, less how often it was retracted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
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

    @property
    def nbytes(self) -> int:
        """About how much it holds in memory."""
        return int(self.rows.nbytes + self.hashes.nbytes + self.weights.nbytes)


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
        columns = flatten(rows.rows)
        hashes = subkey_hashes(rows.hashes, columns.columns[len(self.keys) :])
        groups = key_order(hashes, columns)
        firsts = groups.order[groups.starts]
        weights = np.add.reduceat(rows.weights[groups.order], groups.starts)
        distinct = take(columns, firsts)
        found = table.get(hashes[firsts], distinct)
        weights[found.present] += flat(found.rows.column(WEIGHT)).to_numpy()
        epoch = pa.array(np.full(len(firsts), context.number, dtype=np.int64)).view(_EPOCHS)
        put = [*distinct.columns, hash_column(rows.hashes[firsts]), pa.array(weights), epoch]
        table.put(hashes[firsts], pa.Table.from_arrays(put, schema=self.spec.schema))

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
