"""Drops the days into the input folder, so many a second, each in one atomic step."""

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ORDER_S = 0.002
"""Files that are dropped so far apart have an order."""


def drop(day: Path, inbox: Path) -> None:
    """Put a copy of `day` into `inbox`: it is not there, and then it is there whole.

    It is written beside the inbox, on the same disk: Spark lists the inbox at any moment and would read half a file.
    """
    staging = inbox.with_name(f"{inbox.name}.staging")
    staging.mkdir(parents=True, exist_ok=True)
    inbox.mkdir(parents=True, exist_ok=True)
    # A copy and not a link: its modification time, by which Spark orders files, is now. Spark knows milliseconds only,
    # and the disk's clock may be coarser: two days of one moment would come in any order.
    copy = shutil.copyfile(day, staging / day.name)
    now_ns = time.time_ns()
    os.utime(copy, ns=(now_ns, now_ns))
    time.sleep(ORDER_S)
    copy.rename(inbox / day.name)


@dataclass
class Feeder:
    """Feeds `days` in order at `days_per_second`, and never further than it is allowed to."""

    days: Sequence[Path]
    inbox: Path
    days_per_second: float
    fed: int = 0
    _credit: float = field(default=0.0, repr=False)
    _seen_s: float | None = field(default=None, repr=False)

    def feed(self, now_s: float, until: int) -> None:
        """Drop what has become due since the last call, up to `until` days in all. `now_s` is a monotonic clock's."""
        elapsed_s = 0.0 if self._seen_s is None else now_s - self._seen_s
        self._seen_s = now_s
        # A pause is not made up for: at most one second's worth comes at once.
        self._credit = min(self._credit + elapsed_s * self.days_per_second, max(1.0, self.days_per_second))
        while self._credit >= 1 and self.fed < min(until, len(self.days)):
            drop(self.days[self.fed], self.inbox)
            self.fed += 1
            self._credit -= 1

    @property
    def done(self) -> bool:
        return self.fed == len(self.days)
