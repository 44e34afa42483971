"""Whether a state that is too large for one table is right: read back from the store, and compared with all input."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.inputs import ARROW_SCHEMA, COLUMNS, KEY
from dagster_ckpt import CheckpointStore
from dagster_ckpt.operators import RunningAggregate, from_pipeline
from dagster_ckpt.operators.aggregates.aggregate import GROUPS
from dagster_ckpt.state.committed.table_snapshot import live_rows
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store

_EACH_KEY_MAX = 10_000_000
"""Of more keys only totals are compared: the truth of each takes 24 bytes."""


@dataclass(frozen=True)
class Totals:
    """Of all keys: how many, their sum, all rows, the sum of all sums, the greatest maximum."""

    keys: int
    key_sum: int
    rows: int
    total: float
    most: int


def check_state(inbox: Path, keys: int, store: Path, name: str) -> None:
    """Raise RuntimeError unless stream `name` has what comes of all files, in which each of the `keys` is.

    Up to ten million keys each key's count, sum and maximum are compared, of more only `Totals`.
    """
    results = pieces(store, name)
    if keys <= _EACH_KEY_MAX:
        check_each_key(_rows(inbox), results, keys)
    else:
        check_totals(_rows(inbox), results, keys)


def pieces(store: Path, name: str) -> Iterator[pa.Table]:
    """The current table of a stream in the store at `store`, as `COLUMNS`, a shard at a time: never all of it."""
    manifest = CheckpointStore(store.as_uri()).stream(name).manifest()
    operator = from_pipeline(manifest.pipeline)
    assert isinstance(operator, RunningAggregate), "what is measured"
    folder = folder_store(open_store(store.as_uri()), name)
    for shard in manifest.runs[GROUPS]:
        rows = live_rows(folder, replace(manifest, runs={GROUPS: (shard,)}), GROUPS)
        if len(rows):
            yield operator.table.rows(rows).select(COLUMNS)


def check_totals(rows: Iterable[pa.Table], results: Iterable[pa.Table], keys: int) -> None:
    """Raise RuntimeError where the results of all keys come to other totals than the rows."""
    count, total, most = 0, 0.0, 0
    for piece in rows:
        count += len(piece)
        total += pc.sum(piece["v"]).as_py()
        most = max(most, pc.max(piece["w"]).as_py())
    expected = Totals(keys, keys * (keys - 1) // 2, count, total, most)
    found = Totals(0, 0, 0, 0.0, 0)
    for piece in results:
        found = Totals(
            keys=found.keys + len(piece),
            key_sum=found.key_sum + pc.sum(piece[KEY]).as_py(),
            rows=found.rows + pc.sum(piece["rows"]).as_py(),
            total=found.total + pc.sum(piece["total"]).as_py(),
            most=max(found.most, pc.max(piece["most"]).as_py()),
        )
    if found != expected:
        raise RuntimeError(f"the state is wrong. found={found}, expected={expected}")


def check_each_key(rows: Iterable[pa.Table], results: Iterable[pa.Table], keys: int) -> None:
    """Raise RuntimeError where a key's result is missing, is there twice, or is not what its rows come to."""
    counts, totals, most = np.zeros(keys, np.int64), np.zeros(keys), np.full(keys, -1, np.int64)
    for piece in rows:
        grouped = piece.group_by(KEY).aggregate([([], "count_all"), ("v", "sum"), ("w", "max")])
        key, count, total, greatest = (grouped[name].to_numpy() for name in (KEY, "count_all", "v_sum", "w_max"))
        counts[key] += count
        totals[key] += total
        most[key] = np.maximum(most[key], greatest)
    found, wrong, seen = 0, 0, np.zeros(keys, np.bool_)
    for piece in results:
        key, count, total, greatest = (piece[name].to_numpy() for name in COLUMNS)
        seen[key] = True
        found += len(key)
        wrong += int(np.count_nonzero((counts[key] != count) | (totals[key] != total) | (most[key] != greatest)))
    missing = keys - np.count_nonzero(seen)
    if wrong or missing or found != keys:
        raise RuntimeError(f"the state is wrong. keys={keys}, found={found}, missing={missing}, wrong={wrong}")


def _rows(inbox: Path) -> Iterator[pa.Table]:
    """All input, some rows at a time."""
    for batch in ds.dataset(inbox, schema=ARROW_SCHEMA, format="parquet").to_batches(batch_readahead=2):
        if batch.num_rows:
            yield pa.Table.from_batches([batch])
