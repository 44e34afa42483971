"""The part of a run that one manifest shows: hashes within the reader's clip and not moved down, no expired rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.lsm.columns import Mask, Positions, to_mask
from dagster_ckpt.lsm.runs.run import Run, filter_run, one_after_another

EVERYTHING = (HashRange(),)
"""What a view shows if nothing was moved down."""


@dataclass(frozen=True)
class View:
    """The rows of a run whose hash is in one of `shown` (ascending, disjoint) and whose time is not below `since_us`.

    `time` names the table's time column; None: its rows never expire. A row without a time never expires.
    """

    run: Run
    shown: tuple[HashRange, ...] = EVERYTHING
    since_us: int | None = None
    time: str | None = None

    def absent_at(self, at: Positions) -> Mask | None:
        """Which of the run's rows at these positions are tombstones or expired; None: none is."""
        dead, expired = self.run.dead_at(at), self._expiry_at(at)
        if dead is None or expired is None:
            return expired if dead is None else dead
        return dead | expired

    def slices(self, lo: int = 0, hi: int = HASH_MAX) -> Iterator[Run]:
        """The rows that are shown with `lo <= hash <= hi`, tombstones too, by ascending hash.

        A slice is copied only if a row in it has expired.
        """
        run = self.run.without_images()
        for each in self.shown:
            start, end = run.first_not_less(max(each.lo, lo)), run.first_not_less(min(each.hi, hi) + 1)
            if start >= end:
                continue
            part = run.slice(start, end)
            expired = self._expiry_at(np.arange(start, end))
            yield part if expired is None else filter_run(part, ~expired)

    def between(self, lo: int = 0, hi: int = HASH_MAX) -> Run:
        """As `slices`, in one run; copied if there are several."""
        slices = list(self.slices(lo, hi))
        return one_after_another(slices) if slices else self.run.without_images().slice(0, 0)

    def _expiry_at(self, at: Positions) -> Mask | None:
        since = self.since_us
        if since is None or self.time is None or not self.run.may_hold_times_before(since):
            return None
        [column] = self.run.columns_at([self.time], at)
        times = column.take(at).view(pa.int64())
        return to_mask(pc.fill_null(pc.less(times, since), False))
