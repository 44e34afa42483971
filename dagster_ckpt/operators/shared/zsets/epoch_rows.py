"""The rows of one epoch, each with a weight: how often it was added, less how often it was retracted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.state_columns import HASH, hash_column, hashes_in, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

WEIGHT = "_weight"
IN = "_in"
"""The epoch of a row, stored as a time, so that the rows of an epoch expire at no cost."""
ADDED = (HASH, WEIGHT, IN)
"""The columns that its table adds."""

_EPOCHS = pa.timestamp("us")


@dataclass(frozen=True)
class EpochRows:
    """A table of an epoch's rows with their net weight, however the rows are cut and ordered. Empty between epochs."""

    spec: StateTableSpec
    keys: tuple[str, ...]

    @classmethod
    def of(cls, name: str, keys: Sequence[pa.Field], others: Sequence[pa.Field]) -> "EpochRows":
        """The table of this name for rows with these columns, which are put under a hash of all of them.

        Without `others` that is the one of the keys.
        """
        hashes = [whole_number(HASH)] if others else []
        schema = pa.schema([*keys, *others, *hashes, whole_number(WEIGHT), pa.field(IN, _EPOCHS, False)])
        columns = tuple(field.name for field in (*keys, *others))
        return cls(StateTableSpec(name, schema, columns, time=IN), tuple(field.name for field in keys))

    @property
    def table(self) -> ZSetTable:
        """Its state table."""
        return ZSetTable(self.spec, (WEIGHT,))

    def add(self, delta: ZSet, state: State, context: EpochContext) -> None:
        """Add rows under the hashes of their keys, in the table's columns."""
        others = delta.rows.columns[len(self.keys) :]
        if others:
            rows = delta.rows.append_column(HASH, hash_column(delta.hashes))
            delta = ZSet(subkey_hashes(delta.hashes, others), rows, delta.weights)
        net = delta.consolidate()
        if len(net):
            epochs = pa.array(np.full(len(net), context.number, dtype=np.int64)).view(_EPOCHS)
            net = replace(net, rows=net.rows.append_column(IN, epochs))
            self.table.put_all(self.table.weigh(net, state), state)

    def net(self, state: State, context: EpochContext) -> Iterator[ZSet]:
        """The rows whose weight is not 0, each once, in pieces; then the table is empty. Call it once, at the end.

        Between two pieces the caller may flush the state.
        """
        table = state.table(self.spec.name)
        for touched in table.touched_keys():
            rows = touched.after.rows
            weights = flat(rows.column(WEIGHT)).to_numpy()
            some = np.flatnonzero(weights)
            if len(some):
                has_hash = HASH in self.spec.schema.names
                hashes = hashes_in(rows) if has_hash else touched.hashes[touched.after.present]
                yield ZSet(hashes, rows.select(list(self.spec.keys)), weights).only(some)
        table.expire(context.number + 1)
