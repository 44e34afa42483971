"""A run as one manifest shows it: the hashes that are a reader's own and not yet moved down, without expired rows."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, Positions, mask_of
from dagster_ckpt.lsm.run import ABSENT, Run, kept
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest import HASH_MAX, HashRange, StateTableSpec, TimeRange

EVERYTHING = (HashRange(),)
"""What a view shows of which nothing was moved down."""


def shown_of(clip: HashRange, moved_lo: int = 0, moved_hi: int = 0) -> tuple[HashRange, ...]:
    """What a clip leaves of all hashes without the circular merge range: at most three ranges, ascending."""
    if moved_lo == moved_hi:
        return (clip,)
    if moved_lo < moved_hi:
        rest = [(clip.lo, min(clip.hi, moved_lo - 1)), (max(clip.lo, moved_hi), clip.hi)]
    else:
        rest = [(max(clip.lo, moved_hi), min(clip.hi, moved_lo - 1))]
    return tuple(HashRange(lo, hi) for lo, hi in rest if lo <= hi)


def view_of(run: "Run", spec: StateTableSpec, shown: tuple[HashRange, ...], times: TimeRange | None) -> "View":
    """The view of a run of this table; `times` are those of its `RunRef`."""
    if times is None or spec.time is None:
        return View(run, shown)
    return View(run, shown, times.least_us, spec.time)


@dataclass(frozen=True)
class View:
    """The rows of a run whose hash is in one of `shown` (ascending, disjoint) and whose time is not below `since_us`.

    `time` names the table's time column; None: its rows never expire. A row without a time does not either.
    """

    run: Run
    shown: tuple[HashRange, ...] = EVERYTHING
    since_us: int | None = None
    time: str | None = None

    def find(self, hashes: Hashes, keys: pa.Table, rows: Positions) -> Positions:
        """As `Run.find`; `ABSENT` also where the view hides a key. Hashes in any order."""
        found = self.run.find(hashes, keys, rows)
        found[~_in(hashes, self.shown)] = ABSENT
        return found

    def expired(self, at: Positions) -> Mask | None:
        """Which of the run's rows at these positions are expired; None: no row of the run is."""
        if self.since_us is None or self.time is None:
            return None
        times = self.run.columns([self.time]).column(0).chunk(0).take(pa.array(at)).view(pa.int64())
        return mask_of(pc.fill_null(pc.less(times, self.since_us), False))

    def between(self, lo: int = 0, hi: int = HASH_MAX) -> Run:
        """The rows that are shown with `lo <= hash <= hi`, tombstones too; slices without a copy where that can be."""
        run = self.run
        wanted = _in(run.hashes, self.shown) & _in(run.hashes, (HashRange(lo, hi),))
        expired = self.expired(np.arange(len(run)))
        return kept(run, wanted if expired is None else wanted & ~expired)

    def rows(self) -> Run:
        """All that the view shows."""
        return self.between()


def _in(hashes: Hashes, ranges: tuple[HashRange, ...]) -> Mask:
    inside = np.zeros(len(hashes), dtype=np.bool_)
    for each in ranges:
        inside |= (hashes >= np.uint64(each.lo)) & (hashes <= np.uint64(each.hi))
    return inside
