"""A tree by hash below each key: every node knows the best rows beneath it.

A state table finds rows by hash alone, so the order must come from the structure. A row is in a leaf: the node that the
first digits of the row's hash, its path, lead to. An inner node has 16 children and keeps the best `count` rows of
each, so the root knows the best of all. A change reads its leaf and the nodes above, and each of them has a bounded
number of rows. A leaf that grows beyond that becomes an inner node; a key with few rows has one leaf, the root.

    root (inner)     best 3 of child 0, ..., best 3 of child 15
    |- child 0       (leaf) at most 64 rows
    |- ...
    |- child 15      (inner) best 3 of its child 0, ..., best 3 of its child 15
       |- ...

Nodes are numbered from the root, 1; the children of node x are 16x to 16x + 15. A node's rows are put under the hash of
key and node, and found together. A node without rows does not exist. An inner node stays one until it has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, stack, take, to_mask
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.lsm.value_hashes import value_hashes
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

NODE = "_node"
PATH = "_path"
COPIES = "_copies"
"""How often a row is in the bag."""
INNER = "_inner"
"""Whether the row's node is an inner one; the same for all rows of a node."""
ADDED = (NODE, PATH, COPIES, INNER)
"""The columns that the table adds."""

_ROOT = 1
_DIGIT_BITS = 4
_CHILDREN = 1 << _DIGIT_BITS
_DEPTH_MAX = 15
"""The depth at which all digits are used: a leaf there grows without bound. Only rows of one hash meet there."""
_LEAF_ROWS_MIN = 64


@dataclass(frozen=True)
class RankedRows:
    """Rows of nodes: `nodes` are positions in the arrays of nodes at hand. All rows of a node are distinct.

    As the best rows of keys: key after key, the best row first.
    """

    nodes: Positions
    paths: Hashes
    copies: Positions
    rows: pa.Table

    def only(self, positions: Positions) -> "RankedRows":
        """The rows at these positions."""
        rows = take(self.rows, positions)
        return RankedRows(self.nodes[positions], self.paths[positions], self.copies[positions], rows)

    def digits(self, depth: int) -> Positions:
        """The child, from 0 to 15, in which each row is if its node is of this depth."""
        return digits(self.paths, depth)


@dataclass(frozen=True)
class TreeUpdate:
    """What some rows (`part`) change: the keys' best rows before and after, and how many bytes were read for it."""

    hashes: Hashes
    keys: pa.Table
    part: RankedRows
    before: RankedRows
    after: RankedRows
    bytes_read: int


@dataclass(frozen=True)
class _Nodes:
    """Distinct nodes of one depth: their hashes, keys and numbers (`prefix`), and the positions of their parents."""

    hashes: Hashes
    prefix: pa.Table
    groups: Positions
    numbers: Positions
    parents: Positions


@dataclass(frozen=True)
class _Level:
    """The nodes of one depth, the rows of the leaves as they are now, and of inner nodes as they were."""

    depth: int
    nodes: _Nodes
    leaves: RankedRows
    inner: RankedRows


@dataclass(frozen=True)
class _Net:
    """Distinct rows of nodes, how often each was there, and how often it is now."""

    rows: RankedRows
    had: Positions


