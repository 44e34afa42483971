"""Retraction: exact aggregates over an upstream table that updates and deletes rows.

The state of counts and totals can be negated: retracted rows are added with the opposite sign. The rows of an epoch
arrive in any order, so a count may fall below 0 within an epoch, but not at its end.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.lsm.columns import Mask, flat, take, to_mask
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.shared.arrays import exact_numbers
from dagster_ckpt.operators.shared.arrays.exact_numbers import EXACT
from dagster_ckpt.operators.shared.arrays.lists import lengths
from dagster_ckpt.operators.shared.state_columns import ROWS
from dagster_ckpt.operators.shared.zsets.zset_table import refuse
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


def negate(kept: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """The state of retracted rows from the state that these rows would add: counts and totals."""
    try:
        return {name: _negate_column(column) for name, column in kept.items()}
    except pa.ArrowInvalid as error:
        raise OverflowError(
            f"a total outgrew its type: cast the column to a wider decimal before it is summed. columns={list(kept)}"
        ) from error


def drop_emptied(
    spec: StateTableSpec, state: State, counts: Sequence[str], totals: Sequence[str], *, stays: bool = False
) -> None:
    """Delete the keys that have no rows left, unless a key `stays`. Call once in an epoch, after all its rows.

    `counts` are the counts of values, `totals` the other columns that are 0 without rows. Raises `CorruptStateError` if
    more rows were retracted than added.
    """
    table, emptied = state.table(spec.name), list[tuple[Hashes, pa.Table]]()
    for touched in table.touched_keys():
        rows = touched.after.rows
        left = flat(rows.column(ROWS)).to_numpy()
        wrong = left < 0
        for name in counts:
            count = flat(rows.column(name)).to_numpy()
            wrong |= (count < 0) | (count > left)
        for name in totals:
            wrong |= (left == 0) & _is_not_zero(flat(rows.column(name)))
        refuse(wrong, spec.name)
        if stays:
            continue
        gone = np.flatnonzero(left == 0)
        emptied.append((touched.hashes[touched.after.present][gone], take(rows.select(list(spec.keys)), gone)))
    for hashes, gone_keys in emptied:
        if len(hashes):
            table.delete(hashes, gone_keys)


def _negate_column(column: pa.Array) -> pa.Array:
    if column.type == EXACT:
        return exact_numbers.negate(column)
    return column if pa.types.is_temporal(column.type) else pc.negate_checked(column)


def _is_not_zero(column: pa.Array) -> Mask:
    if column.type == EXACT:
        return lengths(column) > 0
    return to_mask(pc.not_equal(column, pa.scalar(0, column.type)))
