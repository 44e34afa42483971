"""Merges carried out: runs in, fewer runs out, a piece of the hash range at a time so that memory is bounded."""

from collections.abc import Iterator, Sequence

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.compaction.merge import merge_into, merge_runs
from dagster_ckpt.lsm.compaction.merge_choice import SliceMerge, TierMerge
from dagster_ckpt.lsm.runs.hash_pieces import pieces_of
from dagster_ckpt.lsm.runs.run import Run, live
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.state.runs.run_layers import Views

Piece = tuple[HashRange, Run]
"""For which hashes a run was made, and the run, never empty."""


def outputs_of(
    merge: SliceMerge | TierMerge, views: Views, keys: Sequence[str], within: HashRange, rows_max: int
) -> Iterator[Piece]:
    """What a merge makes of the runs of a table whose shards have the hashes `within`: ascending, disjoint.

    Each has at most about `rows_max` rows. The views show no expired row, so neither do the outputs.
    """
    match merge:
        case SliceMerge(range=part, files=files, rows=rows):
            every = (*views.upper, *views.bottom)
            for piece in pieces_of(_runs(every), part, min(rows_max, max(1, -(-rows // files)))):
                yield from _not_empty(piece, _down(views, piece, keys))
        case TierMerge(runs=count):
            upper = views.upper[:count]
            for piece in pieces_of(_runs(upper), within, rows_max):
                yield from _not_empty(piece, merge_runs(_between(upper, piece), keys))


def _down(views: Views, piece: HashRange, keys: Sequence[str]) -> Run:
    upper, bottom = _between(views.upper, piece), _between(views.bottom, piece)
    if not upper:
        return merge_into([], merge_runs(bottom, keys), keys)
    # Nothing is older than the bottom: a tombstone there hides nothing.
    return merge_into([live(run) for run in bottom if len(run)], merge_runs(upper, keys), keys)


def _runs(views: Sequence[View]) -> list[Run]:
    return [view.run for view in views]


def _between(views: Sequence[View], piece: HashRange) -> list[Run]:
    return [view.between(piece.lo, piece.hi) for view in views]


def _not_empty(piece: HashRange, run: Run) -> Iterator[Piece]:
    if len(run):
        yield piece, run
