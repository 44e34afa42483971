"""What differs between the tables of two manifests, which may be of other pipelines and other streams."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dagster_ckpt.clock import Clock
from dagster_ckpt.lsm.columns import Positions, flatten, take
from dagster_ckpt.lsm.runs.key_order import key_codes
from dagster_ckpt.lsm.table import Found
from dagster_ckpt.operators.shared.net_changes import changes_between, labelled, net_of
from dagster_ckpt.protocol.change_columns import DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import Manifest, StateTableSpec
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.storage.stores.object_store import ObjectStore
from dagster_ckpt.tables.share import Share
from dagster_ckpt.tables.table_changes import table_operator
from dagster_ckpt.tables.table_rows import table_rows

ROWS_AT_ONCE = 1 << 20
"""About this many rows of each table are in memory at once, if both are laid out alike."""


@dataclass(frozen=True)
class Side:
    """A table: the manifest that shows it, and a store with all files that this names."""

    store: ObjectStore
    manifest: Manifest


def table_difference(clock: Clock, before: Side, after: Side) -> Iterator[pa.Table]:
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
        changes = _of_bags(gone, come) if key is None else _of_keys(gone, come, key)
        if changes.num_rows:
            yield changes


def _of_keys(gone: pa.Table, come: pa.Table, key: Sequence[str]) -> pa.Table:
    if not key:  # a table of one row
        sides = [Found(np.array([rows.num_rows > 0]), rows) for rows in (gone, come)]
        return changes_between(sides[0], sides[1], ()).rows
    return net_of(labelled([(DELETE, gone), (INSERT, come)]), key).rows


def _of_bags(gone: pa.Table, come: pa.Table) -> pa.Table:
    """Rows that may be there several times: as many go and come as the one table has more of them than the other."""
    rows = flatten(pa.concat_tables([gone, come]))
    codes = np.unique(key_codes(rows), return_inverse=True)[1] if rows.num_rows else np.zeros(0, dtype=np.int64)
    kinds = int(codes.max(initial=-1)) + 1
    more = np.bincount(codes[gone.num_rows :], minlength=kinds) - np.bincount(codes[: gone.num_rows], minlength=kinds)
    example = np.zeros(kinds, dtype=np.int64)
    example[codes] = np.arange(len(codes))
    return labelled([(INSERT, _repeated(rows, example, more)), (DELETE, _repeated(rows, example, -more))])


def _repeated(rows: pa.Table, example: Positions, times: Positions) -> pa.Table:
    return take(rows, np.repeat(example, np.maximum(times, 0)))


def _shares(before: Manifest, after: Manifest) -> list[Share]:
    """Parts that hold the same keys of both tables; one part if the two place their rows otherwise."""
    if _placing(before) != _placing(after) or row_key(after.pipeline) is None:
        return [Share()]
    rows = max(each.table_rows or each.statistics.state_rows for each in (before, after))
    of = 1 << max(0, (rows // ROWS_AT_ONCE).bit_length())
    return [Share(number, of) for number in range(of)]


def _placing(manifest: Manifest) -> tuple[object, ...]:
    """What the hash of a row, and so its place, is made of."""
    _, logged = table_operator(manifest.pipeline)
    spec: StateTableSpec = next(each for each in manifest.pipeline.tables if each.name == logged)
    return spec.sort, tuple((key, spec.schema.field(key).type) for key in spec.keys)
