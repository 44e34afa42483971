"""State tables beside the row of a group: what some aggregates keep that does not fit into it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.aggregates.bag_table import BagTable
from dagster_ckpt.operators.aggregates.bags.bags import BagResult
from dagster_ckpt.operators.aggregates.bags.distinct import NewAndGoneValues, NewValues
from dagster_ckpt.operators.aggregates.best_values import BestValues
from dagster_ckpt.operators.aggregates.distinct_table import DistinctTable
from dagster_ckpt.operators.aggregates.kinds.accumulator import Accumulator
from dagster_ckpt.operators.aggregates.kinds.settled import BestValue
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


class SideTable(Protocol):
    """What one accumulator keeps beside the row of each group.

    It acts in one of two ways, or in both: it adds columns to the rows, which the accumulator counts (`columns`), or it
    gives columns of the group's row once all rows of the epoch are known (`settles`).
    """

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """Its tables. The first columns of each are the keys of the groups."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `take_in` appends to the rows."""
        ...

    @property
    def settles(self) -> tuple[str, ...]:
        """The state columns of a group that `settle` gives. Its accumulator leaves them as they are."""
        ...

    def take_in(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext, *, back: bool) -> pa.Table:
        """Add the rows of keys with these hashes, or retract them (`back`). Returns them with `columns` appended.

        What it appends to retracted rows is subtracted from the group's.
        """
        ...

    def settle(self, state: State, context: EpochContext) -> Iterator[tuple[Hashes, pa.Table]]:
        """The groups whose `settles` may have changed, in pieces: their hashes, keys and then these columns.

        Called once in an epoch, after all rows. A group is in a piece once; between pieces the caller may flush.
        """
        ...


_TABLES: Mapping[type[Accumulator], Callable[[int, tuple[str, ...], pa.Schema, Any], SideTable]] = {
    BestValue: BestValues.of,
    NewAndGoneValues: DistinctTable.of,
    NewValues: DistinctTable.of,
}
"""The table of each kind of accumulator that needs one, from its number among its kind: part of the table's name."""


def side_tables_of(
    accumulators: Sequence[Accumulator], keys: tuple[str, ...], schema: pa.Schema
) -> tuple[SideTable, ...]:
    """The side tables of these accumulators, for an input with these columns."""
    tables = list[SideTable]()
    for kind, make in _TABLES.items():
        of_kind = [each for each in accumulators if isinstance(each, kind)]
        tables += [make(number, keys, schema, each) for number, each in enumerate(of_kind)]
    bags = [each for each in accumulators if isinstance(each, BagResult)]
    together = dict.fromkeys((each.columns, each.required) for each in bags)
    for number, over in enumerate(together):
        results = [each for each in bags if (each.columns, each.required) == over]
        tables.append(BagTable.of(number, keys, schema, results))
    return tuple(tables)
