"""The order of rows in the output: by key, wherever the engine stores them."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.operators.shared.window_kinds import WINDOW_START
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE, EPOCH


def by_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows in the order of the key; unsorted if one of its columns is missing."""
    order = _order(table, keys)
    return _sort(table, order) if order else table


def by_epoch_and_key(changes: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of a change log, epoch after epoch, in the order of the key; the preimage before the postimage."""
    order = _order(changes, keys)
    # An append-only stream has no key, and its rows have an order already.
    return _sort(changes, [(EPOCH, "ascending"), *order, (CHANGE_TYPE, "descending")]) if order else changes


def _order(table: pa.Table, keys: Sequence[str]) -> list[tuple[str, str]]:
    if not keys or not set(keys) <= set(table.column_names):
        return []
    windows = [WINDOW_START] if WINDOW_START in table.column_names and WINDOW_START not in keys else []
    return [(column, "ascending") for column in (*keys, *windows)]


def _sort(table: pa.Table, order: list[tuple[str, str]]) -> pa.Table:
    # By number: Arrow reads a name that begins with a dot or a bracket as a path.
    columns = {str(number): table.column(name) for number, (name, _) in enumerate(order)}
    directions = [(str(number), direction) for number, (_, direction) in enumerate(order)]
    return table.take(pc.sort_indices(pa.table(columns), sort_keys=directions))
