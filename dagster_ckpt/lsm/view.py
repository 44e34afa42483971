"""A run as one manifest shows it: what lies in its clip and was not yet moved down by compaction."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions
from dagster_ckpt.lsm.run import ABSENT, Run, kept
from dagster_ckpt.lsm.table import Hashes
from dagster_ckpt.protocol.manifest import HASH_MAX, HashRange


@dataclass(frozen=True)
class View:
    """The rows of a run whose hash is in `clip` (inclusive) and not in `[moved_lo, moved_hi)`."""

    run: Run
    clip: HashRange = HashRange()
    moved_lo: int = 0
    moved_hi: int = 0

    def find(self, hashes: Hashes, keys: pa.Table, rows: Positions) -> Positions:
        """As `Run.find`; `ABSENT` also where the view hides a key."""
        shown = self._shows(hashes)
        found = self.run.find(hashes, keys, rows)
        if shown is not None:
            found[~shown] = ABSENT
        return found

    def rows(self) -> Run:
        """What the view shows, as a run."""
        shown = self._shows(self.run.hashes)
        return self.run if shown is None else kept(self.run, shown)

    def _shows(self, hashes: Hashes) -> Mask | None:
        """Which hashes are shown; None: all of them."""
        if self.clip == HashRange() and self.moved_lo >= self.moved_hi:
            return None
        shown = (hashes >= np.uint64(self.clip.lo)) & (hashes <= np.uint64(self.clip.hi))
        if self.moved_lo < self.moved_hi:
            # The last hash that was moved, since 2**64 (the end of a range up to the greatest hash) fits no uint64.
            last = np.uint64(min(self.moved_hi - 1, HASH_MAX))
            shown &= (hashes < np.uint64(self.moved_lo)) | (hashes > last)
        return shown
