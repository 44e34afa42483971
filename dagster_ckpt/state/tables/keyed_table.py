"""A keyed state table as operators use it: arrays in any order, of any of the task's shards."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flatten, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.runs.run import run_of, tombstones_of
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes, Touched
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec
from dagster_ckpt.state.tables.sorted_table import SortedTable


class KeyedTable:
    """Implements `lsm.table.StateTable`."""

    def __init__(self, spec: StateTableSpec, rows: SortedTable) -> None:
        self._spec = spec
        self._rows = rows

    def get(self, hashes: Hashes, keys: pa.Table) -> Found:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get(hashes, flatten(keys))
        found = self._rows.get(hashes[order], take(keys, order))
        present = np.empty_like(found.present)
        present[order] = found.present
        # Row j belongs to the j-th present key by hash: bring the rows into the order of the request.
        asked = order[found.present]
        return Found(present, take(found.rows, np.argsort(asked)))

    def get_all(self, hashes: Hashes, keys: pa.Table) -> FoundAll:
        order = ascending_order(hashes)
        if order is None:
            return self._rows.get_all(hashes, flatten(keys))
        found = self._rows.get_all(hashes[order], take(keys, order))
        asked = order[found.asked]
        back = np.argsort(asked, kind="stable")
        return FoundAll(asked[back], take(found.rows, back))

    def put(self, hashes: Hashes, rows: pa.Table, before: Found | None = None) -> None:
        assert rows.schema.equals(self._spec.schema), f"the rows have other columns. table={self._spec.name}"
        assert self._spec.time is None or rows.column(self._spec.time).null_count == 0, "every row needs a time"
        self._rows.stage(run_of(hashes, rows), _by_hash(before, hashes))

    def delete(self, hashes: Hashes, keys: pa.Table, before: Found | None = None) -> None:
        self._rows.stage(tombstones_of(hashes, keys, self._spec.schema), _by_hash(before, hashes))

    def expire(self, until_us: int) -> None:
        assert self._spec.time is not None, f"the table has no time column. table={self._spec.name}"
        self._rows.expire(until_us)

    def touched(self) -> Iterator[Touched]:
        return self._rows.touched()


def _by_hash(found: Found | None, hashes: Hashes) -> Found | None:
    """The answer in the order of the run that is made of these keys."""
    if found is None:
        return None
    assert len(found.present) == len(hashes), "the rows before are those of just these keys"
    order = ascending_order(hashes)
    return found if order is None else chosen(found, order)


def ascending_order(hashes: Hashes) -> Positions | None:
    """The positions of the hashes, least first; None where they are in that order."""
    if len(hashes) < 2 or (hashes[1:] >= hashes[:-1]).all():
        return None
    order: Positions = np.lexsort((hashes,))
    return order
