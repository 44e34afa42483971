"""The changes of an epoch to keys, before and after they are written: their rows now, and before the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.lsm.columns import Positions, flat, stack, take, take_array, to_mask
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.runs.run import Run, build_run, filter_run, joined_tombstones
from dagster_ckpt.lsm.stored_columns import stand_in, widen
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
        return self.run.nbytes + _found_bytes(self.before)


def merge_deltas(deltas: Sequence[Delta], keys: Sequence[str]) -> Delta:
    """Several deltas, newest first, as one: of each key the newest row and the oldest before.

    At least one delta. `before` is known if all of them have it.
    """
    if len(deltas) == 1:
        return deltas[0]
    run, groups = newest_rows([delta.run for delta in deltas], keys)
    befores = [delta.before for delta in deltas if delta.before is not None]
    if len(befores) < len(deltas):
        return Delta(run)
    oldest = groups.order[np.append(groups.starts[1:], len(groups.order)) - 1]
    before = Found(np.concatenate([each.present for each in befores]), stack([each.rows for each in befores]))
    return Delta(run, select(before, oldest))


def newest_rows(runs: Sequence[Run], keys: Sequence[str]) -> tuple[Run, KeyOrder]:
    """All keys of several runs, newest run first, each with its newest row or tombstone; and the order of all rows."""
    hashes = np.concatenate([run.hashes for run in runs])
    rows = stack([run.columns() for run in runs])
    groups = key_order(hashes, rows.select(list(keys)))
    newest = groups.order[groups.starts]
    tombstones = joined_tombstones(runs)
    return build_run(hashes[newest], take(rows, newest), None if tombstones is None else tombstones[newest]), groups


def select(found: Found, asked: Positions) -> Found:
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
    return Touched(delta.run.hashes, delta.before, rows_now(delta.run))


def rows_now(run: Run) -> Found:
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
    return Delta(piece, read_before_images(piece, spec.keys, spec.schema))


def _places(run: Run, part: HashRange) -> tuple[int, int]:
    if run.guard is not None:  # the file may be remote: read only the hashes near the two places
        return run.first_not_less(part.lo), run.first_not_less(part.hi + 1)
    start = int(np.searchsorted(run.hashes, np.uint64(part.lo), side="left"))
    return start, int(np.searchsorted(run.hashes, np.uint64(part.hi), side="right"))


def _found_bytes(found: Found | None) -> int:
    return 0 if found is None else int(found.rows.nbytes)


def with_before_images(run: Run, before: Found, keys: Sequence[str]) -> Run:
    """The run with the rows of its keys before the epoch; `before` has them in the order of the run's rows."""
    values = [name for name in before.rows.column_names if name not in keys]
    # Row numbers in `before.rows`, which has no row for an absent key; there any number will do, since it is masked.
    at = pa.array(np.cumsum(before.present) - 1, mask=~before.present)
    columns = [flat(before.rows.column(name)).take(at) for name in values]
    fields = [before.rows.schema.field(name).with_nullable(True) for name in values]
    absent = pa.array(~before.present)
    if not values:  # else Arrow would not know how many rows there are
        bits = pa.array(before.present).buffers()[1]
        return replace(run, before_column=pa.Array.from_buffers(pa.struct([]), len(run), [bits]))
    return replace(run, before_column=pa.StructArray.from_arrays(columns, fields=fields, mask=absent))


def read_before_images(run: Run, keys: Sequence[str], schema: pa.Schema) -> Found:
    """The rows that the keys of a logged run had before its epoch, in the run's order. `schema` is the table's."""
    assert run.before is not None, "the run is not a logged one"
    present = to_mask(run.before.is_valid())
    at = np.flatnonzero(present)
    there = take(run.columns(keys), at)
    before = run.before
    known = {field.name: before.field(field.name) for field in before.type}

    def image(field: pa.Field) -> pa.Array:
        # A file that is older than a column does not have it.
        stored = known[field.name] if field.name in known else stand_in(field.name, known, len(before))
        return widen(take_array(stored, at), field.type)

    columns = [flat(there.column(field.name)) if field.name in keys else image(field) for field in schema]
    return Found(present, pa.Table.from_arrays(columns, schema=schema))
