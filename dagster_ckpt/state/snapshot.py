"""All live rows of a state table as one manifest shows it."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import flatten, take
from dagster_ckpt.lsm.run import merged
from dagster_ckpt.protocol.manifest import Manifest, RunRef, StateTableSpec
from dagster_ckpt.state.open_runs import OpenRuns
from dagster_ckpt.storage.object_store import ObjectStore


def live_rows(
    store: ObjectStore,
    manifest: Manifest,
    table: str,
    columns: Sequence[str] | None = None,
    runs: OpenRuns | None = None,
) -> pa.Table:
    """The rows of all shards, the newest of each key, without tombstones; shard after shard, sorted by hash in each.

    `store` is the stream's folder; `columns` chooses columns and their order. Raises `CorruptStateError`.
    """
    spec = next(spec for spec in manifest.pipeline.tables if spec.name == table)
    wanted = list(spec.schema.names if columns is None else columns)
    runs = OpenRuns() if runs is None else runs
    shards = [_live_rows(store, spec, refs, wanted, runs) for refs in manifest.runs.get(table, ()) if refs]
    return pa.concat_tables(shards) if shards else spec.schema.empty_table().select(wanted)


def _live_rows(
    store: ObjectStore, spec: StateTableSpec, refs: Sequence[RunRef], wanted: list[str], runs: OpenRuns
) -> pa.Table:
    whole = merged([runs.view(store, ref, spec.schema).rows() for ref in refs], spec.keys)
    rows = whole.columns(wanted)
    if whole.tombstones is None:
        return rows
    return take(flatten(rows), np.flatnonzero(~whole.tombstones))
