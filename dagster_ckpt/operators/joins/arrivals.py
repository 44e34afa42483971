"""The rows that arrived in an epoch, by the hash of key and bucket, until `finish` joins them.

So the output never depends on how the rows are batched or ordered, and none of it waits in memory. The rows are in a
state table because they may not fit into memory; all of them expire at the end of the epoch.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import from_plain
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.joins.interval_bounds import Interval
from dagster_ckpt.operators.joins.sides import Side, shape_rows
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.shared.state_columns import HASH, ROW, hash_column, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec

BUCKET = "_bucket"
ARRIVED = "_arrived"
"""A time that is always 0, for the expiry of rows that may have no event time."""

MOMENT = pa.timestamp("us")


def arrivals(side: Side) -> str:
    """The name of the table with the rows of an input that arrived in this epoch."""
    return f"{side.name}_arrivals"


def arrivals_spec(side: Side) -> StateTableSpec:
    """The table with the rows of an input that arrived in this epoch; empty between epochs."""
    added = [*map(whole_number, (BUCKET, HASH, ROW)), pa.field(ARRIVED, MOMENT, nullable=False)]
    return StateTableSpec(arrivals(side), pa.schema([*side.schema, *added]), (ROW,), time=ARRIVED)


def put_arrivals(
    side: Side, interval: Interval, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext
) -> None:
    """Keep rows of an input, with the hashes of their keys, for `epoch_arrivals`."""
    buckets = pa.array(interval.buckets(interval.places(side.number, side.times(rows))))
    added = {
        BUCKET: buckets,
        HASH: hash_column(hashes),
        ROW: context.row_numbers(rows.num_rows),
        ARRIVED: from_plain(np.zeros(rows.num_rows, dtype=np.int64), MOMENT),
    }
    table = state.table(arrivals(side))
    table.put(subkey_hashes(hashes, [buckets]), shape_rows(arrivals_spec(side).schema, rows, added))


def epoch_arrivals(side: Side, state: State) -> Iterator[tuple[Hashes, pa.Table]]:
    """All rows of an input that arrived in this epoch, in pieces, with the hashes of key and bucket.

    Do not put rows until the last piece.
    """
    for touched in state.table(arrivals(side)).touched_keys():
        yield touched.hashes, touched.after.rows


def expire_arrivals(side: Side, state: State) -> None:
    """Expire the rows once they are joined."""
    state.table(arrivals(side)).expire(1)
