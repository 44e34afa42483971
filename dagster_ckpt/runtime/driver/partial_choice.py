"""Whether Spark aggregates the rows of an epoch before it shuffles them, by what the last epochs had.

Where each key has many rows in an epoch, Spark's generated code reads the rows and few groups are shuffled. Where
nearly each row is a key of its own, the groups are as many as the rows, and aggregating them is lost work.
"""

from collections import deque
from dataclasses import dataclass

from dagster_ckpt.protocol.manifest.manifest import Manifest

_ROWS_MIN = 50_000
"""Below so many rows in an epoch the time goes elsewhere."""
_BEGINS_AT = 6.0
_ENDS_AT = 2.5
"""Rows for each key that an epoch touches. Between the two the stream stays with what it does."""
_EPOCHS = 2
"""So many epochs in a row must agree: another choice is another plan, which takes about a second to start."""
_PATIENCE_MAX = 64


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

    @property
    def says(self) -> bool | None:
        """Whether partial aggregates would have helped; None: neither way is much better."""
        if self.rows < _ROWS_MIN:
            return False
        a_key = self.rows / max(1, self.keys)
        return True if a_key >= _BEGINS_AT else False if a_key < _ENDS_AT else None


class PartialChoice:
    """Chooses with hysteresis. Each change of mind makes the next one take longer, so that a stream never flutters."""

    def __init__(self, shown: Manifest) -> None:
        self.partial = bool(Touch.of(shown).says)
        self._patience = _EPOCHS
        self._said = deque[bool | None](maxlen=_PATIENCE_MAX)

    def saw(self, touch: Touch) -> None:
        """Take another epoch into account. An epoch without rows says nothing."""
        if touch.rows:
            self._said.append(touch.says)

    @property
    def changes(self) -> bool:
        """Whether the stream should do the other from the next epoch on."""
        last = list(self._said)[-self._patience :]
        return len(last) == self._patience and all(each is (not self.partial) for each in last)

    def change(self) -> None:
        """Do the other from now on."""
        self.partial = not self.partial
        self._said.clear()
        self._patience = min(2 * self._patience, _PATIENCE_MAX)
