"""Which rows of a partition a change can touch."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.operators.over import Function, Over

_WHOLE = (Function.NTILE, Function.PERCENT_RANK, Function.CUME_DIST)
_BEHIND = (Function.ROW_NUMBER, Function.RANK, Function.DENSE_RANK, Function.SESSION_START)


@dataclass(frozen=True)
class Reach:
    """The whole partition, or all rows after a change, or so many around it (at least 1) and all its peers.

    A frame goes `rows_back` rows back from its row and `rows_ahead` rows ahead, or so far in the order's values. So a
    change touches the rows up to `rows_ahead` before it and up to `rows_back` after it, and each of these needs all of
    its own frames: lag(3) and lead(3) together need 6 rows on either side.
    """

    whole: bool
    behind: bool
    peers: bool
    rows_back: int = 0
    rows_ahead: int = 0
    distance_back: int = 0
    distance_ahead: int = 0

    @classmethod
    def of(cls, functions: Sequence[Over]) -> "Reach":
        """The reach of all functions together."""
        each = [_of(function) for function in functions]
        return cls(
            any(reach.whole for reach in each),
            any(reach.behind for reach in each),
            any(reach.peers for reach in each),
            max(reach.rows_back for reach in each),
            max(reach.rows_ahead for reach in each),
            max(reach.distance_back for reach in each),
            max(reach.distance_ahead for reach in each),
        )

    @property
    def rows(self) -> int:
        """How many rows are needed on either side of a change: those it touches, and those that they depend on."""
        return max(1, self.rows_back + self.rows_ahead)

    @property
    def distance(self) -> int:
        """How far in the order the rows are that are needed on either side of a change."""
        return self.distance_back + self.distance_ahead


def _of(function: Over) -> Reach:
    kind = function.function
    if kind in _WHOLE or kind in _BEHIND:
        return Reach(kind in _WHOLE, kind in _BEHIND, peers=False)
    if kind in (Function.LAG, Function.LEAD):
        rows = (function.n or 0) * (1 if kind is Function.LEAD else -1)
        return Reach(whole=False, behind=False, peers=False, rows_back=max(0, -rows), rows_ahead=max(0, rows))
    first, last = function.rows or function.range or (None, 0)
    # The row where the frame begins does not matter, where it ends with a row so far away.
    is_last_alone = kind is Function.LAST_VALUE and last is not None and (function.rows is not None or last >= 0)
    behind = first is None and not is_last_alone
    bounds = [bound for bound in (first, last) if bound is not None]
    back, ahead = max([0, *(-bound for bound in bounds)]), max([0, *bounds])
    if function.rows is not None:
        return Reach(last is None, behind, peers=False, rows_back=back, rows_ahead=ahead)
    return Reach(last is None, behind, peers=True, distance_back=back, distance_ahead=ahead)