@dataclass(frozen=True)
class RankTree:
    """The tree below each key. With `trims` it has a root alone, with the best rows of the key: no row is retracted."""

    spec: StateTableSpec
    keys: tuple[str, ...]
    order: RowOrder
    count: int
    trims: bool

    @property
    def others(self) -> list[str]:
        """The columns of a row besides the key's."""
        return [name for name in self.spec.keys[len(self.keys) :] if name != NODE]

    def update(self, weighted: ZSet, state: State) -> TreeUpdate:
        """Add rows, or retract those with a negative weight. At least one row."""
        keys = flatten(weighted.rows.select(list(self.keys)))
        distinct = key_order(weighted.hashes, keys)
        firsts = distinct.order[distinct.starts]
        groups = np.empty(len(weighted.hashes), dtype=np.int64)
        groups[distinct.order] = np.repeat(np.arange(len(firsts)), distinct.sizes)
        hashes, keys = weighted.hashes[firsts], take(keys, firsts)
        rows = flatten(weighted.rows.select(self.others))
        roots = _Nodes(
            hashes=_node_hashes(hashes, np.full(len(firsts), _ROOT)),
            prefix=_with_node(keys, np.full(len(firsts), _ROOT)),
            groups=np.arange(len(firsts)),
            numbers=np.full(len(firsts), _ROOT),
            parents=np.zeros(len(firsts), dtype=np.int64),
        )
        more = RankedRows(groups, value_hashes(rows.columns, weighted.hashes), weighted.weights, rows)
        return self._update(state, hashes, keys, roots, more)

    def _update(self, state: State, hashes: Hashes, keys: pa.Table, nodes: _Nodes, more: RankedRows) -> TreeUpdate:
        levels, bytes_read, before, part = list[_Level](), 0, None, more
        while len(more.nodes):
            depth = len(levels)
            found, is_inner = self._read(state, nodes)
            bytes_read += found.rows.nbytes + more.rows.nbytes
            if before is None:
                before = self._best(found)
            level, below = self._descend(state, depth, nodes, found, is_inner, more)
            levels.append(level)
            nodes, more = _children(level, below, hashes, keys)
        assert before is not None, "there is a row"
        after: RankedRows | None = None
        lower: _Nodes | None = None
        for level in reversed(levels):
            after = self._best(level.leaves if lower is None else self._ascend(state, level, lower, after))
            lower = level.nodes
        assert after is not None, "there is a level"
        return TreeUpdate(hashes, keys, part, before, after, bytes_read)

    def _read(self, state: State, nodes: _Nodes) -> tuple[RankedRows, Mask]:
        """The rows of the nodes, and which of the nodes are inner ones."""
        found = state.table(self.spec.name).get_all(nodes.hashes, nodes.prefix)
        paths, copies = (flat(found.rows.column(name)).to_numpy() for name in (PATH, COPIES))
        is_inner = np.zeros(len(nodes.hashes), dtype=np.bool_)
        is_inner[found.asked[to_mask(flat(found.rows.column(INNER)))]] = True
        return RankedRows(found.asked, paths.view(np.uint64), copies, found.rows.select(self.others)), is_inner

    def _descend(
        self, state: State, depth: int, nodes: _Nodes, found: RankedRows, is_inner: Mask, more: RankedRows
    ) -> tuple[_Level, RankedRows]:
        """Add rows to the leaves of one depth. Also returns the rows to add below, with the nodes above them."""
        leaf, at_leaf = (np.flatnonzero(~is_inner[each.nodes]) for each in (found, more))
        net = _net(found.only(leaf), more.only(at_leaf))
        self.table.check(net.rows.copies)
        if self.trims:
            net = self._trim(net)
        there = net.rows.only(np.flatnonzero(net.rows.copies > 0))
        splits = np.bincount(there.nodes, minlength=len(is_inner)) > self.leaf_rows_max
        if depth == _DEPTH_MAX or self.trims:
            splits[:] = False
        keeps = ~splits[net.rows.nodes] & (net.rows.copies > 0)
        self._write(state, nodes, net, np.where(keeps, net.rows.copies, 0), inner=False)
        going = splits[there.nodes]
        inner = found.only(np.flatnonzero(is_inner[found.nodes]))
        below = _together([more.only(np.flatnonzero(is_inner[more.nodes])), there.only(np.flatnonzero(going))])
        return _Level(depth, nodes, there.only(np.flatnonzero(~going)), inner), below

    def _ascend(self, state: State, level: _Level, children: _Nodes, best: RankedRows | None) -> RankedRows:
        """Replace what inner nodes have of these children by the children's best rows.

        Returns all rows that the level's nodes have now.
        """
        assert best is not None, "children have been processed"
        mine = children.parents * _CHILDREN + (children.numbers & (_CHILDREN - 1))
        replaced = np.isin(level.inner.nodes * _CHILDREN + level.inner.digits(level.depth), mine)
        old = level.inner.only(np.flatnonzero(replaced))
        new = RankedRows(children.parents[best.nodes], best.paths, best.copies, best.rows)
        net = _net(RankedRows(old.nodes, old.paths, np.zeros_like(old.copies), old.rows), new, had=old.copies)
        self._write(state, level.nodes, net, net.rows.copies, inner=True)
        return _together([level.leaves, level.inner.only(np.flatnonzero(~replaced)), new])

    @property
    def leaf_rows_max(self) -> int:
        """How many rows a leaf may have. Not a part of the state's format: each node has it that it is an inner one."""
        return max(_LEAF_ROWS_MIN, _CHILDREN * self.count)

    def _best(self, kept: RankedRows) -> RankedRows:
        """The best rows of each node, in their order, the nodes ascending."""
        return kept.only(self._best_at(kept))

    def _best_at(self, kept: RankedRows) -> Positions:
        order = self.order.sort(kept.nodes, kept.rows)
        nodes = kept.nodes[order]
        starts = np.flatnonzero(np.diff(nodes, prepend=-1))
        places = np.arange(len(nodes)) - np.repeat(starts, np.diff(starts, append=len(nodes)))
        return order[places < self.count]

    def _trim(self, net: _Net) -> _Net:
        """Rows that are not among the best of their node are gone."""
        best = self._best_at(net.rows)
        copies = np.zeros_like(net.rows.copies)
        copies[best] = net.rows.copies[best]
        return _Net(replace(net.rows, copies=copies), net.had)

    def _write(self, state: State, nodes: _Nodes, net: _Net, copies: Positions, *, inner: bool) -> None:
        """Write the rows of nodes whose number of `copies` has changed."""
        at = np.flatnonzero(copies != net.had)
        if len(at) == 0:
            return
        rows, had = net.rows.only(at), net.had[at]
        columns = [*take(nodes.prefix, rows.nodes).columns, *rows.rows.columns, pa.array(rows.paths.view(np.int64))]
        names = [name for name in self.spec.schema.names if name != COPIES]
        table = pa.Table.from_arrays([*columns, pa.array(np.full(len(at), inner))], names=names)
        self.table.apply(ZSet(nodes.hashes[rows.nodes], table, copies[at] - had), state, had)

    @property
    def table(self) -> ZSetTable:
        """Its state table."""
        return ZSetTable(self.spec, (COPIES,))


