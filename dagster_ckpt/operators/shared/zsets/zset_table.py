"""A state table of distinct rows, each with its weight: how often the rows so far have it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.lsm.columns import Mask, Positions, flat, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.table import Found, State, Touched
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


@dataclass(frozen=True)
class Weighed:
    """Distinct rows, what they weigh before a delta and after it, and what the table has of them."""

    rows: ZSet
    found: Found
    before: Positions
    after: Positions


@dataclass(frozen=True)
class ZSetTable:
    """A state table, of whose columns `weights` have the weights: one, or one of each of k inputs, or none of a set.

    A row of weight 0 is not in it. Rows are in any order within an epoch, so there a weight may fall below 0, but not
    at its end. `once`: the weights of inputs whose rows never go and of which only matters whether a row is there; they
    end at 1, so that a row that comes again changes nothing.
    """

    spec: StateTableSpec
    weights: tuple[str, ...]
    once: tuple[bool, ...] = (False,)

    def apply(self, delta: ZSet, state: State, before: Positions | None = None) -> Weighed:
        """Add the distinct rows of a net delta. Raises `CorruptStateError` where more of a row go than there are.

        `before` is what they weigh, where they were read with others; else they are looked up.
        """
        weighed = self.weigh(delta, state, before)
        self.check(weighed.after)
        self.write(weighed, state)
        return weighed

    def add(self, delta: ZSet, state: State) -> Weighed:
        """Add distinct rows of an epoch that may have more: those of one that go may come before those that come."""
        weighed = self.weigh(delta, state)
        self.write(weighed, state)
        return weighed

    def epoch_changes(self, state: State) -> Iterator[Touched]:
        """What the epoch changed, after all its rows. Raises `CorruptStateError` where more of a row went than came."""
        for touched in state.table(self.spec.name).touched_keys():
            self.check(self.weights_of(touched.after))
            yield touched

    def weigh(self, delta: ZSet, state: State, before: Positions | None = None) -> Weighed:
        """What distinct rows weigh with those of a delta, and `before` it, which is looked up unless it is known.

        Nothing is written.
        """
        if before is None:
            found = state.table(self.spec.name).get(delta.hashes, delta.rows.select(list(self.spec.keys)))
            before = self.weights_of(found)
        else:
            is_there = before != 0
            at = np.flatnonzero(is_there)
            found = Found(is_there, self.rows_of(_at(delta.rows, at), before[at]))
        after = before + delta.weights
        if any(self.once):
            after = np.where(np.array(self.once)[:, np.newaxis], np.minimum(after, 1), after).reshape(before.shape)
        return Weighed(delta, found, before, after)

    def write(self, weighed: Weighed, state: State) -> None:
        """Put the rows whose weight is another one now, and delete those without one.

        `weighed.rows` has at least the columns of the table but the weights, in any order.
        """
        found, rows, table = weighed.found, weighed.rows, state.table(self.spec.name)
        columns = rows.rows.select([name for name in self.spec.schema.names if name not in self.weights])
        is_there, is_changed = weighed.after != 0, weighed.before != weighed.after
        if is_there.ndim > 1:
            is_there, is_changed = is_there.any(axis=0), is_changed.any(axis=0)
        put, gone = np.flatnonzero(is_there & is_changed), np.flatnonzero(~is_there & found.present)
        if len(put):
            stored = self.rows_of(_at(columns, put), weighed.after[..., put])
            table.put(rows.hashes[put], stored, before=select(found, put))
        if len(gone):
            table.delete(rows.hashes[gone], take(columns.select(list(self.spec.keys)), gone), select(found, gone))

    def put_all(self, weighed: Weighed, state: State) -> None:
        """Put all rows, those of weight 0 too, which the caller drops at the end of the epoch.

        Within an epoch that costs less than to delete some and put the others.
        """
        rows = self.rows_of(weighed.rows.rows, weighed.after)
        state.table(self.spec.name).put(weighed.rows.hashes, rows, before=weighed.found)

    def check(self, weights: Positions) -> None:
        """Raises `CorruptStateError` where a weight is below 0."""
        below: Mask = weights < 0
        refuse(below if below.ndim == 1 else np.logical_or.reduce(below), self.spec.name)

    def weights_of(self, found: Found) -> Positions:
        """What each of the rows looked up weighs: 0 where nothing was found. With k inputs, a row for each of these."""
        if not self.weights:
            return found.present.astype(np.int64)
        weights = np.zeros((len(self.weights), len(found.present)), dtype=np.int64)
        for of_input, name in zip(weights, self.weights, strict=True):
            of_input[found.present] = flat(found.rows.column(name)).to_numpy()
        return weights if len(weights) > 1 else weights[0]

    def rows_of(self, rows: pa.Table, weights: Positions) -> pa.Table:
        """Rows as the table has them with these weights."""
        of_name = dict(zip(self.weights, np.atleast_2d(weights), strict=False))
        columns = [
            pa.array(of_name[name]) if name in of_name else flat(rows.column(name)) for name in self.spec.schema.names
        ]
        return pa.Table.from_arrays(columns, schema=self.spec.schema)


def refuse(wrong: Mask, table: str) -> None:
    """Raises `CorruptStateError` where more rows of a state table were retracted than added."""
    if wrong.any():
        raise CorruptStateError(
            "rows were retracted that were never added, so the state does not fit its input: rebuild it from the "
            f"beginning with rollback(0). table={table}, rows={np.count_nonzero(wrong)}"
        )


def _at(rows: pa.Table, at: Positions) -> pa.Table:
    """The rows at these ascending positions."""
    return rows if len(at) == rows.num_rows else take(rows, at)
