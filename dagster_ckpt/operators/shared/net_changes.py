"""The rows of change logs: as an input has them, and as a stream's table makes them, before an epoch and after it."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, equal, flat, flatten, take, to_mask
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_codes
from dagster_ckpt.lsm.table import Found, Touched
from dagster_ckpt.operators.operator import Changes, StreamTable
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

_KINDS = (INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)
CHANGE_FIELD = pa.field(CHANGE_TYPE, pa.dictionary(pa.int8(), pa.string()), nullable=False)
"""The column with the kind of each row of the change log."""


Rows = Callable[[Positions], pa.Table]
"""The rows at these positions."""


def sides_of(rows: pa.Table) -> tuple[Positions, Positions]:
    """Which rows are added, and which are retracted, by `_change_type`; an update is one of each."""
    kinds = flat(rows.column(CHANGE_TYPE)).cast(pa.string())
    come = to_mask(pc.is_in(kinds, pa.array([INSERT, UPDATE_POSTIMAGE])))
    back = to_mask(pc.is_in(kinds, pa.array([UPDATE_PREIMAGE, DELETE])))
    if not (come | back).all():
        other = kinds[int(np.flatnonzero(~(come | back))[0])].as_py()
        raise InvalidPipelineError(
            "unknown change type in the rows of an updating stream: read the upstream's change log as it "
            f"is. column={CHANGE_TYPE}, value={other!r}"
        )
    return np.flatnonzero(come), np.flatnonzero(back)


def signs_of(rows: pa.Table) -> Positions:
    """1 for each row that is added, -1 for each that is retracted; of an input without `_change_type` all are added."""
    signs = np.ones(rows.num_rows, dtype=np.int64)
    if CHANGE_TYPE in rows.column_names:
        signs[sides_of(rows)[1]] = -1
    return signs


def kept_rows(rows: pa.Table, times: Positions, read: pa.Schema) -> pa.Table:
    """Rows of a state table as rows of an input that came: each so many times, with the columns that are `read`."""
    found = take(flatten(rows), np.repeat(np.arange(len(times)), times))
    if CHANGE_TYPE in read.names:
        kinds = pa.array(np.full(found.num_rows, INSERT), pa.string()).cast(read.field(CHANGE_TYPE).type)
        found = found.append_column(CHANGE_TYPE, kinds)
    return found.select(read.names).cast(read)


def inserts(rows: pa.Table) -> Changes:
    """Changes that insert these rows."""
    return Changes(rows.num_rows, partial(label, [(INSERT, rows)]))


def keyed_table(name: str, keys: tuple[str, ...], rows: Callable[[pa.Table], pa.Table]) -> StreamTable:
    """A table of one row for each row of a state table, which `rows` gives; `keys` are the columns of its key."""

    def changes_of(touched: Touched) -> Changes:
        before, after = (Found(side.present, rows(side.rows)) for side in (touched.before, touched.after))
        return changes_between(before, after, keys)

    return StreamTable(name, rows, changes_of)


def table_of_columns(name: str, keys: tuple[str, ...], columns: Sequence[str]) -> StreamTable:
    """A table of the rows of a state table, in these columns."""
    return keyed_table(name, keys, lambda rows: rows.select(list(columns)))


def changes_between(before: Found, after: Found, keys: tuple[str, ...]) -> Changes:
    """The net change of n keys: nothing for a key whose row is unchanged. `keys` are the columns of the key.

    All pre-images come first, then the post-images in the same order, then inserts, then deletes.
    """
    kept = before.present & after.present
    changed = _differ(before, after, kept, keys)
    new, gone = after.present & ~before.present, before.present & ~after.present
    count = 2 * int(np.count_nonzero(changed)) + int(np.count_nonzero(new)) + int(np.count_nonzero(gone))

    def rows() -> pa.Table:
        old, now = (_only(_where(side, kept), changed) for side in (before, after))
        new_rows, gone_rows = _where(after, new), _where(before, gone)
        parts = [(UPDATE_PREIMAGE, old), (UPDATE_POSTIMAGE, now), (INSERT, new_rows), (DELETE, gone_rows)]
        return label(parts)

    return Changes(count, rows)


def net_of(changes: pa.Table, keys: Sequence[str]) -> Changes:
    """The net change of several epochs' changes, in the order of the epochs. `keys` are the columns of the key.

    Within an epoch a key has one change, whose pre-image precedes its post-image. No keys: a table of one row.
    """
    changes = flatten(changes)
    order = key_codes(changes.select(list(keys))) if keys else np.zeros(changes.num_rows, dtype=np.int64)
    by_key = np.argsort(order, kind="stable")
    ordered = order[by_key]
    begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    first, last = by_key[begins], by_key[np.append(begins[1:], len(by_key))[: len(begins)] - 1]
    rows, kinds = changes.drop_columns([CHANGE_TYPE]), changes.column(CHANGE_TYPE)
    sides = list[Found]()
    for at, of_side in ((first, (UPDATE_PREIMAGE, DELETE)), (last, (INSERT, UPDATE_POSTIMAGE))):
        there = to_mask(flat(pc.is_in(kinds, pa.array(of_side))).take(pa.array(at)))
        sides.append(Found(there, take(rows, at[there])))
    return changes_between(sides[0], sides[1], tuple(keys))


def net_of_equal_rows(changes: pa.Table) -> Changes:
    """`net_of` for rows that are known by all their columns, some of which may be equal."""
    kinds = changes.column(CHANGE_TYPE)
    gone, come = (
        changes.filter(pc.is_in(kinds, pa.array(of_side))).drop_columns([CHANGE_TYPE])
        for of_side in ((UPDATE_PREIMAGE, DELETE), (INSERT, UPDATE_POSTIMAGE))
    )
    return difference_of_equal_rows(gone, come)


def difference_of_equal_rows(before: pa.Table, after: pa.Table) -> Changes:
    """The changes from one table to another, where rows may be equal: of each row as many as the counts differ."""
    rows = flatten(pa.concat_tables([before, after]))
    codes = np.unique(key_codes(rows), return_inverse=True)[1] if rows.num_rows else np.zeros(0, dtype=np.int64)
    kinds = int(codes.max(initial=-1)) + 1
    more = np.bincount(codes[before.num_rows :], minlength=kinds) - np.bincount(
        codes[: before.num_rows], minlength=kinds
    )
    example = np.zeros(kinds, dtype=np.int64)
    example[codes] = np.arange(len(codes))

    def of_kinds(at: Positions) -> pa.Table:
        return take(rows, example[at])

    return copies_changed(more, of_kinds, of_kinds)


def copies_of_touched(touched: Touched, more: Positions, columns: Sequence[str]) -> Changes:
    """Row i of those an epoch has written comes `more[i]` times, or goes; in these columns."""

    def of_side(found: Found, at: Positions) -> pa.Table:
        return select(found, at).rows.select(list(columns))

    return copies_changed(more, partial(of_side, touched.after), partial(of_side, touched.before))


def copies_changed(more: Positions, added: Rows, removed: Rows) -> Changes:
    """Inserts, then deletes: row i comes `more[i]` times, or goes so often if that is below 0."""

    def rows() -> pa.Table:
        come, gone = np.flatnonzero(more > 0), np.flatnonzero(more < 0)
        return label(
            [(INSERT, repeat_rows(added(come), more[come])), (DELETE, repeat_rows(removed(gone), -more[gone]))]
        )

    return Changes(int(np.abs(more).sum()), rows)


def repeat_rows(rows: pa.Table, times: Positions) -> pa.Table:
    """Each row so many times."""
    return rows if (times == 1).all() else take(flatten(rows), np.repeat(np.arange(len(times)), times))


def _differ(before: Found, after: Found, kept: Mask, keys: tuple[str, ...]) -> Mask:
    """Which of the kept keys have a different row now."""
    changed = np.zeros(int(np.count_nonzero(kept)), dtype=np.bool_)
    for name in after.rows.column_names:
        if changed.all():
            break  # often after the first column: most epochs change a count of each key they touch
        if name not in keys:
            old, now = (_where(Found(side.present, side.rows.select([name])), kept) for side in (before, after))
            changed |= ~equal(flat(old.column(0)), flat(now.column(0)))
    return changed


def _where(found: Found, keys: Mask) -> pa.Table:
    """The rows found for these of the n keys; each of them must have one."""
    return _only(found.rows, keys[found.present])


def _only(rows: pa.Table, wanted: Mask) -> pa.Table:
    return rows if wanted.all() else take(rows, np.flatnonzero(wanted))


def label(parts: list[tuple[str, pa.Table]]) -> pa.Table:
    """Rows of the change log, from the kind and the rows of each part, at least one."""
    parts = [part for part in parts if part[1].num_rows] or parts[:1]
    codes = np.repeat([_KINDS.index(kind) for kind, _ in parts], [rows.num_rows for _, rows in parts]).astype(np.int8)
    kinds = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_KINDS))
    return pa.concat_tables([rows for _, rows in parts]).append_column(CHANGE_FIELD, kinds)