def tree_spec(name: str, keys: Sequence[pa.Field], others: Sequence[pa.Field]) -> StateTableSpec:
    """The state table of a tree of rows with these columns."""
    node, path, copies = map(whole_number, (NODE, PATH, COPIES))
    schema = pa.schema([*keys, node, *others, path, copies, pa.field(INNER, pa.bool_(), nullable=False)])
    return StateTableSpec(name, schema, tuple(schema.names[: len(keys) + 1 + len(others)]))


def digits(paths: Hashes, depth: int) -> Positions:
    """The digit of each path that leads from a node of this depth to its child."""
    shift = np.uint64(64 - _DIGIT_BITS * (depth + 1))
    return ((paths >> shift) & np.uint64(_CHILDREN - 1)).astype(np.int64)


def _children(level: _Level, below: RankedRows, hashes: Hashes, keys: pa.Table) -> tuple[_Nodes, RankedRows]:
    """The distinct nodes of the next depth that these rows belong to, and the rows with the nodes they belong to.

    `hashes` and `keys` are those of the groups.
    """
    numbers = level.nodes.numbers[below.nodes] * _CHILDREN + below.digits(level.depth)
    # The nodes of a level ascend by group and number, so a parent and a digit are a child.
    child, first, of_row = np.unique(
        below.nodes * _CHILDREN + below.digits(level.depth), return_index=True, return_inverse=True
    )
    parents = child // _CHILDREN
    groups, numbers = level.nodes.groups[parents], numbers[first]
    nodes = _Nodes(
        _node_hashes(hashes[groups], numbers), _with_node(take(keys, groups), numbers), groups, numbers, parents
    )
    return nodes, RankedRows(of_row, below.paths, below.copies, below.rows)


def _net(old: RankedRows, new: RankedRows, had: Positions | None = None) -> _Net:
    """The rows of both, each once, with the sum of its copies. `had`: how often those of `old` were there."""
    both = _together([old, new])
    had = np.append(old.copies if had is None else had, np.zeros(len(new.nodes), dtype=np.int64))
    # Equal rows of a node have one path. Nodes are compared too: those of several keys may have equal rows and paths.
    columns = pa.Table.from_arrays(
        [pa.array(both.nodes), *both.rows.columns], names=list(map(str, range(1 + both.rows.num_columns)))
    )
    groups = key_order(both.paths, columns)
    if len(groups.starts) == 0:
        return _Net(both, had)
    copies, had = (np.add.reduceat(each[groups.order], groups.starts) for each in (both.copies, had))
    return _Net(replace(both.only(groups.order[groups.starts]), copies=copies), had)


def _together(parts: Sequence[RankedRows]) -> RankedRows:
    return RankedRows(
        np.concatenate([part.nodes for part in parts]),
        np.concatenate([part.paths for part in parts]),
        np.concatenate([part.copies for part in parts]),
        stack([part.rows for part in parts]),
    )


def _node_hashes(hashes: Hashes, numbers: Positions) -> Hashes:
    """The hashes of nodes below keys with these hashes: a node's rows are put under its own."""
    return subkey_hashes(hashes, [pa.array(numbers)])


def _with_node(keys: pa.Table, numbers: Positions) -> pa.Table:
    return keys.append_column(whole_number(NODE), pa.array(numbers))
