"""Which of several rows of a key to keep, and which rows are in time."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, stack, take
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.arrays.nulls import has_value
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.row_order import furthest_rows


@dataclass(frozen=True)
class RowChoice:
    """Chooses the row with the least or greatest `order` columns, compared in turn; the other columns break ties.

    Those are compared in the order of the input's columns, without its keys. Null loses to any value at either end. So
    any two rows that differ are ordered, whatever epoch they arrived in.
    """

    keys: tuple[str, ...]
    order: tuple[str, ...]
    end: End

    def of_groups(self, rows: pa.Table, order: Positions, sizes: Positions) -> Positions:
        """One row of each group, by its position in `rows`; `order` has the rows group after group, `sizes` of each."""
        return furthest_rows(order, sizes, self._columns(rows), self.end)

    def beats(self, new: pa.Table, old: pa.Table) -> Mask:
        """For each row, whether the new row replaces the old one. Equal rows do not."""
        count = old.num_rows
        if count == 0:
            return np.zeros(0, dtype=np.bool_)
        side_by_side = np.arange(2 * count).reshape(2, -1).T.ravel()
        wins: Mask = self.of_groups(stack([old, new]), side_by_side, np.full(count, 2)) >= count
        return wins

    def wins(self, best: pa.Table, found: Found) -> Mask:
        """Which keys take their best row of these; `found` is what they had, with any columns besides."""
        wins = ~found.present
        rivals = take(best, np.flatnonzero(found.present))
        wins[found.present] = self.beats(rivals, found.rows.select(best.column_names))
        return wins

    def _columns(self, rows: pa.Table) -> list[pa.Array]:
        others = [name for name in rows.column_names if name not in self.keys and name not in self.order]
        return [flat(rows.column(name)) for name in (*self.order, *others)]


def in_time(times: pa.Array, context: EpochContext) -> tuple[Positions, Positions]:
    """Which rows are used, and which are late: those below the watermark, out of range or without event time."""
    is_late = ~has_value(times)
    is_late[late_rows(times, context.watermark_us)] = True
    return np.flatnonzero(~is_late), np.flatnonzero(is_late)
