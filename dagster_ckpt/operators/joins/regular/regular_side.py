"""One input of a regular join: its columns, what arrived in an epoch, and its rows by key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, from_plain
from dagster_ckpt.lsm.table import FoundAll, Hashes, State
from dagster_ckpt.operators.joins.arrivals import ARRIVED, MOMENT
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.sides import no_nulls, numbers_of, shape_rows
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.net_changes import signs_of
from dagster_ckpt.operators.shared.state_columns import ROW, ROWS, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, StateTableSpec

RowKey = tuple[str, ...] | None
"""Columns that identify a row of a table; None: its rows may be equal."""
MORE = "_more"
"""How many such rows came, less those that went."""
STATE_COLUMNS = (ROW, ROWS, MORE, ARRIVED)


@dataclass(frozen=True)
class RegularSide:
    """One input of a regular join. `schema` has the columns that the join uses, `changes` is whether rows go, too.

    The rows of a key are under its hash, each with a number (`ROW`) and a count. For an input that changes, an index
    has the number and the count of each distinct row, so that one that goes is found at once, however many the key has.
    """

    number: int
    keys: tuple[str, ...]
    schema: pa.Schema
    changes: bool

    @classmethod
    def of(cls, number: int, source: InputSpec, keys: tuple[str, ...], how: JoinType) -> "RegularSide":
        """The side of an input; of rows that are never emitted only the key is used."""
        is_emitted = number == LEFT or how.gives_pairs
        used = [field for field in source.schema if field.name != CHANGE_TYPE and (is_emitted or field.name in keys)]
        return cls(number, keys, pa.schema(used), CHANGE_TYPE in source.schema.names)

    @property
    def name(self) -> str:
        """The prefix of its state tables' names."""
        return "left" if self.number == LEFT else "right"

    @property
    def read(self) -> tuple[str, ...]:
        """The columns of the input that `on_rows` reads."""
        return (*self.schema.names, CHANGE_TYPE) if self.changes else tuple(self.schema.names)

    @property
    def arrivals(self) -> StateTableSpec:
        """The rows that arrived in this epoch, under the hashes of their keys; empty between epochs."""
        added = [whole_number(MORE), whole_number(ROW), pa.field(ARRIVED, MOMENT, nullable=False)]
        return StateTableSpec(f"{self.name}_arrivals", pa.schema([*self.schema, *added]), (ROW,), time=ARRIVED)

    @property
    def tables(self) -> tuple[StateTableSpec, ...]:
        """The state tables of its rows."""
        return (self._rows, self._index) if self.changes else (self._rows,)

    def check(self) -> None:
        """Equal rows can be found. Raises `InvalidPipelineError`."""
        pipeline_checks.check_hashable(self.schema, "a row is taken back by all its columns", f", input={self.name}")

    def matchable(self, rows: pa.Table) -> Mask:
        """Which rows can match: null equals nothing."""
        return no_nulls(rows, self.keys)

    def put_arrivals(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Keep rows of the input for `epoch_arrivals`, with the hashes of their keys."""
        spec = self.arrivals
        added = {
            MORE: pa.array(signs_of(rows)),
            ROW: context.row_numbers(rows.num_rows),
            ARRIVED: from_plain(np.zeros(rows.num_rows, dtype=np.int64), MOMENT),
        }
        state.table(spec.name).put(hashes, shape_rows(spec.schema, rows, added))

    def epoch_arrivals(self, state: State) -> Iterator[tuple[Hashes, pa.Table]]:
        """All rows that arrived in this epoch, in pieces by ascending hash; those of one hash are in one piece."""
        for touched in state.table(self.arrivals.name).touched_keys():
            yield touched.hashes, touched.after.rows

    def net(self, hashes: Hashes, rows: pa.Table) -> ZSet:
        """The net change of arrived rows, each with a `ROW`: one that came and went is none."""
        delta = ZSet(hashes, flatten(rows), numbers_of(rows, MORE))
        if not self.changes:
            return delta
        columns = self.schema.names
        return delta.consolidate(subkey_hashes(hashes, rows.select(columns).columns), columns)

    def of_keys(self, hashes: Hashes, keys: Sequence[pa.Array], state: State) -> FoundAll:
        """The rows under these distinct keys."""
        prefix = pa.Table.from_arrays(list(keys), schema=pa.schema([self.schema.field(key) for key in self.keys]))
        return state.table(self._rows.name).get_all(hashes, prefix)

    def apply(self, net: ZSet, state: State) -> None:
        """Change the rows of the state. Raises `CorruptStateError` if a row goes that is not there."""
        if len(net) == 0:
            return
        rows = ZSetTable(self._rows, (ROWS,))
        if not self.changes:
            rows.apply(net, state, np.zeros_like(net.weights))
            return
        index = ZSetTable(self._index, (ROWS,))
        row_hashes = subkey_hashes(net.hashes, net.rows.select(self.schema.names).columns)
        weighed = index.weigh(replace(net, hashes=row_hashes), state)
        numbers = numbers_of(net.rows, ROW).copy()
        numbers[weighed.found.present] = numbers_of(weighed.found.rows, ROW)
        numbered = net.rows.set_column(net.rows.column_names.index(ROW), whole_number(ROW), pa.array(numbers))
        index.check(weighed.after)
        index.write(replace(weighed, rows=replace(weighed.rows, rows=numbered)), state)
        rows.apply(replace(net, rows=numbered), state, weighed.before)

    @property
    def _rows(self) -> StateTableSpec:
        others = [field for field in self.schema if field.name not in self.keys]
        keys = [self.schema.field(key) for key in self.keys]
        schema = pa.schema([*keys, whole_number(ROW), *others, whole_number(ROWS)])
        return StateTableSpec(f"{self.name}_rows", schema, (*self.keys, ROW))

    @property
    def _index(self) -> StateTableSpec:
        schema = pa.schema([*self.schema, whole_number(ROW), whole_number(ROWS)])
        return StateTableSpec(f"{self.name}_index", schema, tuple(self.schema.names))


def counts_of(rows: pa.Table) -> Positions:
    """How often there is each of the rows of a side's state."""
    counts: Positions = flat(rows.column(ROWS)).to_numpy()
    return counts


def row_key_of(how: JoinType, sides: tuple[RegularSide, RegularSide], keys: Sequence[RowKey]) -> RowKey:
    """The columns that identify a row of the join, if its inputs have such columns: `keys`.

    Where a row has at most one partner, because the join's keys identify that, its own key is enough; else it is those
    of both. None for a full join: an unmatched row of the left and one of the right may both be null in both keys.
    """
    left, right = keys
    if not how.gives_pairs:
        return left
    if how is JoinType.FULL:
        return None
    if left is not None and how is not JoinType.RIGHT and _finds_one(right, sides[RIGHT]):
        return left
    if right is not None and how is not JoinType.LEFT and _finds_one(left, sides[LEFT]):
        return _with_shard(how, sides, right)
    if left is None or right is None:
        return None
    return _with_shard(how, sides, tuple(dict.fromkeys([*left, *right])))


def _finds_one(key: RowKey, side: RegularSide) -> bool:
    """Whether the join's keys identify a row of this side."""
    return key is not None and set(key) <= set(side.keys)


def _with_shard(how: JoinType, sides: tuple[RegularSide, RegularSide], key: tuple[str, ...]) -> tuple[str, ...]:
    """The key and, of a right join, the keys of the right: the left's are null in unmatched rows."""
    return tuple(dict.fromkeys([*sides[RIGHT].keys, *key])) if how is JoinType.RIGHT else key
