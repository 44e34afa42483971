"""Output of `on_rows`, kept in the state until the end of the epoch."""

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


class PendingOutput:
    """Output rows, kept in the state because they may not fit into memory and an operator is stateless.

    All have expired at the end of the epoch, without tombstones.
    """

    def __init__(self, spec: StateTableSpec, output: pa.Schema, state: State, context: EpochContext) -> None:
        self._schema = spec.schema
        self._output = output
        self._timeline = state.timeline(OUT)
        self._context = context

    def put(self, rows: pa.Table) -> None:
        """Keep rows with the output's columns."""
        if rows.num_rows == 0:
            return
        numbers = self._context.row_numbers(rows.num_rows).view(self._schema.field(NUMBER).type)
        # All in one shard, whatever their keys: so they are never sorted, and keep their order.
        first = shard_range(self._context.shards[0], self._context.of).lo
        hashes = np.full(rows.num_rows, first, dtype=np.uint64)
        self._timeline.put(hashes, pa.Table.from_arrays([numbers, *rows.columns], schema=self._schema))

    def drain(self) -> Iterator[pa.Table]:
        """All kept rows, in pieces; then they expire."""
        until_us = None
        for piece in self._timeline.scan(None, None):
            if piece.num_rows:
                until_us = int(micros(piece.column(NUMBER))[-1]) + 1
                rows = flatten(piece.select(self._output.names))
                yield pa.Table.from_arrays(rows.columns, schema=self._output)
        if until_us is not None:
            self._timeline.expire(until_us)
