"""The rows that some changes can touch, before them and after: whole leaves of the tree, side by side in runs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, rows_equal, stack, take, take_array
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import StateTable
from dagster_ckpt.operators.rows.over import distances
from dagster_ckpt.operators.rows.over.reach import Reach
from dagster_ckpt.operators.shared.ranked.order_by import OrderColumn
from dagster_ckpt.operators.shared.ranked.ordered_tree import NONE, Leaves, NodeRows, OrderedTree, Partitions, Written
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import refuse


@dataclass(frozen=True)
class Region:
    """Rows of `leaves`, which ascend by run, before and after; `origin` is the place in `before` of those after."""

    partitions: Partitions
    leaves: Written
    run_of_leaf: Positions
    in_middle: Mask
    before: NodeRows
    after: NodeRows
    origin: Positions

    @property
    def bytes_read(self) -> int:
        """About the bytes of its rows."""
        return int(self.before.rows.nbytes + self.after.rows.nbytes)


@dataclass(frozen=True)
class _Part:
    """Distinct rows to add, in order, and the leaf that each belongs to."""

    groups: Positions
    rows: pa.Table
    weights: Positions
    leaf: Positions


@dataclass(frozen=True)
class _Runs:
    """Leaves in order, how many rows each has, and where its first is; `run` numbers those side by side.

    `touched` is the number of a leaf that changes, else `NONE`.
    """

    leaves: Leaves
    touched: Positions
    counts: Positions
    firsts: Positions
    rows: pa.Table
    run: Positions


def region_of(tree: OrderedTree, table: StateTable, more: ZSet, reach: Reach) -> Region:
    """What distinct rows with these weights can touch. At least one row."""
    groups, partitions = _partitions(tree, more)
    rows = more.rows.select(tree.others)
    order = tree.order.sort(groups, rows)
    groups, rows, weights = groups[order], take(rows, order), more.weights[order]
    located = tree.locate(table, partitions, groups, rows)
    _, first, leaf = np.unique(np.stack([groups, located.nodes]), axis=1, return_index=True, return_inverse=True)
    touched, part = located.only(first), _Part(groups, rows, weights, leaf.reshape(-1))
    if reach.whole:
        every = np.arange(len(partitions.hashes))
        found = tree.leaves_from(table, partitions, every, None)
        run, in_middle = found[0], np.zeros(len(every), dtype=np.bool_)
    else:
        found, run, in_middle = _reach_leaves(tree, table, partitions, touched, part, reach)
    return _read(tree, table, partitions, touched, part, found, run, in_middle)


def _partitions(tree: OrderedTree, more: ZSet) -> tuple[Positions, Partitions]:
    keys = more.rows.select(list(tree.keys))
    distinct = key_order(more.hashes, keys)
    firsts = distinct.order[distinct.starts]
    groups = np.empty(len(more.hashes), dtype=np.int64)
    groups[distinct.order] = np.repeat(np.arange(len(firsts)), distinct.sizes)
    return groups, Partitions(more.hashes[firsts], take(keys, firsts))


def _reach_leaves(
    tree: OrderedTree, table: StateTable, partitions: Partitions, touched: Leaves, part: _Part, reach: Reach
) -> tuple[tuple[Positions, Positions], Positions, Mask]:
    """The groups and nodes of the leaves, the run of each, and which runs begin in the middle."""
    count = len(touched.nodes)
    least, most = np.full(count, len(part.leaf)), np.zeros(count, dtype=np.int64)
    np.minimum.at(least, part.leaf, np.arange(len(part.leaf)))
    np.maximum.at(most, part.leaf, np.arange(len(part.leaf)))
    leaves = touched
    while True:
        runs = _runs(tree, table, partitions, leaves, count)
        beside = [_beside(tree, table, partitions, runs, part.rows, least, reach, behind=False)]
        if not reach.behind:
            beside.append(_beside(tree, table, partitions, runs, part.rows, most, reach, behind=True))
        new = [each for each in beside if each is not None]
        if not new:
            break
        leaves = _distinct(leaves, new)
    ordered, run = runs.leaves, runs.run
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    if not reach.behind:
        return (ordered.groups, ordered.nodes), run, ordered.lower[starts] != NONE
    # The first run of each key goes on to the end.
    starts = starts[np.flatnonzero(np.diff(ordered.groups[starts], prepend=-1))]
    of_new = runs.rows.num_rows + np.searchsorted(part.groups, ordered.groups[starts])
    at = np.where(runs.counts[starts] > 0, runs.firsts[starts], of_new)
    found = tree.leaves_from(table, partitions, ordered.groups[starts], take(stack([runs.rows, part.rows]), at))
    return found, found[0], ordered.lower[starts] != NONE


def _runs(tree: OrderedTree, table: StateTable, partitions: Partitions, leaves: Leaves, touched: int) -> _Runs:
    """The leaves, of which the first so many are touched, in order. One without rows is its key's only one."""
    found = tree.read_nodes(table, partitions, leaves.groups, leaves.nodes)
    counts = np.bincount(found.nodes, minlength=len(leaves.nodes))
    firsts = np.cumsum(counts) - counts
    some = np.flatnonzero(counts)
    order = some[tree.order.sort(leaves.groups[some], take(found.rows, firsts[some]))]
    order = np.append(order, np.flatnonzero(counts == 0))
    order = order[np.argsort(leaves.groups[order], kind="stable")]
    leaves = leaves.only(order)
    joins = (leaves.groups[1:] == leaves.groups[:-1]) & (leaves.upper[:-1] == leaves.lower[1:])
    run = np.append(0, np.cumsum(~joins))
    return _Runs(leaves, np.where(order < touched, order, NONE), counts[order], firsts[order], found.rows, run)


