"""How a delivery continues from the position that it finds in the destination. Pure.

| the destination's position | an upsert delivery | an append delivery |
|---|---|---|
| none, and nothing was delivered before | begins with the table | begins with the table |
| none, although something was delivered | stops: the destination was emptied or made again | the same |
| of another stream | stops: it is not this stream's, or the stream was made again | the same |
| in the lineage, and the log after it is kept | goes on | goes on |
| in the lineage, and the log after it is gone | replaces the table | stops |
| of an epoch that a rollback abandoned | replaces the table | stops |
| of an epoch that the stream does not have: its folder was restored from a backup | replaces the table | stops |
| in the lineage, but rows have another key now | replaces the table | goes on |

A position older than the newest known one is that of a destination restored from a backup: its rows went back with it.
"""

from dataclasses import dataclass
from enum import StrEnum

from dagster_ckpt.delivery.destination import DeliveryMode
from dagster_ckpt.ids import EMPTY, Epoch
from dagster_ckpt.protocol.epochs.upstream import Trouble, UpstreamPosition


class Move(StrEnum):
    """What a delivery does next."""

    BEGIN = "begin"
    CONTINUE = "continue"
    REPLACE = "replace"
    STOP = "stop"


class PositionFinding(StrEnum):
    """What is unusual about the destination's position, as text for users."""

    EMPTIED = "the destination has no position of this delivery, although it had one"
    FOREIGN = "the position in the destination is of another stream"
    RESTORED = "the destination has gone back to an older position: it was restored from a backup"
    ROLLED_BACK = "the stream was rolled back to before what was delivered, or its steps were changed"
    DIVERGED = "the stream does not have the delivered epoch: its folder was restored from a backup"
    CUT_OFF = "the stream no longer keeps the change log after what was delivered"
    UNPINNED = "the snapshot that was being delivered is gone"
    REKEYED = "the stream's rows have another key than those that were delivered"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to do, and what was found; `found` is None where nothing is unusual."""

    move: Move
    found: PositionFinding | None = None


_OF_TROUBLE = {
    Trouble.RECREATED: PositionFinding.FOREIGN,
    Trouble.ROLLED_BACK: PositionFinding.ROLLED_BACK,
    Trouble.DIVERGED: PositionFinding.DIVERGED,
    Trouble.CUT_OFF: PositionFinding.CUT_OFF,
    Trouble.UNPINNED: PositionFinding.UNPINNED,
}


def judge(
    mode: DeliveryMode,
    there: UpstreamPosition | None,
    known: Epoch,
    trouble: Trouble | None,
    *,
    is_rekeyed: bool = False,
) -> Judgement:
    """How to continue from `there`, the position in the destination.

    `known` is the newest epoch that this delivery has recorded as delivered, 0 for none. `trouble` is why the stream
    cannot be followed from `there`, None if it can. `is_rekeyed`: an upsert would not find the rows that are there.
    """
    if there is None:
        return Judgement(Move.BEGIN) if known == EMPTY else Judgement(Move.STOP, PositionFinding.EMPTIED)
    if trouble is not None:
        found = _OF_TROUBLE[trouble]
        replaces = mode is DeliveryMode.UPSERT and found is not PositionFinding.FOREIGN
        return Judgement(Move.REPLACE if replaces else Move.STOP, found)
    if is_rekeyed:
        return Judgement(Move.REPLACE, PositionFinding.REKEYED)
    return Judgement(Move.CONTINUE, PositionFinding.RESTORED if there.epoch < known else None)
