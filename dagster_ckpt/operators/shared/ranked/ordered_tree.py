"""All rows of each key in their order, so that the rows beside a row are found: a B-tree on a table that finds by hash.

A node's rows are put under the hash of key and node, and found together. A leaf has rows of the user's; an inner node
has an entry for each child, with the row that separates it from the child before. Rows below the first one's are the
first child's all the same. The root is always node 1; other nodes have numbers that are used once in a stream.

A leaf or node that outgrows its limit is split, and one without rows is gone from its parent, but none are merged. The
limits are not part of the state's format. Beside each row are columns of its operator's (`more`): for example, what all
rows before it add up to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, rows_equal, stack, take
from dagster_ckpt.lsm.table import Found, Hashes, StateTable
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.ranked.order_by import RowOrder
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

NODE = "_node"
CHILD = "_child"
"""The node below an entry; 0 for a row of a leaf."""
COPIES = "_copies"
"""How often a row is in the bag; 0 for an entry."""
ADDED = (NODE, CHILD, COPIES)
"""The columns that the table adds."""

ROOT = 1
NONE = -1


@dataclass(frozen=True)
class Partitions:
    """Distinct keys and their hashes."""

    hashes: Hashes
    keys: pa.Table


@dataclass(frozen=True)
class Leaves:
    """Leaves of keys (`groups`), each with the children that separate it from the leaves beside it, or `NONE`.

    `begins` and `ends` have the rows of these entries; they are positions in `bounds`. `paths[depth]` is the node above
    each leaf at that depth, `NONE` from the leaf on.
    """

    groups: Positions
    nodes: Positions
    lower: Positions
    upper: Positions
    begins: Positions
    ends: Positions
    bounds: pa.Table
    paths: Positions

    def only(self, at: Positions) -> "Leaves":
        """The leaves at these positions."""
        columns = (self.groups, self.nodes, self.lower, self.upper, self.begins, self.ends)
        groups, nodes, lower, upper, begins, ends = (each[at] for each in columns)
        return Leaves(groups, nodes, lower, upper, begins, ends, self.bounds, self.paths[:, at])

    def with_(self, other: "Leaves") -> "Leaves":
        """The leaves of both, without a path."""
        groups = np.append(self.groups, other.groups)
        return Leaves(
            groups,
            np.append(self.nodes, other.nodes),
            np.append(self.lower, other.lower),
            np.append(self.upper, other.upper),
            np.append(self.begins, other.begins + self.bounds.num_rows),
            np.append(self.ends, other.ends + self.bounds.num_rows),
            stack([self.bounds, other.bounds]),
            np.full((0, len(groups)), NONE),
        )


@dataclass(frozen=True)
class NodeRows:
    """Rows of nodes: `nodes` are positions in the arrays of nodes at hand."""

    nodes: Positions
    rows: pa.Table
    children: Positions
    copies: Positions
    more: pa.Table

    def only(self, at: Positions) -> "NodeRows":
        """The rows at these positions."""
        rows, more = take(self.rows, at), take(self.more, at)
        return NodeRows(self.nodes[at], rows, self.children[at], self.copies[at], more)

    def and_(self, other: "NodeRows") -> "NodeRows":
        """The rows of both."""
        return NodeRows(
            np.append(self.nodes, other.nodes),
            stack([self.rows, other.rows]),
            np.append(self.children, other.children),
            np.append(self.copies, other.copies),
            stack([self.more, other.more]) if self.more.num_columns else self.more,
        )


@dataclass(frozen=True)
class OrderedTree:
    """The tree below each key. Entries have nulls in the columns `more`."""

    spec: StateTableSpec
    keys: tuple[str, ...]
    order: RowOrder
    more: tuple[str, ...]

    @classmethod
    def of(
        cls,
        name: str,
        keys: Sequence[pa.Field],
        others: Sequence[pa.Field],
        order: RowOrder,
        more: Sequence[pa.Field],
    ) -> "OrderedTree":
        """The tree of rows with these columns."""
        node, child, copies = map(whole_number, ADDED)
        schema = pa.schema([*keys, node, *others, child, copies, *more])
        spec = StateTableSpec(name, schema, tuple(schema.names[: len(keys) + 1 + len(others)]))
        return cls(spec, tuple(field.name for field in keys), order, tuple(field.name for field in more))

    @property
    def others(self) -> list[str]:
        """The columns of a row besides the key's."""
        return [name for name in self.spec.keys[len(self.keys) :] if name != NODE]

    @property
    def node_rows_max(self) -> int:
        """How many rows a node may have. Not a part of the state's format."""
        return 64

    @property
    def node_rows(self) -> int:
        """How many rows the parts of a split node have: nearly as many as fit, for rows that come in their order."""
        return max(2, 3 * self.node_rows_max // 4)

    def read_nodes(self, table: StateTable, all_: Partitions, groups: Positions, nodes: Positions) -> NodeRows:
        """The rows of these distinct nodes, by node and in their order."""
        found = table.get_all(_hashes(all_.hashes[groups], nodes), _prefix(take(all_.keys, groups), nodes))
        rows = flatten(found.rows)
        kept = NodeRows(
            found.asked,
            rows.select(self.others),
            flat(rows.column(CHILD)).to_numpy(),
            flat(rows.column(COPIES)).to_numpy(),
            rows.select(list(self.more)),
        )
        return kept.only(self.order.sort(kept.nodes, kept.rows))

    def locate(
        self, table: StateTable, all_: Partitions, groups: Positions, rows: pa.Table, *, before: bool = False
    ) -> Leaves:
        """The leaf that each row is in or belongs to; with `before`, the one with the rows less than it."""
        count = len(groups)
        nodes = np.full(count, ROOT)
        lower, upper, begins, ends = (np.full(count, NONE) for _ in range(4))
        bounds, at_bounds = [rows.slice(0, 0)], 0
        paths = list[Positions]()
        going = np.arange(count)
        while len(going):
            distinct, of_probe = np.unique(np.stack([groups[going], nodes[going]]), axis=1, return_inverse=True)
            entries = self.read_nodes(table, all_, distinct[0], distinct[1])
            inner = np.zeros(distinct.shape[1], dtype=np.bool_)
            inner[entries.nodes[entries.children > 0]] = True
            goes = inner[of_probe.reshape(-1)]
            going, of_probe = going[goes], of_probe.reshape(-1)[goes]
            if len(going) == 0:
                break
            entries = entries.only(np.flatnonzero(inner[entries.nodes]))
            path = np.full(count, NONE)
            path[going] = nodes[going]
            paths.append(path)
            starts = np.searchsorted(entries.nodes, np.arange(len(inner)))
            stops = np.searchsorted(entries.nodes, np.arange(len(inner)), side="right")
            less = self._entries_before(entries, of_probe, take(rows, going), before=before)
            chosen = starts[of_probe] + np.maximum(less - 1, 0)
            has_lower, has_upper = chosen > starts[of_probe], chosen + 1 < stops[of_probe]
            for side, where, has, at in ((lower, begins, has_lower, chosen), (upper, ends, has_upper, chosen + 1)):
                side[going[has]] = entries.children[at[has]]
                where[going[has]] = at_bounds + at[has]
            nodes[going] = entries.children[chosen]
            bounds.append(entries.rows)
            at_bounds += len(entries.nodes)
        return Leaves(
            groups,
            nodes,
            lower,
            upper,
            begins,
            ends,
            stack(bounds),
            np.array(paths, dtype=np.int64).reshape(len(paths), count),
        )

    def _entries_before(self, entries: NodeRows, of_probe: Positions, probes: pa.Table, *, before: bool) -> Positions:
        """How many entries of its node come before each probe; one that equals it does, unless `before`."""
        sides = [(entries.nodes, entries.rows), (of_probe, probes)]
        if before:
            sides.reverse()
        order = self.order.sort(np.concatenate([nodes for nodes, _ in sides]), stack([rows for _, rows in sides]))
        first = len(of_probe) if before else 0
        is_entry = (order >= first) & (order < first + len(entries.nodes))
        seen = np.empty(len(order), dtype=np.int64)
        seen[order] = np.cumsum(is_entry)
        mine = seen[: len(of_probe)] if before else seen[len(entries.nodes) :]
        counted: Positions = mine - np.searchsorted(entries.nodes, of_probe)
        return counted

    def leaves_from(
        self, table: StateTable, all_: Partitions, groups: Positions, rows: pa.Table | None
    ) -> tuple[Positions, Positions]:
        """Distinct keys' leaves in order, from the one of a row on, or all of them: their groups and nodes."""
        group, node = groups, np.full(len(groups), ROOT)
        is_first = np.full(len(groups), rows is not None)
        probes = np.arange(len(groups))
        done = list[tuple[Positions, Positions]]()
        while len(node):
            entries = self.read_nodes(table, all_, group, node)
            inner = np.zeros(len(node), dtype=np.bool_)
            inner[entries.nodes[entries.children > 0]] = True
            done.append((group[~inner], node[~inner]))
            entries = entries.only(np.flatnonzero(inner[entries.nodes]))
            starts = np.searchsorted(entries.nodes, np.arange(len(node)))
            least = starts.copy()
            first = np.flatnonzero(is_first & inner)
            if len(first):
                assert rows is not None
                less = self._entries_before(entries, first, take(rows, probes[first]), before=False)
                least[first] = starts[first] + np.maximum(less - 1, 0)
            keeps = np.flatnonzero(np.arange(len(entries.nodes)) >= least[entries.nodes])
            above = entries.nodes[keeps]
            is_first = is_first[above] & (keeps == least[above])
            group, node, probes = group[above], entries.children[keeps], probes[above]
        of_all = np.concatenate([groups_ for groups_, _ in done] or [groups])
        nodes = np.concatenate([nodes_ for _, nodes_ in done] or [groups])
        by_group = np.argsort(of_all, kind="stable")  # all leaves of a key have one depth
        return of_all[by_group], nodes[by_group]

    def write(
        self,
        table: StateTable,
        all_: Partitions,
        leaves: "Written",
        before: NodeRows,
        after: NodeRows,
        origin: Positions,
        context: EpochContext,
    ) -> None:
        """Replace the rows of leaves. Those of `after` are in their order; `origin` is each one's place in `before`."""
        entries = self._store(table, all_, leaves, before, after, origin, context)
        emptied = leaves.is_changed & (np.bincount(after.nodes, minlength=len(leaves.nodes)) == 0)
        depths, paths = leaves.depths, leaves.paths
        above = _Above(entries.nodes, entries.rows, entries.children, np.flatnonzero(emptied))
        groups, nodes = leaves.groups, leaves.nodes
        for depth in range(int(depths.max(initial=0)) - 1, -1, -1):
            # Entries of the nodes at this depth: new ones, and those of children without rows.
            mine = np.flatnonzero(depths == depth + 1)
            is_mine = np.zeros(len(nodes), dtype=np.bool_)
            is_mine[np.intersect1d(mine, np.concatenate([above.of_new, above.emptied]))] = True
            changed = np.flatnonzero(is_mine)
            if len(changed) == 0:
                continue
            parents, first, of_child = np.unique(
                np.stack([groups[changed], paths[depth, changed]]), axis=1, return_index=True, return_inverse=True
            )
            parent_of = np.full(len(nodes), NONE)
            parent_of[changed] = of_child.reshape(-1)
            old = self.read_nodes(table, all_, parents[0], parents[1])
            new_at = np.flatnonzero(is_mine[above.of_new])
            gone = above.emptied[is_mine[above.emptied]]
            is_gone = np.isin(old.children, nodes[gone])  # a number is used once in a stream
            kept = np.flatnonzero(~is_gone)
            more = self._entries(parent_of[above.of_new[new_at]], take(above.rows, new_at), above.children[new_at])
            now, from_ = old.only(kept).and_(more), np.append(kept, np.full(len(new_at), NONE))
            order = self.order.sort(now.nodes, now.rows)
            # A node that was split has two entries now. The lesser row is right: no other entry can have it.
            order = order[np.sort(np.unique(now.children[order], return_index=True)[1])]
            written = Written(
                parents[0],
                parents[1],
                np.full(parents.shape[1], depth),
                paths[:depth, changed[first]],
                np.ones(parents.shape[1], dtype=np.bool_),
            )
            entries = self._store(table, all_, written, old, now.only(order), from_[order], context)
            emptied = np.flatnonzero(np.bincount(now.nodes, minlength=parents.shape[1]) == 0)
            # The nodes of this depth join those that are left, which lie higher.
            base = len(nodes)
            groups, nodes = np.append(groups, parents[0]), np.append(nodes, parents[1])
            depths = np.append(depths, written.depths)
            wider = np.full((len(paths), parents.shape[1]), NONE)
            wider[:depth] = written.paths
            paths = np.concatenate([paths, wider], axis=1)
            left = np.flatnonzero(~is_mine[above.of_new])
            above = _Above(
                np.append(above.of_new[left], entries.nodes + base),
                stack([take(above.rows, left), entries.rows]),
                np.append(above.children[left], entries.children),
                np.append(above.emptied[~is_mine[above.emptied]], emptied + base),
            )

    def _store(
        self,
        table: StateTable,
        all_: Partitions,
        into: "Written",
        before: NodeRows,
        after: NodeRows,
        origin: Positions,
        context: EpochContext,
    ) -> NodeRows:
        """Write the rows of nodes, in parts where they are too many; returns the entries that these parts need above.

        The parts of a root are below it, so it needs none.
        """
        counts = np.bincount(after.nodes, minlength=len(into.nodes))
        splits = into.is_changed & (counts > self.node_rows_max)
        is_root = into.nodes == ROOT
        places = np.arange(len(after.nodes)) - (np.cumsum(counts) - counts)[after.nodes]
        part = np.where(splits[after.nodes], places // self.node_rows, 0)
        in_new = splits[after.nodes] & ((part > 0) | is_root[after.nodes])
        begins = splits[after.nodes] & (places % self.node_rows == 0)
        fresh = context.row_numbers(int(np.count_nonzero(begins & in_new))).to_numpy()
        named = into.nodes[after.nodes]
        named[in_new] = fresh[(np.cumsum(begins & in_new) - 1)[in_new]]
        self._replace(table, all_, into, before, after, origin, named)
        at = np.flatnonzero(begins)
        entries = self._entries(after.nodes[at], take(after.rows, at), named[at])
        of_root = np.flatnonzero(is_root[entries.nodes])
        if len(of_root) == 0:
            return entries
        roots = entries.only(of_root)
        self._store(table, all_, into, roots.only(of_root[:0]), roots, np.full(len(of_root), NONE), context)
        return entries.only(np.flatnonzero(~is_root[entries.nodes]))

    def _replace(
        self,
        table: StateTable,
        all_: Partitions,
        into: "Written",
        before: NodeRows,
        after: NodeRows,
        origin: Positions,
        named: Positions,
    ) -> None:
        """Put the rows of `after` into the nodes of these numbers, where they are not there already."""
        stays = (origin != NONE) & (named == into.nodes[after.nodes])
        goes = np.ones(len(before.nodes), dtype=np.bool_)
        goes[origin[stays]] = False
        gone = np.flatnonzero(goes)
        if len(gone):
            hashes, rows = self._state_rows(all_, into, before.only(gone), into.nodes[before.nodes[gone]])
            were = Found(np.ones(len(gone), dtype=np.bool_), rows)
            table.delete(hashes, rows.select(list(self.spec.keys)), were)
        is_new = ~stays
        at = np.flatnonzero(stays)
        same = (after.copies[at] == before.copies[origin[at]]) & (after.children[at] == before.children[origin[at]])
        if self.more:
            same &= rows_equal(take(after.more, at), take(before.more, origin[at]))
        is_new[at[~same]] = True
        put = np.flatnonzero(is_new)
        if len(put):
            hashes, rows = self._state_rows(all_, into, after.only(put), named[put])
            had = before.only(origin[put[stays[put]]])
            table.put(hashes, rows, Found(stays[put], self._state_rows(all_, into, had, into.nodes[had.nodes])[1]))

    def _state_rows(
        self, all_: Partitions, into: "Written", rows: NodeRows, nodes: Positions
    ) -> tuple[Hashes, pa.Table]:
        """The rows as the table has them in nodes of these numbers, and the hashes that they are put under."""
        groups = into.groups[rows.nodes]
        columns = [*_prefix(take(all_.keys, groups), nodes).columns, *rows.rows.columns]
        columns += [pa.array(rows.children), pa.array(rows.copies), *rows.more.columns]
        return _hashes(all_.hashes[groups], nodes), pa.Table.from_arrays(columns, schema=self.spec.schema)

    def _entries(self, nodes: Positions, rows: pa.Table, children: Positions) -> NodeRows:
        return NodeRows(nodes, rows, children, np.zeros(len(nodes), dtype=np.int64), self.nothing_beside(len(nodes)))

    def nothing_beside(self, count: int) -> pa.Table:
        """Nulls in the columns `more`."""
        schema = pa.schema([self.spec.schema.field(name) for name in self.more])
        return pa.Table.from_arrays([pa.nulls(count, field.type) for field in schema], schema=schema)


@dataclass(frozen=True)
class Written:
    """Nodes to write: those that `is_changed` have other rows than before, and a path of this depth."""

    groups: Positions
    nodes: Positions
    depths: Positions
    paths: Positions
    is_changed: Mask


@dataclass(frozen=True)
class _Above:
    """What a level's changes mean for the level above: entries next to `of_new` to add, and emptied nodes to remove."""

    of_new: Positions
    rows: pa.Table
    children: Positions
    emptied: Positions


def _hashes(hashes: Hashes, nodes: Positions) -> Hashes:
    """The hashes of nodes below keys with these hashes: a node's rows are put under its own."""
    return subkey_hashes(hashes, [pa.array(nodes)])


def _prefix(keys: pa.Table, nodes: Positions) -> pa.Table:
    return keys.append_column(whole_number(NODE), pa.array(nodes))
