"""The table that changes make: the last of a stream whose operator keeps no table of its rows has one.

A stream that follows a table of an upstream, and has no step of its own, has it as its step: a copy of that table, or
of its rows that match a condition.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Positions, flat, flatten, stack, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Hashes, State, Touched
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.rows.keyed_rows import KeyedRows
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.checks import pipeline_checks, updating_checks
from dagster_ckpt.operators.shared.checks.updating_checks import ROW_KEY, changes_schema
from dagster_ckpt.operators.shared.net_changes import copies_of_touched, repeat_rows, sides_of
from dagster_ckpt.operators.shared.state_columns import ROWS, whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import ZSetTable
from dagster_ckpt.protocol.change_columns import CHANGE_TYPE
from dagster_ckpt.protocol.manifest.manifest import KEPT_TABLE, ROWS_TABLE, InputSpec, Pipeline, StateTableSpec

NAME = "mirror"
UNIQUE = "unique"
"""The parameter for keys that the user has declared."""
_SHOWN_MAX = 3
"""So many keys an error names."""


@dataclass(frozen=True)
class CountedRows:
    """Each distinct row once, with how often the table has it (`ROWS`).

    Rows are equal as `lsm.columns.equal` has it: null equals null, and floats are compared by their bits. The rows of
    an epoch arrive in any order, so a count may fall below 0 within an epoch, but not at its end.
    """

    spec: StateTableSpec

    @classmethod
    def of(cls, name: str, columns: pa.Schema) -> "CountedRows":
        """The state table `name` for a table with these columns. Raises `InvalidPipelineError`."""
        expiry_checks.check_names_are_free(columns, [ROWS])
        pipeline_checks.check_hashable(columns, "rows without a key are found by all their columns")
        return cls(StateTableSpec(name, columns.append(whole_number(ROWS)), tuple(columns.names)))

    @property
    def columns(self) -> list[str]:
        """The columns of the table."""
        return list(self.spec.keys)

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        """Apply rows with a change type, under these hashes: equal rows have equal ones."""
        delta = ZSet.of_changes(hashes, rows, self.columns).consolidate()
        if len(delta):
            self._zset_table.add(delta, state)

    @property
    def table(self) -> StreamTable:
        """The table, from the state table."""
        return StreamTable(self.spec.name, self._rows, self._changes_of)

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch. Raises `CorruptStateError` if more rows were deleted than there were."""
        yield from map(self._changes_of, self._zset_table.epoch_changes(state))

    def _changes_of(self, touched: Touched) -> Changes:
        """The net changes that follow from changes to some rows: inserts, then deletes."""
        before, after = (self._zset_table.weights_of(side) for side in (touched.before, touched.after))
        more = after - before
        return replace(copies_of_touched(touched, more, self.columns), more_rows=int(more.sum()))

    def _rows(self, state_rows: pa.Table) -> pa.Table:
        """The rows of the table, from those of the state table: each as often as it is there."""
        return repeat_rows(state_rows.select(self.columns), flat(state_rows.column(ROWS)).to_numpy())

    @property
    def _zset_table(self) -> ZSetTable:
        return ZSetTable(self.spec, (ROWS,))


