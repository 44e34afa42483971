"""Whether Spark aggregates the rows of an epoch before it shuffles them, by what the last epochs had.

Where each key has many rows in an epoch, Spark's generated code reads the rows and few groups are shuffled. Where
nearly each row is a key of its own, the groups are as many as the rows, and aggregating them is lost work.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto

from dagster_ckpt.protocol.manifest.manifest import Manifest

_ROWS_MIN = 50_000
"""Below so many rows in an epoch the time goes elsewhere."""
_BEGINS_AT = 6.0
_ENDS_AT = 2.5
"""Rows for each key that an epoch touches. Between the two the stream stays with what it does."""
_FEW = 50_000
_MANY = 100_000
"""Keys that an epoch touches: so few are worked by one task in less time than Spark needs to shuffle them to several.
Between the two the stream stays with what it does."""
_EPOCHS = 2
"""So many epochs in a row must agree: another choice is another plan, which takes about a second to start."""
_PATIENCE_MAX = 64


class Shuffled(Enum):
    """What Spark brings to the tasks of a stream's first step."""

    ROWS = auto()
    """The rows, as they are read."""
    GROUPS = auto()
    """Partial aggregates of each key."""
    FEW_GROUPS = auto()
    """The same, all of them to one task: Spark needs one shuffle less."""


@dataclass(frozen=True, slots=True)
class Touch:
    """How many rows an epoch had, and how many keys they touched."""

    rows: int
    keys: int

    @classmethod
    def of(cls, manifest: Manifest) -> "Touch":
        """That of a stream whose first step keeps a row for each key: an update of a row is two changes."""
        work = manifest.work_of(0)
        rows, changes = manifest.statistics.rows_in, manifest.statistics.rows_out if work is None else work.rows_out
        return cls(rows, -(-changes // 2))

    def best(self, now: Shuffled) -> Shuffled:
        """What would have been fastest; `now` where nothing is much faster than that."""
        a_key = self.rows / max(1, self.keys)
        if self.rows < _ROWS_MIN or a_key < _ENDS_AT or (now is Shuffled.ROWS and a_key < _BEGINS_AT):
            return Shuffled.ROWS
        if self.keys <= _FEW:
            return Shuffled.FEW_GROUPS
        return Shuffled.GROUPS if now is Shuffled.ROWS or self.keys > _MANY else now


class PartialChoice:
    """Chooses with hysteresis. Each change of mind makes the next one take longer, so that a stream never flutters."""

    def __init__(self, shown: Manifest) -> None:
        self.now = Touch.of(shown).best(Shuffled.ROWS)
        self._patience = _EPOCHS
        self._best = deque[Shuffled](maxlen=_PATIENCE_MAX)

    def saw(self, touch: Touch) -> None:
        """Take another epoch into account. An epoch without rows says nothing."""
        if touch.rows:
            self._best.append(touch.best(self.now))

    @property
    def next(self) -> Shuffled:
        """What the stream should do from the next epoch on."""
        last = list(self._best)[-self._patience :]
        agreed = len(last) == self._patience and len(set(last)) == 1
        return last[0] if agreed else self.now

    @property
    def changes(self) -> bool:
        """Whether that is another thing than now."""
        return self.next is not self.now

    def change(self) -> None:
        """Do what `next` says from now on."""
        self.now = self.next
        self._best.clear()
        self._patience = min(2 * self._patience, _PATIENCE_MAX)
