"""Runs made into one: the newest word of each key."""

from collections.abc import Sequence

import numpy as np

from dagster_ckpt.lsm.columns import Mask, stack, take
from dagster_ckpt.lsm.key_order import key_order
from dagster_ckpt.lsm.run import Run, live, run_of
from dagster_ckpt.lsm.view import View


def merged(runs: Sequence[Run], keys: Sequence[str]) -> Run:
    """All keys of the runs, each with its newest word; the runs come newest first, at least one. Tombstones stay."""
    if len(runs) == 1:
        return runs[0]
    hashes = np.concatenate([run.hashes for run in runs])
    rows = stack([run.columns() for run in runs])
    groups = key_order(hashes, rows.select(list(keys)))
    newest = groups.order[groups.starts]
    tombstones: Mask | None = None
    if any(run.tombstones is not None for run in runs):
        each = [np.zeros(len(run), dtype=np.bool_) if run.tombstones is None else run.tombstones for run in runs]
        tombstones = np.concatenate(each)[newest]
    return run_of(hashes[newest], take(rows, newest), tombstones)


def merged_into(bottom: Sequence[Run], news: Run, keys: Sequence[str]) -> Run:
    """The rows of the bottom level, without tombstones, after the news; at least one bottom run or none.

    The bottom runs have no tombstones, ascend, and no hash is in two of them.
    """
    return live(merged([news, *bottom], keys))


def scan(upper: Sequence[View], bottom: Sequence[View], lo: int, hi: int, keys: Sequence[str]) -> Run | None:
    """The newest rows with `lo <= hash <= hi` by ascending hash, without tombstones and what expired.

    `upper` comes newest first, `bottom` below it, disjoint and ascending. None: there is no run at all.
    """
    runs = [view.between(lo, hi) for view in (*upper, *bottom)]
    return live(merged(runs, keys)) if runs else None
