"""The change log's rows: what a stream's table was before an epoch against what it is now."""

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, rows_equal, take
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators.operator import Changes
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, DELETE, INSERT, UPDATE_POSTIMAGE, UPDATE_PREIMAGE

_KINDS = (INSERT, UPDATE_PREIMAGE, UPDATE_POSTIMAGE, DELETE)
CHANGE_FIELD = pa.field(CHANGE_TYPE, pa.dictionary(pa.int8(), pa.string()), nullable=False)
"""The column that says what a row of the change log is."""


def inserts(rows: pa.Table) -> Changes:
    """Rows that are new, all of them."""
    return _labelled([(INSERT, rows)])


def changes_between(before: Found, after: Found) -> Changes:
    """The net change of n keys: nothing for a key whose row is what it was.

    The images before all updates come first, then those after them in the same order, then new rows, then deleted ones.
    """
    kept = before.present & after.present
    old, new = _where(before, kept), _where(after, kept)
    changed = ~rows_equal(old, new)
    return _labelled(
        [
            (UPDATE_PREIMAGE, _only(old, changed)),
            (UPDATE_POSTIMAGE, _only(new, changed)),
            (INSERT, _where(after, after.present & ~before.present)),
            (DELETE, _where(before, before.present & ~after.present)),
        ]
    )


def _where(found: Found, keys: Mask) -> pa.Table:
    """The rows found for these of the n keys; each of them must have one."""
    return _only(found.rows, keys[found.present])


def _only(rows: pa.Table, wanted: Mask) -> pa.Table:
    return rows if wanted.all() else take(rows, np.flatnonzero(wanted))


def _labelled(parts: list[tuple[str, pa.Table]]) -> Changes:
    parts = [part for part in parts if part[1].num_rows] or parts[:1]
    codes = np.repeat([_KINDS.index(kind) for kind, _ in parts], [rows.num_rows for _, rows in parts]).astype(np.int8)
    kinds = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_KINDS))
    return Changes(pa.concat_tables([rows for _, rows in parts]).append_column(CHANGE_FIELD, kinds))
