"""Which rows of a partition a change can touch."""

from collections.abc import Sequence
from dataclasses import dataclass

from dagster_ckpt.operators.over import Function, Over

_WHOLE = (Function.NTILE, Function.PERCENT_RANK, Function.CUME_DIST)
_BEHIND = (Function.ROW_NUMBER, Function.RANK, Function.DENSE_RANK, Function.SESSION_START)


@dataclass(frozen=True)
class Reach:
    """The whole partition, or all rows behind a change, or so many on either side (at least 1) and all its peers.

    `rows` is how many rows are needed beside a change: those it touches, and those that they depend on. With `distance`
    it is also all rows whose value in the order is so close.
    """

    whole: bool
    behind: bool
    peers: bool
    rows: int
    distance: int = 0

    @classmethod
    def of(cls, functions: Sequence[Over]) -> "Reach":
        """The reach of all functions together."""
        each = [_of(function) for function in functions]
        return cls(
            any(reach.whole for reach in each),
            any(reach.behind for reach in each),
            any(reach.peers for reach in each),
            max(1, *(reach.rows for reach in each)),
            max(reach.distance for reach in each),
        )


def _of(function: Over) -> Reach:
    kind = function.function
    if kind in _WHOLE or kind in _BEHIND:
        return Reach(kind in _WHOLE, kind in _BEHIND, peers=False, rows=1)
    if kind in (Function.LAG, Function.LEAD):
        return Reach(whole=False, behind=False, peers=False, rows=abs(function.n or 0))
    first, last = function.rows or function.range or (None, 0)
    # The row where the frame begins does not matter, where it ends with a row so far away.
    is_last_alone = kind is Function.LAST_VALUE and last is not None and (function.rows is not None or last >= 0)
    behind = first is None and not is_last_alone
    # A change at place 0 touches rows from -max(bounds) to -min(bounds), which need as many beside them.
    bounds = [bound for bound in (first, last) if bound is not None]
    beside = max([0, *(-bound for bound in bounds)]) + max([0, *bounds])
    by_rows = function.rows is not None
    return Reach(last is None, behind, not by_rows, beside if by_rows else 0, 0 if by_rows else beside)
