"""The bag of some columns under each key, all of which is read when the key is touched."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, concat, flat, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import FoundAll, Hashes, State
from dagster_ckpt.operators.aggregates.bags.bags import BagResult, Bags, usable
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.arrays.lists import alike_or_null
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.operators.shared.zsets.epoch_rows import EpochRows
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

_ROOM_BYTES = 1 << 14
"""The assumed size of a bag until the first ones are known."""


@dataclass(frozen=True)
class BagTable:
    """A `SideTable`: the distinct rows of some columns under each key, with their number, and what follows from them.

    The rows of a key have its hash, so one look-up finds them all. `results` are over the same columns.
    """

    keys: tuple[str, ...]
    results: tuple[BagResult, ...]
    arrived: EpochRows
    spec: StateTableSpec

    @classmethod
    def of(cls, number: int, keys: tuple[str, ...], schema: pa.Schema, results: Sequence[BagResult]) -> "BagTable":
        """The tables with this number, for an input with these columns."""
        key_fields = [schema.field(key) for key in keys]
        columns, required = results[0].columns, results[0].required
        names = [f"_value_{place}" for place in range(len(columns))]
        fields = [
            pa.field(name, schema.field(column).type, nullable=place >= required)
            for place, (name, column) in enumerate(zip(names, columns, strict=True))
        ]
        arrived = EpochRows.of(f"arrived_in_bag_{number}", key_fields, fields)
        rows = pa.schema([*key_fields, *fields, whole_number(ROWS)])
        return cls(keys, tuple(results), arrived, StateTableSpec(f"bag_{number}", rows, (*keys, *names)))

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        return self.arrived.spec, self.spec

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    @property
    def settles(self) -> tuple[str, ...]:
        return tuple(result.name for result in self.results)

    def take_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """Count these rows; they stay as they are."""
        columns = [flat(rows.column(name)) for name in self.results[0].columns]
        at = usable(columns, self.results[0].required)
        keys = take(rows.select(list(self.keys)), at)
        values = [alike_or_null(column.take(pa.array(at))) for column in columns]
        counted = pa.Table.from_arrays([*keys.columns, *values], names=list(self.arrived.spec.keys))
        weights = np.full(len(at), -1 if back else 1)
        self.arrived.add(ZSet(hashes[at], counted, weights), state, context)
        return rows

    def settle(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        """The keys whose bags have changed, with what follows from them now."""
        batch = BatchSize(context.memory_bytes // 4, _ROOM_BYTES, growth_max=16)
        for piece in self.arrived.net(state, context):
            groups = key_order(piece.hashes, flatten(piece.rows.select(list(self.keys))))
            first, edges = 0, np.append(groups.starts, len(groups.order))
            while first < len(groups.starts):
                last = min(first + batch.count, len(groups.starts))
                part = piece.only(groups.order[edges[first] : edges[last]])
                its_key = np.repeat(np.arange(last - first), np.diff(edges[first : last + 1]))
                starts = edges[first:last] - edges[first]
                hashes, keys = part.hashes[starts], flatten(take(part.rows.select(list(self.keys)), starts))
                found = state.table(self.spec.name).get_all(hashes, keys)
                if batch.learn(last - first, found.rows.nbytes):
                    yield hashes, self._update(hashes, keys, part, its_key, found, state)
                    first = last
                del found  # one result at a time

    def _update(
        self,
        hashes: Hashes,
        keys: pa.Table,
        part: ZSet,
        its_key: Positions,
        found: FoundAll,
        state: State,
    ) -> pa.Table:
        """Add the rows of `part` to the bags found, and write them. Returns the keys with the results."""
        names = self.spec.keys[len(self.keys) :]
        sides = [concat([flat(side.column(name)) for side in (found.rows, part.rows)]) for name in names]
        before = flat(found.rows.column(ROWS)).to_numpy()
        groups = np.concatenate([found.asked, its_key])
        both = np.zeros((2, len(groups)), dtype=np.int64)
        both[:, : len(before)], both[1, len(before) :] = before, part.weights
        bags = Bags.of(len(hashes), groups, sides, both)
        before, after = bags.counts
        bags = replace(bags, counts=after)
        self._write(hashes, keys, bags, before, state)
        left = bags.only(np.flatnonzero(bags.counts))
        columns = [self._result(result, left) for result in self.results]
        schema = pa.schema([*keys.schema, *(result.fields[0] for result in self.results)])
        return pa.Table.from_arrays([*keys.columns, *columns], schema=schema)

    def _result(self, result: BagResult, bags: Bags) -> pa.Array:
        return result.function(bags) if len(bags.groups) else result.none(bags.size)

    def _write(self, hashes: Hashes, keys: pa.Table, bags: Bags, before: Positions, state: State) -> None:
        """Write the rows whose number has changed. Raises `CorruptStateError` if more were retracted than added."""
        changed = np.flatnonzero(bags.counts != before)
        rows, before = bags.only(changed), before[changed]
        columns = [*take(keys, rows.groups).columns, *rows.columns]
        schema = pa.schema([self.spec.schema.field(name) for name in self.spec.keys])
        delta = ZSet(hashes[rows.groups], pa.Table.from_arrays(columns, schema=schema), rows.counts - before)
        ZSetTable(self.spec, (ROWS,)).apply(delta, state, before)
