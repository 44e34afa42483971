"""Multi-get: the newest delta of each key, newest run first; only keys not yet found are searched in the next run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, stack, take
from dagster_ckpt.lsm.lookup.layer_search import find, probe_of
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found, Hashes


@dataclass(frozen=True)
class AnswerPart:
    """Some rows of an answer: those of the keys at `queries`, without the key columns, which the caller has."""

    queries: Positions
    values: pa.Table


@dataclass(frozen=True)
class Answer:
    """The result of a search for n keys: the parts, and the positions of the keys that no run has."""

    parts: list[AnswerPart]
    unknown: Positions


def look_up(upper: Sequence[View], bottom: Sequence[View], hashes: Hashes, keys: pa.Table, schema: pa.Schema) -> Answer:
    """Search n distinct keys, ascending by hash, in the upper views, newest first, then in those of the bottom.

    The bottom views are disjoint and ascend. A tombstone or an expired row ends the search: the key has no row.
    """
    keys = flatten(keys)
    values = values_of(schema, keys.column_names)
    still_asked = np.ones(len(hashes), dtype=np.bool_)
    unknown = np.arange(len(hashes))
    parts = []
    for layer in (*([view] for view in upper), bottom):
        if len(unknown) == 0:
            break
        probe = probe_of(layer, hashes, unknown)
        match = find(probe, hashes, keys) if len(probe) else None
        if match is None or len(match.at) == 0:
            continue
        still_asked[match.probe.queries] = False
        unknown = np.flatnonzero(still_asked)
        match = match.there()
        if len(match.at):
            columns = match.probe.columns_at(values, match.at)
            parts.append(AnswerPart(match.probe.queries, pa.table(columns, names=values)))
    return Answer(parts, unknown)


def find_rows(parts: Sequence[AnswerPart], keys: pa.Table, schema: pa.Schema) -> Found:
    """The found rows of n keys, in the order of the keys."""
    present = np.zeros(keys.num_rows, dtype=np.bool_)
    for part in parts:
        present[part.queries] = True
    there = keys if present.all() else take(keys, np.flatnonzero(present))
    values = _in_order(parts, present, schema, keys.column_names)
    of_key = set(there.column_names)
    columns = [flat((there if field.name in of_key else values).column(field.name)) for field in schema]
    return Found(present, pa.Table.from_arrays(columns, schema=schema))


def values_of(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """The columns that are not part of the key."""
    return [name for name in schema.names if name not in keys]


def _in_order(
    parts: Sequence[AnswerPart], present: np.typing.NDArray[np.bool_], schema: pa.Schema, keys: list[str]
) -> pa.Table:
    names = values_of(schema, keys)
    if not parts or not names:
        return flatten(schema.empty_table()).select(names)
    values = stack([part.values for part in parts])
    if len(parts) == 1:
        return values  # a part's rows are in the order of its keys
    row_of_key = np.empty(len(present), dtype=np.int64)
    row_of_key[np.concatenate([part.queries for part in parts])] = np.arange(values.num_rows)
    return take(values, np.take(row_of_key, np.flatnonzero(present)))
