"""The changes of an epoch to keys, before and after they are written: their rows now, and before the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import Positions, stack, take
from dagster_ckpt.lsm.runs.before_images import before_images_of
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.runs.run import Run, filter_run, joined_tombstones, run_of
from dagster_ckpt.lsm.table import Found, Touched
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class Delta:
    """The change of n distinct keys: a run of their rows, or tombstones, and the rows they had before.

    `before` has the earlier rows in the run's order; None: not looked up.
    """

    run: Run
    before: Found | None = None

    def __len__(self) -> int:
        return len(self.run)

    @property
    def nbytes(self) -> int:
        """The bytes it holds in memory."""
        return self.run.nbytes + _bytes_of(self.before)


def merge_deltas(deltas: Sequence[Delta], keys: Sequence[str]) -> Delta:
    """Several deltas, newest first, as one: of each key the newest row and the oldest before.

    At least one delta. `before` is known if all of them have it.
    """
    if len(deltas) == 1:
        return deltas[0]
    run, groups = newest_of([delta.run for delta in deltas], keys)
    befores = [delta.before for delta in deltas if delta.before is not None]
    if len(befores) < len(deltas):
        return Delta(run)
    oldest = groups.order[np.append(groups.starts[1:], len(groups.order)) - 1]
    before = Found(np.concatenate([each.present for each in befores]), stack([each.rows for each in befores]))
    return Delta(run, chosen(before, oldest))


def newest_of(runs: Sequence[Run], keys: Sequence[str]) -> tuple[Run, KeyOrder]:
    """All keys of several runs, newest run first, each with its newest row or tombstone; and the order of all rows."""
    hashes = np.concatenate([run.hashes for run in runs])
    rows = stack([run.columns() for run in runs])
    groups = key_order(hashes, rows.select(list(keys)))
    newest = groups.order[groups.starts]
    tombstones = joined_tombstones(runs)
    return run_of(hashes[newest], take(rows, newest), None if tombstones is None else tombstones[newest]), groups


def chosen(found: Found, asked: Positions) -> Found:
    """The result for some of the keys, in this order."""
    if np.array_equal(asked, np.arange(len(found.present))):
        return found
    present = np.take(found.present, asked)
    rows = np.cumsum(found.present) - 1
    return Found(present, take(found.rows, np.take(rows, asked[present])))


def changing(delta: Delta) -> Delta:
    """The delta without keys that had no row before and have none now; `before` must be known."""
    assert delta.before is not None, "the rows before are not known"
    if delta.run.tombstones is None:
        return delta
    wanted = delta.before.present | ~delta.run.tombstones
    # A key that is left out had no row: the rows before are what they were.
    return Delta(filter_run(delta.run, wanted), Found(delta.before.present[wanted], delta.before.rows))


def touched_rows(delta: Delta) -> Touched:
    """The rows of the delta's keys before and now; `before` must be known."""
    assert delta.before is not None, "the rows before are not known"
    return Touched(delta.run.hashes, delta.before, now_of(delta.run))


def now_of(run: Run) -> Found:
    """The rows of the run's keys, in its order: none for a tombstone."""
    if run.tombstones is None:
        return Found(np.ones(len(run), dtype=np.bool_), run.columns())
    present = ~run.tombstones
    return Found(present, take(run.columns(), np.flatnonzero(present)))


def slice_delta(delta: Delta, part: HashRange) -> Delta:
    """The part of the delta with these hashes."""
    start, until = _places(delta.run, part)
    before = delta.before
    if before is not None:
        first, end = np.count_nonzero(before.present[:start]), np.count_nonzero(before.present[:until])
        before = Found(before.present[start:until], before.rows.slice(first, end - first))
    return Delta(delta.run.slice(start, until), before)


def delta_of_run(run: Run, part: HashRange, spec: StateTableSpec) -> Delta:
    """The delta in the part of a logged run with these hashes."""
    piece = run.slice(*_places(run, part))
    return Delta(piece, before_images_of(piece, spec.keys, spec.schema))


def _places(run: Run, part: HashRange) -> tuple[int, int]:
    if run.guard is not None:  # the file may be remote: read only the hashes near the two places
        return run.first_not_less(part.lo), run.first_not_less(part.hi + 1)
    start = int(np.searchsorted(run.hashes, np.uint64(part.lo), side="left"))
    return start, int(np.searchsorted(run.hashes, np.uint64(part.hi), side="right"))


def _bytes_of(found: Found | None) -> int:
    return 0 if found is None else int(found.rows.nbytes)
