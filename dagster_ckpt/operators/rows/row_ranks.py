"""The best rows of each key where rows that tie have one rank, as by RANK and DENSE_RANK.

The tree has the values of the order columns, with the number of their rows; the rows are found by key and values. A
value that stays, with its rank, changes only the rows that were added or retracted. One that comes, goes or gets
another rank changes all its rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, stack, take
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.table import Found, Hashes, State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.rows.row_places import RANKED, copies_before
from dagster_ckpt.operators.shared.arrays.lists import alike
from dagster_ckpt.operators.shared.arrays.nulls import has_value, or_null
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.ranked.best_rows import BestChange, BestRows
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn, RowOrder
from dagster_ckpt.operators.shared.ranked.rank_tree import COPIES, RankedRows
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

TIES = "ties"
"""The state table with the rows, under key and values of the order columns."""
_ROOM_BYTES = 1 << 12


@dataclass(frozen=True)
class _Values:
    """Distinct values of keys (`nodes`), with their rank before and after; 0: not among the best."""

    nodes: Positions
    rows: pa.Table
    before: Positions
    after: Positions


@dataclass(frozen=True)
class RowRanks:
    """The rows of each key whose rank is at most `count`. `rank`: the column with it, from 1.

    `by` are the order columns: rows tie if they are equal in them, and -0.0 equals 0.0. `names` are the columns of the
    tree for their values.
    """

    best: BestRows
    ties: StateTableSpec
    by: tuple[str, ...]
    names: tuple[str, ...]
    count: int
    rank: pa.Field | None
    dense: bool

    @classmethod
    def of(
        cls,
        keys: Sequence[pa.Field],
        others: Sequence[pa.Field],
        by: tuple[OrderColumn, ...],
        count: int,
        rank: pa.Field | None,
        *,
        dense: bool,
        appends: bool,
    ) -> "RowRanks":
        """The tables for rows with these columns."""
        of_name = {field.name: field for field in others}
        names = value_names(len(by))
        values = [of_name[each.name].with_name(name) for each, name in zip(by, names, strict=True)]
        renamed = tuple(
            OrderColumn(name, each.descending, each.nulls_first) for each, name in zip(by, names, strict=True)
        )
        best = BestRows.of(RANKED, keys, values, RowOrder(renamed, names), count, appends=appends)
        schema = pa.schema([*keys, *values, *others, whole_number(COPIES)])
        ties = StateTableSpec(TIES, schema, tuple(schema.names[:-1]))
        return cls(best, ties, tuple(each.name for each in by), names, count, rank, dense)

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """Its state tables."""
        return self.best.spec, self.ties

    def apply(self, pieces: Iterable[ZSet], state: State, context: EpochContext) -> Iterator[ZSet]:
        """Add distinct rows; yields what the output gains, and with a negative weight what it loses.

        A part of it may be large: the rows of one value are all of one rank.
        """
        for part, change in self.best.changes(map(self._with_values, pieces), state, context):
            values, of_row = self._values(part, change)
            same = values.before == values.after if self.rank is not None else (values.before > 0) & (values.after > 0)
            yield from self._all_rows(change, values, -1, np.flatnonzero(~same & (values.before > 0)), state, context)
            self._keep(part, change, values, of_row, state, context)
            yield from self._all_rows(change, values, 1, np.flatnonzero(~same & (values.after > 0)), state, context)
            stay = np.flatnonzero((same & (values.after > 0))[of_row])
            yield self._out(part.only(stay), values.after[of_row[stay]])

    def _with_values(self, rows: ZSet) -> ZSet:
        order = [flat(rows.rows.column(name)) for name in self.by]
        columns = [or_null(alike(column), has_value(column)) for column in order]
        schema = self.ties.schema.remove(len(self.ties.schema) - 1)
        keys, others = rows.rows.columns[: self._keys], rows.rows.columns[self._keys :]
        return ZSet(rows.hashes, pa.Table.from_arrays([*keys, *columns, *others], schema=schema), rows.weights)

    @property
    def _keys(self) -> int:
        return len(self.best.tree.keys)

    def _ranks(self, kept: RankedRows) -> Positions:
        """The rank of each value; 0 where it is more than `count`."""
        before = copies_before(
            RankedRows(kept.nodes, kept.paths, np.ones_like(kept.copies), kept.rows) if self.dense else kept
        )
        return np.where(before < self.count, before + 1, 0)

    def _values(self, part: ZSet, change: BestChange) -> tuple[_Values, Positions]:
        """The values among the best before or after, or in the part; and of each row of the part its value."""
        sides = [change.before, change.after, change.part]
        nodes = np.concatenate([side.nodes for side in sides])
        rows = stack([side.rows for side in sides])
        groups = _groups(nodes, np.concatenate([side.paths for side in sides]), rows)
        of_all = np.empty(len(nodes), dtype=np.int64)
        of_all[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.sizes)
        firsts = groups.order[groups.starts]
        of_sides = np.split(of_all, np.cumsum([len(side.nodes) for side in sides])[:-1])
        ranks = [np.zeros(len(firsts), dtype=np.int64) for _ in range(2)]
        for rank, of_side, side in zip(ranks, of_sides[:2], sides[:2], strict=True):
            rank[of_side] = self._ranks(side)
        return _Values(nodes[firsts], take(rows, firsts), *ranks), of_sides[2]

    def _keep(
        self,
        part: ZSet,
        change: BestChange,
        values: _Values,
        of_row: Positions,
        state: State,
        context: EpochContext,
    ) -> None:
        """Change the rows of the table. If the input only appends, it has those of the best values alone."""
        if self.best.tree.trims:
            gone = np.flatnonzero((values.before > 0) & (values.after == 0))
            for _, hashes, found in self._rows_of_values(change, values, gone, state, context):
                every = np.ones(len(hashes), dtype=np.bool_)
                state.table(TIES).delete(hashes, found.select(list(self.ties.keys)), Found(every, found))
            part = part.only(np.flatnonzero(values.after[of_row]))
        if len(part.hashes) == 0:
            return
        rows = flatten(part.rows)
        hashes = subkey_hashes(part.hashes, rows.select(list(self.names)).columns)
        ZSetTable(self.ties, (COPIES,)).apply(ZSet(hashes, rows, part.weights), state)

    def _all_rows(
        self, change: BestChange, values: _Values, sign: int, at: Positions, state: State, context: EpochContext
    ) -> Iterator[ZSet]:
        """All rows of these values that are in the table now."""
        ranks = values.before if sign < 0 else values.after
        for of_row, _, found in self._rows_of_values(change, values, at, state, context):
            copies = flat(found.column(COPIES)).to_numpy()
            rows = ZSet(change.hashes[values.nodes[of_row]], found.select(list(self.ties.keys)), sign * copies)
            yield self._out(rows, ranks[of_row])

    def _rows_of_values(
        self, change: BestChange, values: _Values, at: Positions, state: State, context: EpochContext
    ) -> Iterator[tuple[Positions, Hashes, pa.Table]]:
        """The rows of these values in the table, in pieces: of each row its value and its hash."""
        batch = BatchSize(context.memory_bytes // 4, _ROOM_BYTES, growth_max=16)
        first = 0
        while first < len(at):
            part = at[first : first + batch.count]
            keys = take(change.keys, values.nodes[part])
            wanted = take(values.rows, part)
            hashes = subkey_hashes(change.hashes[values.nodes[part]], wanted.columns)
            schema = pa.schema([*keys.schema, *wanted.schema])
            prefix = pa.Table.from_arrays([*keys.columns, *wanted.columns], schema=schema)
            found = state.table(TIES).get_all(hashes, prefix)
            batch.learn(len(part), found.rows.nbytes)
            first += len(part)
            if len(found.asked):
                yield part[found.asked], hashes[found.asked], found.rows

    def _out(self, rows: ZSet, ranks: Positions) -> ZSet:
        """The rows as the output has them, from those of the table."""
        table = rows.rows.drop_columns(list(self.names))
        if self.rank is not None:
            table = table.append_column(self.rank, pa.array(ranks, self.rank.type))
        return ZSet(rows.hashes, table, rows.weights)


def value_names(count: int) -> tuple[str, ...]:
    """The columns for the values of so many order columns."""
    return tuple(f"_by_{place}" for place in range(count))


def _groups(nodes: Positions, paths: Hashes, rows: pa.Table) -> KeyOrder:
    """Equal values of a node have one path; those of several nodes may have one too."""
    names = list(map(str, range(1 + rows.num_columns)))
    return key_order(paths, pa.Table.from_arrays([pa.array(nodes), *rows.columns], names=names))
