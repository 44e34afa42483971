"""The rows of some keys of a state table as one manifest shows it, from the runs that may have them alone."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import split
from dagster_ckpt.lsm.columns import Positions, take
from dagster_ckpt.lsm.compaction.levels import Levels, VisibleRun, split_levels
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.state.engine import OpenRuns
from dagster_ckpt.state.runs.run_layers import Layers
from dagster_ckpt.storage.stores.object_store import ObjectStore


def rows_of_keys(
    store: ObjectStore, manifest: Manifest, table: str, hashes: Hashes, keys: pa.Table, runs: OpenRuns | None = None
) -> Found:
    """The rows of n keys, in their order; a key may be asked for several times.

    `keys` has the table's key columns, `hashes` the hashes that their rows were put under. The table is sorted by hash.
    `store` is the stream's folder. A run that shows none of these hashes is not opened, and what its Bloom filter does
    not know is not looked for. Raises `CorruptStateError`.
    """
    spec = next(spec for spec in manifest.pipeline.tables if spec.name == table)
    groups = key_order(hashes, keys)
    firsts = groups.order[groups.starts]
    distinct, distinct_keys = np.take(hashes, firsts), take(keys, firsts)
    lists, ranges = manifest.runs.get(table, ()), split(manifest.shards)
    asked = _hash_shards(distinct, manifest.shards)
    # Shards that are not asked show nothing: so their runs do not count, and ranges stay contiguous.
    wanted = tuple(refs if shard in asked else () for shard, refs in enumerate(lists))
    layers = Layers(spec, wanted, ranges[: len(wanted)], store, OpenRuns() if runs is None else runs)
    levels = split_levels(wanted, ranges[: len(wanted)])
    upper, bottom = (tuple(_that_may_have(level, distinct)) for level in (levels.upper, levels.bottom))
    found = layers.find(layers.views(Levels(upper, bottom), ()), distinct, distinct_keys)
    return _for_each(found, groups.order, groups.sizes)


def _hash_shards(hashes: Hashes, shards: int) -> set[int]:
    if shards == 1:
        return {0}
    found: list[int] = np.unique(hashes >> np.uint64(65 - shards.bit_length())).tolist()
    return set(found)


def _that_may_have(level: Iterable[VisibleRun], hashes: Hashes) -> Iterable[VisibleRun]:
    """The runs that show any of these hashes, which ascend."""
    for placed in level:
        whole = placed.ref.hashes
        bounds = [each for each in (part.intersect(whole) for part in placed.shown) if not each.is_empty]
        los, his = (np.array(side, dtype=np.uint64) for side in zip(*bounds, strict=True)) if bounds else ((), ())
        if (np.searchsorted(hashes, los, side="left") < np.searchsorted(hashes, his, side="right")).any():
            yield placed


def _for_each(found: Found, order: Positions, sizes: Positions) -> Found:
    """The answer for all that was asked, from that for the distinct keys."""
    key_of = np.empty(len(order), dtype=np.int64)
    key_of[order] = np.repeat(np.arange(len(sizes)), sizes)
    return select(found, key_of)
