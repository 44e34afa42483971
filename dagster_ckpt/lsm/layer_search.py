"""Searches keys in runs with disjoint hashes: a layer, searched at once, not run after run.

Only taking values from columns is done run by run, everything else for all queries together: so a layer of many runs
costs hardly more than a layer of one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, equal, flat, gather, stack, stretches, take, take_array
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.runs.run import ABSENT
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Hashes

_STEPS = 2
"""Measured on evenly spread hashes: two steps in the directory's cell finish nine of ten queries."""


@dataclass(frozen=True)
class Probe:
    """Some of n queries, ascending by hash, each with the one view whose run may have its key.

    `queries` are their numbers; those of `views[i]` are `queries[edges[i]:edges[i + 1]]`.
    """

    queries: Positions
    views: Sequence[View]
    edges: Positions

    def __len__(self) -> int:
        return len(self.queries)

    def only(self, chosen: Positions) -> "Probe":
        """A selection of these queries, by ascending position."""
        if len(chosen) == len(self.queries):
            return self
        return Probe(np.take(self.queries, chosen), self.views, np.searchsorted(chosen, self.edges))

    def each(self) -> Iterator[tuple[View, slice]]:
        """The views with at least one query, and the slice of queries of each."""
        edges = self.edges.tolist()
        for view, start, end in zip(self.views, edges, edges[1:], strict=False):
            if start < end:
                yield view, slice(start, end)

    def hashes_at(self, at: Positions) -> Hashes:
        """For each query, the hash of the row at this position of its run."""
        hashes = np.empty(len(at), dtype=np.uint64)
        for view, mine in self.each():
            hashes[mine] = view.run.hashes_at(at[mine])
        return hashes

    def columns_at(self, names: Sequence[str], at: Positions) -> list[pa.Array]:
        """For each query, at least one, the row at this position of its run: some columns."""
        each = list(self.each())
        rows = [at[mine] for _, mine in each]
        of_views = [view.run.columns_at(names, mine) for (view, _), mine in zip(each, rows, strict=True)]
        return [gather(of_name, rows) for of_name in zip(*of_views, strict=True)]


@dataclass(frozen=True)
class Match:
    """Queries whose key is in their run, and the row's position there."""

    probe: Probe
    at: Positions

    def only(self, chosen: Positions) -> "Match":
        """A selection of these, by ascending position."""
        return self if len(chosen) == len(self.at) else Match(self.probe.only(chosen), np.take(self.at, chosen))

    def there(self) -> "Match":
        """Those with a live row: no tombstone, and not expired."""
        gone = np.zeros(len(self.at), dtype=np.bool_)
        for view, mine in self.probe.each():
            if (of_view := view.absent_at(self.at[mine])) is not None:
                gone[mine] = of_view
        return self.only(np.flatnonzero(~gone)) if gone.any() else self


def start_probe(layer: Sequence[View], hashes: Hashes, queries: Positions) -> Probe:
    """Assigns these queries to the views. The hashes of the views are disjoint, and ascend from view to view.

    Query i has `hashes[i]`, which ascend. Hashes that a run's Bloom filter rules out are dropped.
    """
    mine = hashes if len(queries) == len(hashes) else np.take(hashes, queries)
    views, los, his = [], [], []
    for view in layer:
        whole = view.run.range
        for each in view.shown:
            lo, hi = max(each.lo, whole.lo), min(each.hi, whole.hi)
            if lo <= hi:
                views.append(view)
                los.append(lo)
                his.append(hi)
    starts = np.searchsorted(mine, np.array(los, dtype=np.uint64), side="left")
    ends = np.searchsorted(mine, np.array(his, dtype=np.uint64), side="right")
    chosen = []
    for view, start, end in zip(views, starts.tolist(), ends.tolist(), strict=True):
        maybe = view.run.may_have(mine[start:end]) if start < end else None
        chosen.append(queries[start:end] if maybe is None else np.take(queries, maybe + start))
    edges = np.cumsum([0, *map(len, chosen)])
    return Probe(np.concatenate([queries[:0], *chosen]), views, edges)


