"""What differs between the tables of two manifests, which may be of other pipelines and other streams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.lsm.columns import flatten
from dagster_ckpt.operators.operator import Changes
from dagster_ckpt.operators.registry import has_kept_table
from dagster_ckpt.operators.shared.net_changes import difference_of_equal_rows, label, net_of
from dagster_ckpt.protocol.change_columns import DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import Manifest, StateTableSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_changes import table_step
from dagster_ckpt.tables.table_rows import table_rows

ROWS_AT_ONCE = 1 << 20
"""About this many rows of each table are in memory at once, if both are laid out alike."""


@dataclass(frozen=True)
class TableSide:
    """A table: the manifest that shows it, and a store with all files that this names."""

    store: ObjectStore
    manifest: Manifest


def table_difference(clock: Clock, before: TableSide, after: TableSide) -> Iterator[pa.Table]:
    """The changes that make the one table the other, in pieces: rows of the change log without `_epoch`.

    They have the columns of `after`; one that `before` lacks is null in the rows that go. A row is known by its key,
    or by all its columns where none is a key; both tables must have the same. Raises `CorruptStateError`.
    """
    output = after.manifest.pipeline.output
    there = before.manifest.pipeline.output.names
    schema = pa.schema([each if each.name in there else each.with_nullable(True) for each in output])
    key = row_key(after.manifest.pipeline)
    for share in _shares(before.manifest, after.manifest):
        gone, come = (
            flatten(pa.Table.from_batches(table_rows(side.store, clock, side.manifest, schema, share), schema))
            for side in (before, after)
        )
        changes = difference_of_equal_rows(gone, come) if key is None else _of_keys(gone, come, key)
        if changes.count:
            yield changes.rows


def _of_keys(gone: pa.Table, come: pa.Table, key: Sequence[str]) -> Changes:
    return net_of(label([(DELETE, gone), (INSERT, come)]), key)


def _shares(before: Manifest, after: Manifest) -> list[Share]:
    """Parts that hold the same keys of both tables; one part if the two place their rows differently."""
    if _placing(before) != _placing(after) or row_key(after.pipeline) is None:
        return [Share()]
    rows = max(each.table_rows or each.statistics.state_rows for each in (before, after))
    of = 1 << max(0, (rows // ROWS_AT_ONCE).bit_length())
    return [Share(number, of) for number in range(of)]


def _placing(manifest: Manifest) -> tuple[object, ...]:
    """What the hash of a row, and so its place, is made of."""
    pipeline = manifest.pipeline
    _, table = table_step(pipeline)
    spec: StateTableSpec = next(each for each in pipeline.tables if each.name == table.name)
    keys = tuple((pipeline.name_of(key), spec.schema.field(key).type) for key in spec.keys)
    # The hash of a key is above that of a row below it, if rows of the table have a part of their key alone.
    return pipeline.operator, has_kept_table(pipeline), tuple(map(pipeline.name_of, pipeline.keys)), spec.sort, keys