@dataclass(frozen=True)
class Materializer(Operator):
    """The current rows of a table, whose net changes are the input: see `KeyedRows` and `CountedRows`.

    Each row is in the shard of the keys, under a hash of its own.
    """

    pipeline: Pipeline
    rows: KeyedRows | CountedRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        where: str | None = None,
        *,
        counted: bool = False,
        unique: bool = False,
    ) -> "Materializer":
        """Check the copy of an upstream's table; raises `InvalidPipelineError`.

        The output has all columns but `_change_type`. `keys` identify the rows of the upstream's table
        (`updating_checks.row_key`). If that has rows that may be equal (`counted`), they are any columns by which its
        rows are sent to their shards. `unique`: the user says that they identify rows, which is checked. `where` is the
        text of the condition, or None. It is part of the fingerprint, because the kept rows would be wrong under
        another one. It must depend on the values of a row alone.
        """
        options: dict[str, object] = {ROW_KEY: None} if counted else {UNIQUE: True} if unique else {}
        return cls._of(ROWS_TABLE, keys, source, updating_checks.parameters(where) | options)

    @classmethod
    def after(cls, step: Pipeline) -> "Materializer":
        """The table of the changes of a step, by its row key, if there is one. Raises `InvalidPipelineError`."""
        options: dict[str, object] = {ROW_KEY: step.parameters[ROW_KEY]}
        return cls._of(KEPT_TABLE, step.keys, InputSpec((), changes_schema(step)), options)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Materializer":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        counted, unique = ROW_KEY in options, bool(options.get(UNIQUE))
        where = options.get(updating_checks.WHERE)
        return cls.build(pipeline.keys, pipeline.inputs[0], where, counted=counted, unique=unique)

    @classmethod
    def _of(cls, table: str, keys: tuple[str, ...], source: InputSpec, options: dict[str, Any]) -> "Materializer":
        updating_checks.check_changes(source.schema)
        output = pa.schema([field for field in source.schema if field.name != CHANGE_TYPE])
        pipeline_checks.check_columns(output)
        pipeline_checks.check_storable(output)
        more = options.get(ROW_KEY, ())
        rows: KeyedRows | CountedRows
        if more is None:
            pipeline_checks.check_keys(keys, output)
            rows = CountedRows.of(table, output)
        else:
            kind = UniqueRows if options.get(UNIQUE) else KeyedRows
            rows = kind.of(table, output, tuple(dict.fromkeys([*keys, *more])))
        return cls(Pipeline(NAME, options, (source,), keys, (rows.spec,), output), rows)

    @property
    def table(self) -> StreamTable:
        return self.rows.table

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        below = [name for name in self.rows.spec.keys if name not in self.pipeline.keys]
        hashes = subkey_hashes(hashes, rows.select(below).columns) if below else hashes
        self.rows.change(hashes, rows, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        yield from self.rows.changes(state)


@dataclass(frozen=True)
class UniqueRows(KeyedRows):
    """A table with one row of each key, from net changes of rows of which several may have it: then it is an error.

    `ROWS` counts how many rows a key has. The rows of an epoch arrive in any order, so there may be two within it: the
    one that goes and the one that comes. A row that goes was there before the epoch.
    """

    @classmethod
    def of(cls, name: str, columns: pa.Schema, keys: tuple[str, ...]) -> "UniqueRows":
        """The state table `name` for a table with these columns. Raises `InvalidPipelineError`."""
        pipeline_checks.check_keys(keys, columns)
        expiry_checks.check_names_are_free(columns, [ROWS])
        return cls(StateTableSpec(name, columns.append(whole_number(ROWS)), keys))

    @property
    def columns(self) -> list[str]:
        return [name for name in self.spec.schema.names if name != ROWS]

    def change(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> None:
        come, back = sides_of(rows)
        sides = np.concatenate([come, back])
        if not len(sides):
            return
        rows, table = flatten(rows.select(self.columns)), state.table(self.spec.name)
        # Added rows first, so that the first row of a key is an added one if it has any.
        groups = key_order(hashes[sides], take(self._keys_of(rows), sides))
        signs = np.where(np.arange(len(sides)) < len(come), 1, -1)
        more = np.add.reduceat(signs[groups.order], groups.starts)
        firsts = groups.order[groups.starts]
        of_key, is_new = sides[firsts], firsts < len(come)
        found = table.get(hashes[of_key], take(self._keys_of(rows), of_key))
        counts = more + ZSetTable(self.spec, (ROWS,)).weights_of(found)
        there, gone = np.flatnonzero(counts), np.flatnonzero((counts == 0) & found.present)
        if len(there):
            # The row that came, else the one that was there; of a key that has neither, the one that goes.
            own = np.where(~is_new & found.present, np.cumsum(found.present) - 1 + rows.num_rows, of_key)[there]
            values = take(stack([rows, flatten(found.rows.select(self.columns))]), own)
            put = pa.Table.from_arrays([*values.columns, pa.array(counts[there])], schema=self.spec.schema)
            table.put(hashes[of_key[there]], put, before=select(found, there))
        if len(gone):
            table.delete(hashes[of_key[gone]], take(self._keys_of(rows), of_key[gone]), before=select(found, gone))

    def changes(self, state: State) -> Iterator[Changes]:
        """The net changes of the epoch. Raises `InvalidPipelineError` where a key has several rows."""
        for touched in state.table(self.spec.name).touched_keys():
            counts = flat(touched.after.rows.column(ROWS)).to_numpy()
            wrong = np.flatnonzero(counts != 1)
            if len(wrong):
                keys = take(flatten(self._keys_of(touched.after.rows)), wrong[:_SHOWN_MAX]).to_pylist()
                raise InvalidPipelineError(
                    "several rows have one primary key, so it identifies none: aggregate by it, take one row of each "
                    f"by row_number() = 1, or declare more columns. keys={keys}, rows={counts[wrong[0]]}"
                )
            yield self.table.changes_of(touched)
