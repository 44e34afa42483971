"""Merges several runs into one: the newest delta of each key."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, concat, empty, flat, from_plain, plain, stretches, take
from dagster_ckpt.lsm.layer_search import Match, Probe, with_key
from dagster_ckpt.lsm.runs.deltas import newest_rows
from dagster_ckpt.lsm.runs.run import Run, live, one_after_another, rows_at
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes


def merge_runs(runs: Sequence[Run], keys: Sequence[str]) -> Run:
    """All keys of the runs, each with its newest delta; the runs come newest first, at least one. Tombstones stay."""
    return runs[0] if len(runs) == 1 else newest_rows(runs, keys)[0]


def merge_into(bottom: Sequence[Run], news: Run, keys: Sequence[str]) -> Run:
    """The rows of the bottom after the news: nothing is older, so there are no tombstones.

    The bottom runs have none either; they ascend, and no hash is in two of them.
    """
    filled = [run for run in bottom if len(run)]
    if not filled or len(news) == 0:
        return one_after_another(filled or [live(news)])
    below = one_after_another(filled)
    at, known = _places(below, news, keys)
    dead = np.zeros(len(news), dtype=np.bool_) if news.tombstones is None else news.tombstones
    replaced, new = np.flatnonzero(known & ~dead), np.flatnonzero(~known & ~dead)
    return _woven(below, news, _Weave(len(below), at[known & dead], at[replaced], replaced, at[new], new))


def _places(below: Run, news: Run, keys: Sequence[str]) -> tuple[Positions, Mask]:
    """For each row of the news its position in the run below it, and whether its key is already there."""
    hashes, queries = news.hashes, np.arange(len(news))
    at = np.searchsorted(below.hashes, hashes)
    same_hash = np.flatnonzero(np.take(below.hashes, at, mode="clip") == hashes)
    probe = Probe(queries, [View(below)], np.array([0, len(news)])).only(same_hash)
    match = with_key(Match(probe, np.take(at, same_hash)), hashes, news.columns(keys))
    known = np.zeros(len(news), dtype=np.bool_)
    known[match.probe.queries] = True
    at[match.probe.queries] = match.at
    return at, known


class _Weave:
    """A merge of some rows into n others, some of which are removed, some replaced, and some preceded by new rows.

    `removed`, `replaced_at` and `new_at` (ascending) are positions in the n rows, the other two the rows that go there.
    """

    def __init__(
        self,
        n: int,
        removed: Positions,
        replaced_at: Positions,
        replaced: Positions,
        new_at: Positions,
        new: Positions,
    ) -> None:
        removed = np.sort(removed)
        slots_of_new = new_at - np.searchsorted(removed, new_at) + np.arange(len(new))
        slots_of_replaced = replaced_at - np.searchsorted(removed, replaced_at)
        slots_of_replaced += np.searchsorted(new_at, replaced_at, side="right")
        self._slots = np.concatenate([slots_of_new, slots_of_replaced])
        self._rows = np.concatenate([new, replaced])
        self._n = n
        # The others in their order; in place of a new row, any of them, to be overwritten.
        self._others: Positions | None = None
        if len(removed) or len(new):
            before = np.zeros(n - len(removed) + len(new), dtype=np.int64)
            before[slots_of_new] = 1
            self._others = np.arange(len(before)) - np.cumsum(before)
            if len(removed):
                # One more than there are, since every other row may be removed.
                left = np.append(np.delete(np.arange(n), removed), 0)
                self._others = np.take(left, self._others, mode="clip")

    def column(self, others: pa.Array, theirs: pa.Array) -> pa.Array:
        """A column of the result, from that of the n rows and that of the rows which go into them."""
        mine, more = plain(others), plain(theirs)
        if mine is None or more is None:
            rows = np.arange(self._n) if self._others is None else self._others.copy()
            rows[self._slots] = self._n + self._rows
            return concat([others, theirs]).take(pa.array(rows))
        out = empty(self._n if self._others is None else len(self._others), mine.dtype)
        if self._others is None:
            out[:] = mine
        else:
            np.take(mine, self._others, out=out, mode="clip")
        out[self._slots] = np.take(more, self._rows)
        return from_plain(out, others.type)


def _woven(below: Run, news: Run, weave: _Weave) -> Run:
    columns, more = below.columns(), news.columns()
    pairs = zip(columns.columns, more.columns, strict=True)
    table = pa.Table.from_arrays([weave.column(flat(one), flat(two)) for one, two in pairs], schema=columns.schema)
    return Run(table, weave.column(pa.array(below.hashes), pa.array(news.hashes)))


def scan(upper: Sequence[View], bottom: Sequence[View], lo: int, hi: int, keys: Sequence[str]) -> Run | None:
    """The newest rows with `lo <= hash <= hi` by ascending hash, without tombstones and expired rows.

    `upper` comes newest first, `bottom` below it, disjoint and ascending. None: there is no run at all.
    """
    below = [live(view.between(lo, hi)) for view in bottom]
    above = [view.between(lo, hi) for view in upper]
    return merge_into(below, merge_runs(above, keys), keys) if above else one_after_another(below) if below else None


def rows_in_any_order(
    upper: Sequence[View], bottom: Sequence[View], lo: int, hi: int, keys: Sequence[str]
) -> list[pa.Table]:
    """The rows that `scan` finds. None is moved: of each run, those that a newer one replaces are left out."""
    below = [run for view in bottom if len(run := live(view.between(lo, hi)))]
    above = [run for view in upper if len(run := view.between(lo, hi))]
    runs = [*above, *below]
    gone = _older_rows(above, below, keys)
    rows = [_without(run, at) for run, at in zip(runs, gone, strict=True)]
    return [found for found in rows if found.num_rows]


def _older_rows(above: Sequence[Run], below: Sequence[Run], keys: Sequence[str]) -> list[Positions]:
    """The rows of each run for which a newer one has another, or a tombstone."""
    least, greatest = _shared_hashes([run.hashes for run in (*above, *below)] if above else [])
    if len(least) == 0:
        return [_NOWHERE for _ in (*above, *below)]
    at = [
        stretches(np.searchsorted(run.hashes, least), np.searchsorted(run.hashes, greatest, "right")) for run in above
    ]
    found = [rows_at(run.with_columns(keys), own) for run, own in zip(above, at, strict=True)]
    news, groups = newest_rows(found, keys)
    newest = np.zeros(len(groups.order), dtype=np.bool_)
    newest[groups.order[groups.starts]] = True
    ends = np.cumsum([len(run) for run in found])
    gone = [own[~there] for own, there in zip(at, np.split(newest, ends[:-1]), strict=True)]
    for run in below:
        first, end = np.searchsorted(news.hashes, run.hashes[0]), np.searchsorted(news.hashes, run.hashes[-1], "right")
        places, known = _places(run, news.slice(int(first), int(end)), keys)
        gone.append(places[known])
    return gone


def _shared_hashes(hashes: Sequence[Hashes]) -> tuple[Hashes, Hashes]:
    """Ranges of hashes, by their least and greatest, with all that are there twice, and few others.

    Each is known by 32 bits, which sort in half the time; to look one up in all runs costs more than to sort it.
    """
    filled = [own for own in hashes if len(own)]
    if len(filled) < 2:
        return _NO_HASHES, _NO_HASHES
    first, last = min(own[0] for own in filled), max(own[-1] for own in filled)
    lost_bits = np.uint64(max(0, int(last - first).bit_length() - 32))
    every = np.concatenate([((own - first) >> lost_bits).astype(np.uint32) for own in filled])
    every.sort()
    least = (np.unique(every[1:][every[1:] == every[:-1]]).astype(np.uint64) << lost_bits) + first
    return least, least + np.minimum((np.uint64(1) << lost_bits) - np.uint64(1), last - least)


def _without(run: Run, at: Positions) -> pa.Table:
    """The rows of the run but those at these positions, and no tombstones."""
    if run.tombstones is None and len(at) == 0:
        return run.columns()
    there = np.ones(len(run), dtype=np.bool_) if run.tombstones is None else ~run.tombstones
    there[at] = False
    return take(run.columns(), np.flatnonzero(there))


_NO_HASHES: Hashes = np.empty(0, dtype=np.uint64)
_NOWHERE: Positions = np.empty(0, dtype=np.int64)