def _beside(
    tree: OrderedTree,
    table: StateTable,
    partitions: Partitions,
    runs: _Runs,
    changed: pa.Table,
    outermost: Positions,
    reach: Reach,
    *,
    behind: bool,
) -> Leaves | None:
    """The leaves before (or behind) the runs that need more rows there; None if none does.

    `outermost` is the row of `changed` that is the first (or the last) of each touched leaf. Enough rows are there if
    the frames of all rows that the changes touch are whole. The `anchor` is the furthest row that is touched by its
    place; its peers, and the rows within `distance` of it, are touched or needed too.
    """
    leaves, run = runs.leaves, runs.run
    of_run = np.arange(int(run[-1]) + 1)
    edges = np.searchsorted(run, of_run, side="right") - 1 if behind else np.searchsorted(run, of_run)
    is_touched = np.flatnonzero(runs.touched != NONE)
    # Each run has a touched leaf: its last one, or its first one.
    inner = np.empty(len(of_run), dtype=np.int64)
    ways = is_touched if behind else is_touched[::-1]
    inner[run[ways]] = ways
    sums = np.append(0, np.cumsum(runs.counts))
    rows = sums[edges + 1] - sums[inner + 1] if behind else sums[inner] - sums[edges]
    goes_on = (leaves.upper if behind else leaves.lower)[edges] != NONE
    needs = rows < reach.rows
    some = np.flatnonzero(goes_on & ~needs)
    if reach.peers and len(some):
        touched, framed = (reach.rows_back, reach.rows_ahead) if behind else (reach.rows_ahead, reach.rows_back)
        outwards = 1 if behind else -1
        edge, change = ((sums[at[some] + 1] - 1 if behind else sums[at[some]]) for at in (edges, inner))
        # Where this row is not touched, all that are lie before it, and have whole frames.
        edge = _rows_at(runs, sums, edge - outwards * max(0, framed - 1))
        anchor = (
            (runs.rows, _rows_at(runs, sums, change + outwards * touched))
            if touched
            else (changed, outermost[runs.touched[inner[some]]])
        )
        sides = [(runs.rows, edge), anchor]
        needs[some] = _ties(tree, sides)
        if reach.distance:
            needs[some] |= _is_close(tree, sides, reach.distance)
    at = edges[needs & goes_on]
    if len(at) == 0:
        return None
    bounds = take(leaves.bounds, (leaves.ends if behind else leaves.begins)[at])
    return tree.locate(table, partitions, leaves.groups[at], bounds, before=not behind)


def _rows_at(runs: _Runs, sums: Positions, places: Positions) -> Positions:
    """Where the rows are that have these places among the leaves in order; `sums` are the rows before each leaf."""
    leaf = np.searchsorted(sums, places, side="right") - 1
    at: Positions = runs.firsts[leaf] + places - sums[leaf]
    return at


