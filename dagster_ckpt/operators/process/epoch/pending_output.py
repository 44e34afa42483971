"""Rows that come out while rows are taken in: kept in the state until the epoch's changes are asked for."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dagster_ckpt.hash_range import shard_range
from dagster_ckpt.lsm.columns import flatten
from dagster_ckpt.lsm.table import State
from dagster_ckpt.operators.operator import EpochContext
from dagster_ckpt.operators.process.process_tables import NUMBER, OUT
from dagster_ckpt.operators.shared.state_columns import micros
from dagster_ckpt.protocol.manifest.manifest import StateTableSpec


class Out:
    """In the state, so that they may be more than fits into memory, and the operator remembers nothing by itself.

    Nothing is left of them at the epoch's end, not even tombstones: they have expired.
    """

    def __init__(self, spec: StateTableSpec, output: pa.Schema, state: State, context: EpochContext) -> None:
        self._schema = spec.schema
        self._output = output
        self._timeline = state.timeline(OUT)
        self._context = context

    def put(self, rows: pa.Table) -> None:
        """Keep rows of the epoch; they have the output's columns."""
        if rows.num_rows == 0:
            return
        numbers = self._context.row_numbers(rows.num_rows).view(self._schema.field(NUMBER).type)
        # All in one shard, whichever their keys are of: so they are never sorted, and come out as they went in.
        first = shard_range(self._context.shards[0], self._context.of).lo
        hashes = np.full(rows.num_rows, first, dtype=np.uint64)
        self._timeline.put(hashes, pa.Table.from_arrays([numbers, *rows.columns], schema=self._schema))

    def taken(self) -> Iterator[pa.Table]:
        """All rows that were kept, in pieces; then they are gone."""
        until_us = None
        for piece in self._timeline.scan(None, None):
            if piece.num_rows:
                until_us = int(micros(piece.column(NUMBER))[-1]) + 1
                rows = flatten(piece.select(self._output.names))
                yield pa.Table.from_arrays(rows.columns, schema=self._output)
        if until_us is not None:
            self._timeline.expire(until_us)
