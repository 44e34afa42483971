"""The mirror: a copy of an upstream table that updates and deletes rows, or of its rows that match a condition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import chosen
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State, StateTable, Touched
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext
from dagster_ckpt.operators.shared import retraction
from dagster_ckpt.operators.shared.checks import expiry_checks, pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.net_changes import changes_of_columns
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

NAME = "mirror"
ROWS = "rows"
"""The state table: the stream's table, and `PUT_IN`."""
PUT_IN = "_put_in"
"""The epoch that put a row: a pre-image of the same epoch belongs to the row before it, and deletes nothing."""


@dataclass(frozen=True)
class Mirror:
    """The current row of each key of the upstream.

    The input is the upstream's net changes, at most one per key in an epoch, after a condition that may have kept both
    images of an update, one or none. So an insert or a post-image becomes the key's row; a delete or a pre-image
    removes it, unless the key has a post-image as well. Deleting an absent key and repeating a change have no effect.
    The rows of an epoch arrive in any order.
    """

    pipeline: Pipeline

    @classmethod
    def build(cls, keys: tuple[str, ...], source: InputSpec, where: str | None = None) -> "Mirror":
        """Check the operator; raises `InvalidPipelineError`. The output has all columns but `_change_type`.

        `keys` identify the rows of the upstream's table (`updating_checks.row_key`). `where` is the text of the
        condition, or None. It is part of the fingerprint, because the kept rows would be wrong under another one. It
        must depend on the values of a row alone.
        """
        updating_checks.check_changes(source.schema)
        output = pa.schema([field for field in source.schema if field.name != CHANGE_TYPE])
        pipeline_checks.check_columns(output)
        pipeline_checks.check_storable(output)
        pipeline_checks.check_keys(keys, output)
        expiry_checks.check_names_are_free(output, [PUT_IN])
        pipeline = Pipeline(
            operator=NAME,
            parameters=updating_checks.parameters(where),
            inputs=(source,),
            keys=keys,
            tables=(StateTableSpec(ROWS, output.append(whole_number(PUT_IN)), keys),),
            output=output,
        )
        return cls(pipeline)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Mirror":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        return cls.build(pipeline.keys, pipeline.inputs[0], options.get(updating_checks.WHERE))

    @property
    def event_times(self) -> tuple[str | None, ...]:
        return (None,)

    @property
    def horizon_us(self) -> int | None:
        return None

    @property
    def logged(self) -> str:
        return ROWS

    @property
    def counters(self) -> tuple[str, ...]:
        return ()

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        come, back = retraction.sides_of(rows)
        rows = flatten(rows.select(self.pipeline.output.names))
        # Added rows first, so that the first row of a key is an added one if it has any.
        sides = np.concatenate([come, back])
        groups = key_order(hashes[sides], take(self._keys_of(rows), sides))
        firsts = groups.order[groups.starts]
        is_new = firsts < len(come)
        if len(come) > np.count_nonzero(is_new):
            raise self._ambiguous()
        put, gone = sides[firsts[is_new]], sides[firsts[~is_new]]
        if len(put):
            self._put(hashes[put], take(rows, put), state.table(ROWS), context)
        if len(gone):
            self._delete(hashes[gone], take(self._keys_of(rows), gone), state.table(ROWS), context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        yield from map(self.changes_of, state.table(ROWS).touched())

    def changes_of(self, touched: Touched) -> Changes:
        return changes_of_columns(touched, self.pipeline.output.names, self.pipeline.keys)

    def table(self, state_rows: pa.Table) -> pa.Table:
        return state_rows.select(self.pipeline.output.names)

    def _put(self, hashes: Hashes, rows: pa.Table, table: StateTable, context: EpochContext) -> None:
        found = table.get(hashes, self._keys_of(rows))
        if _put_now(found, context).any():
            raise self._ambiguous()
        put_in = pa.array(np.full(rows.num_rows, context.number, dtype=np.int64))
        put = pa.Table.from_arrays([*rows.columns, put_in], schema=self.pipeline.tables[0].schema)
        table.put(hashes, put, before=found)

    def _delete(self, hashes: Hashes, keys: pa.Table, table: StateTable, context: EpochContext) -> None:
        found = table.get(hashes, keys)
        gone = np.flatnonzero(found.present & ~_put_now(found, context))
        if len(gone):
            table.delete(hashes[gone], take(keys, gone), before=chosen(found, gone))

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        return rows.select(list(self.pipeline.keys))

    def _ambiguous(self) -> InvalidPipelineError:
        return InvalidPipelineError(
            "several rows of one key in one epoch, so the newest of them is unknown: read the "
            f"upstream's changes as they are, once. keys={', '.join(self.pipeline.keys)}"
        )


def _put_now(found: Found, context: EpochContext) -> Mask:
    """Which of the keys were put in this epoch."""
    now = np.zeros(len(found.present), dtype=np.bool_)
    now[found.present] = flat(found.rows.column(PUT_IN)).to_numpy() == context.number
    return now
