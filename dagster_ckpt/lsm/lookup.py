"""Multi-get: the newest delta of each key, newest run first; only keys not yet found are searched in the next run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Positions, flat, flatten, row_numbers, stack, stretches, take
from dagster_ckpt.lsm.layer_search import Match, Probe, find, first_greater, first_not_less, key_is, start_probe
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import Found, FoundAll, Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


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
    values = value_columns(schema, keys.column_names)
    still_asked = np.ones(len(hashes), dtype=np.bool_)
    unknown = np.arange(len(hashes))
    parts = []
    for layer in (*([view] for view in upper), bottom):
        if len(unknown) == 0:
            break
        probe = start_probe(layer, hashes, unknown)
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


def value_columns(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    """The columns that are not part of the key."""
    return [name for name in schema.names if name not in keys]


def _in_order(
    parts: Sequence[AnswerPart], present: np.typing.NDArray[np.bool_], schema: pa.Schema, keys: list[str]
) -> pa.Table:
    names = value_columns(schema, keys)
    if not parts or not names:
        return flatten(schema.empty_table()).select(names)
    values = stack([part.values for part in parts])
    if len(parts) == 1:
        return values  # a part's rows are in the order of its keys
    row_of_key = np.empty(len(present), dtype=np.int64)
    row_of_key[np.concatenate([part.queries for part in parts])] = np.arange(values.num_rows)
    return take(values, np.take(row_of_key, np.flatnonzero(present)))


def get_all(
    upper: Sequence[View], bottom: Sequence[View], hashes: Hashes, prefix: pa.Table, spec: StateTableSpec
) -> FoundAll:
    """The newest rows under n distinct prefixes, ascending by hash; `prefix` has the first of the table's key columns.

    `upper` comes newest first, `bottom` below it, disjoint and ascending.
    """
    prefix = flatten(prefix)
    layers = [_under(layer, hashes, prefix) for layer in (*([view] for view in upper), bottom)]
    layers = [match for match in layers if len(match.at)]
    if len(layers) > 1:
        layers = _newest(layers, spec)
    layers = [match.there() for match in layers]
    rows = [_rows(match, spec.schema.names, spec.schema) for match in layers]
    queries = np.concatenate([np.zeros(0, dtype=np.int64), *(match.probe.queries for match in layers)])
    order = np.argsort(queries, kind="stable")
    return FoundAll(queries[order], take(stack([flatten(spec.schema.empty_table()), *rows]), order))


def _under(layer: Sequence[View], hashes: Hashes, prefix: pa.Table) -> Match:
    """All rows of a layer under these prefixes, tombstones and expired ones too."""
    probe = start_probe(layer, hashes, np.arange(len(hashes)))
    wanted = np.take(hashes, probe.queries)
    at, found = first_not_less(probe, wanted)
    there = np.flatnonzero(found == wanted)
    probe, starts = probe.only(there), at[there]
    ends = first_greater(probe, wanted[there], starts)
    sizes = ends - starts
    edges = np.append(0, np.cumsum(sizes))[probe.edges]
    rows = Match(Probe(np.repeat(probe.queries, sizes), probe.views, edges), stretches(starts, ends))
    return rows.only(np.flatnonzero(key_is(rows, prefix)))


def _newest(layers: Sequence[Match], spec: StateTableSpec) -> list[Match]:
    """For each key, the row in the first layer that has it; layers come newest first."""
    schema = pa.schema([spec.schema.field(name) for name in spec.keys])
    keys = stack([_rows(match, spec.keys, schema) for match in layers])
    # The stored hash covers only the first of these columns: one of all columns has far fewer collisions.
    groups = key_order(row_numbers([flat(column) for column in keys.columns]), keys)
    is_newest = np.zeros(keys.num_rows, dtype=np.bool_)
    is_newest[groups.order[groups.starts]] = True
    ends = np.cumsum([len(match.at) for match in layers])
    of_layers = np.split(is_newest, ends[:-1])
    return [match.only(np.flatnonzero(newest)) for match, newest in zip(layers, of_layers, strict=True)]


def _rows(match: Match, names: Sequence[str], schema: pa.Schema) -> pa.Table:
    if len(match.at) == 0:
        return flatten(schema.empty_table())
    return pa.Table.from_arrays(match.probe.columns_at(names, match.at), schema=schema)