def first_not_less(probe: Probe, wanted: Hashes) -> tuple[Positions, Hashes]:
    """For each query the first position in its run whose hash is not less than `wanted`, and the hash there.

    No hash is beyond its run's least and greatest.
    """
    cells, at = _cells(probe, wanted)
    found = probe.hashes_at(at)
    for _ in range(_STEPS):
        # No step passes the end, since the greatest hash is not less than any wanted one.
        at += found < wanted
        found = probe.hashes_at(at)
    below = np.flatnonzero(found < wanted)
    if len(below):
        late = probe.only(below)
        at[below] = _by_halves(late, np.less, wanted[below], at[below], _first_at(late, cells[below] + 1))
        found[below] = late.hashes_at(at[below])
    return at, found


def first_greater(probe: Probe, wanted: Hashes, at: Positions) -> Positions:
    """For each query the first position in its run whose hash is greater than `wanted`, which is the one at `at`."""
    cells, _ = _cells(probe, wanted)
    ends = _first_at(probe, cells + 1)
    # In the last cell, the last row may have the wanted hash.
    last = np.flatnonzero(probe.hashes_at(ends) == wanted)
    at = at.copy()
    at[last] = ends[last]
    ends[last] += 1
    return _by_halves(probe, np.less_equal, wanted, at, ends)


def _cells(probe: Probe, wanted: Hashes) -> tuple[Positions, Positions]:
    """Each hash's cell in its run's directory, and the first position in that."""
    cells = np.empty(len(probe), dtype=np.int64)
    for view, mine in probe.each():
        cells[mine] = view.run.cells(wanted[mine])
    return cells, _first_at(probe, cells)


def _first_at(probe: Probe, cells: Positions) -> Positions:
    first = np.empty(len(probe), dtype=np.int64)
    for view, mine in probe.each():
        first[mine] = view.run.first_at(cells[mine])
    return first


def _by_halves(probe: Probe, before: np.ufunc, wanted: Hashes, low: Positions, high: Positions) -> Positions:
    """Binary search for the first hash not `before` the wanted one: the one at `low` is, the one at `high` is not."""
    while (high - low > 1).any():
        middle = (low + high) // 2
        is_before = before(probe.hashes_at(middle), wanted)
        low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
    return high


def find(probe: Probe, hashes: Hashes, keys: pa.Table) -> Match:
    """The queries whose key is found; query i is the key in row i of `keys` and has `hashes[i]`.

    The keys themselves are compared; null equals null. No key is probed twice.
    """
    wanted = np.take(hashes, probe.queries)
    at, found = first_not_less(probe, wanted)
    same_hash = np.flatnonzero(found == wanted)
    return with_key(Match(probe.only(same_hash), np.take(at, same_hash)), hashes, keys)


def with_key(match: Match, hashes: Hashes, keys: pa.Table) -> Match:
    """As `find`, given the position in its run where each query's hash begins."""
    same = key_is(match, keys)
    if same.all():
        return match
    # Other keys with the same hash may follow, even thousands: in a timeline all keys of one time do.
    others = np.flatnonzero(~same)
    match.at[others] = _among_equals(match.only(others), hashes, keys)
    return match.only(np.flatnonzero(match.at != ABSENT))


def key_is(match: Match, keys: pa.Table) -> Mask:
    """Whether the row at each position has its query's key, or the prefix of it in `keys`."""
    same = np.ones(len(match.at), dtype=np.bool_)
    queries = match.probe.queries
    if len(queries) == 0:
        return same
    for mine, theirs in zip(match.probe.columns_at(keys.column_names, match.at), keys.columns, strict=True):
        same &= equal(mine, take_array(flat(theirs), queries))
    return same


def _among_equals(match: Match, hashes: Hashes, keys: pa.Table) -> Positions:
    """For each query, whose hash begins at its position, the position of its key; `ABSENT` where there is none."""
    found = np.full(len(match.at), ABSENT, dtype=np.int64)
    ends = first_greater(match.probe, hashes[match.probe.queries], match.at)
    for view, mine in match.probe.each():
        queries = match.probe.queries[mine]
        starts, first = np.unique(match.at[mine], return_index=True)
        rows = stretches(starts, ends[mine][first])
        columns = view.run.columns_at(keys.column_names, rows)
        theirs = pa.Table.from_arrays([column.take(rows) for column in columns], schema=keys.schema)
        groups = key_order(
            np.concatenate([view.run.hashes_at(rows), hashes[queries]]), stack([theirs, take(keys, queries)])
        )
        # No key occurs twice among the rows or the queries, so one that is in both is a row, then a query.
        pairs = groups.starts[groups.sizes == 2]
        found[mine.start + groups.order[pairs + 1] - len(rows)] = rows[groups.order[pairs]]
    return found
