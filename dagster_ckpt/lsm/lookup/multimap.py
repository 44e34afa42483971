"""Multi-map: all rows under each of many key prefixes, in tables that hash only the first key columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flat, flatten, row_numbers, stack, stretches, take
from dagster_ckpt.lsm.lookup.layer_search import Match, Probe, first_greater, first_not_less, key_is, probe_of
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.runs.view import View
from dagster_ckpt.lsm.table import FoundAll, Hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


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
    probe = probe_of(layer, hashes, np.arange(len(hashes)))
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