def _ties(tree: OrderedTree, sides: Sequence[tuple[pa.Table, Positions]]) -> Mask:
    """Whether each row of the one side is equal in the order to the row of the other."""
    tie = np.ones(len(sides[0][1]), dtype=np.bool_)
    for column in tree.order.by:
        codes = column.codes(_values(column, sides))
        tie &= codes[: len(tie)] == codes[len(tie) :]
    return tie


def _is_close(tree: OrderedTree, sides: Sequence[tuple[pa.Table, Positions]], distance: int) -> Mask:
    """Whether each row of the one side is at most so far, in the order, from the row of the other."""
    column, count = tree.order.by[0], len(sides[0][1])
    values, there = distances.measure(column, _values(column, sides))
    ours, theirs = values[:count], values[count:]
    close: Mask = (distances.shift(ours, distance) >= theirs) & (distances.shift(theirs, distance) >= ours)
    return close & there[:count] & there[count:]


def _values(column: OrderColumn, sides: Sequence[tuple[pa.Table, Positions]]) -> pa.Array:
    return pa.concat_arrays([take_array(flat(each.column(column.name)), at) for each, at in sides])


def _distinct(leaves: Leaves, more: list[Leaves]) -> Leaves:
    """These leaves, first those that were there."""
    both = leaves
    for each in more:
        both = both.with_(each)
    _, first = np.unique(np.stack([both.groups, both.nodes]), axis=1, return_index=True)
    return both.only(np.sort(first))


def _read(
    tree: OrderedTree,
    table: StateTable,
    partitions: Partitions,
    touched: Leaves,
    part: _Part,
    found: tuple[Positions, Positions],
    run: Positions,
    in_middle: Mask,
) -> Region:
    groups, nodes = found
    before = tree.read_nodes(table, partitions, groups, nodes)
    # Where the touched leaves are among all.
    both = np.concatenate([np.stack([groups, nodes]), np.stack([touched.groups, touched.nodes])], axis=1)
    distinct, inverse = np.unique(both, axis=1, return_inverse=True)
    place = np.empty(distinct.shape[1], dtype=np.int64)
    place[inverse.reshape(-1)[: len(nodes)]] = np.arange(len(nodes))
    at = place[inverse.reshape(-1)[len(nodes) :]]
    is_changed = np.zeros(len(nodes), dtype=np.bool_)
    is_changed[at] = True
    paths = np.full((len(touched.paths), len(nodes)), NONE)
    paths[:, at] = touched.paths
    depths = (paths != NONE).sum(axis=0)
    leaves = Written(groups, nodes, depths, paths, is_changed)
    after, origin = _after(tree, before, part, at[part.leaf], is_changed)
    refuse(after.copies < 0, tree.spec.name)
    left = np.flatnonzero(after.copies)
    return Region(partitions, leaves, run, in_middle, before, after.only(left), origin[left])


def _after(
    tree: OrderedTree, before: NodeRows, part: _Part, leaf: Positions, is_changed: Mask
) -> tuple[NodeRows, Positions]:
    """The rows with those that are added, each once, and where each was before."""
    stays = np.flatnonzero(~is_changed[before.nodes])
    goes = np.flatnonzero(is_changed[before.nodes])
    nodes = np.append(before.nodes[goes], leaf)
    rows = stack([take(before.rows, goes), part.rows])
    order = tree.order.sort(nodes, rows)
    is_new = order >= len(goes)
    # Equal rows are side by side now, one that was there before and one that is added.
    pairs = np.flatnonzero((is_new[1:] != is_new[:-1]) & (nodes[order[1:]] == nodes[order[:-1]]))
    equal = rows_equal(take(rows, order[pairs]), take(rows, order[pairs + 1]))
    copies, origin = np.append(before.copies[goes], part.weights), np.append(goes, np.full(len(leaf), NONE))
    old, new = order[pairs[equal]], order[pairs[equal] + 1]
    old, new = np.minimum(old, new), np.maximum(old, new)
    copies[old] += copies[new]
    order = order[~np.isin(order, new)]
    more = tree.nothing_beside(len(leaf))
    changed = NodeRows(
        nodes,
        rows,
        np.zeros(len(nodes), dtype=np.int64),
        copies,
        stack([take(before.more, goes), more]) if tree.more else before.more,
    )
    both, origins = before.only(stays).and_(changed.only(order)), np.append(stays, origin[order])
    by_leaf = np.argsort(both.nodes, kind="stable")
    return both.only(by_leaf), origins[by_leaf]
