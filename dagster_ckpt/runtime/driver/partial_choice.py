"""Whether Spark aggregates the rows of an epoch before it shuffles them, by what the last epoch had.

Where each key has many rows in an epoch, Spark's generated code reads the rows and few groups are shuffled. Where
nearly each row is a key of its own, the groups are as many as the rows, and aggregating them is lost work.
"""

from dataclasses import dataclass
from enum import Enum, auto

from dagster_ckpt.protocol.manifest.manifest import Manifest


class Shuffled(Enum):
    """What Spark brings to the tasks of a stream's first step."""

    ROWS = auto()
    """The rows, as they are read."""
    GROUPS = auto()
    """Partial aggregates of each key."""
    FEW_GROUPS = auto()
    """The same, all of them to one task: Spark needs one shuffle less."""


_FEW_AT = ((2_500, 0.0), (50_000, 2.5), (120_000, 5.0))
"""Up to so many keys that an epoch touches, with so many rows for each key, one task is soonest done with them."""
_GROUPS_AT = 10.0
"""Of more keys, with so many rows for each, several tasks are."""


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
    def best(self) -> Shuffled:
        """What would have been fastest."""
        a_key = self.rows / max(1, self.keys)
        if any(self.keys <= most and a_key >= least for most, least in _FEW_AT):
            return Shuffled.FEW_GROUPS
        return Shuffled.GROUPS if a_key >= _GROUPS_AT else Shuffled.ROWS
