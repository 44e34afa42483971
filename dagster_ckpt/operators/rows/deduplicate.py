"""Deduplicate: the first row of each key, or the newest."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, take
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import key_order
from dagster_ckpt.lsm.table import Found, Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.rows.first_rows import FirstRows
from dagster_ckpt.operators.rows.row_choice import RowChoice, in_time
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.arrays.value_order import End
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.late_rows import DROP, late_tables
from dagster_ckpt.operators.shared.net_changes import inserts, table_of_columns
from dagster_ckpt.operators.shared.row_order import check_total_order
from dagster_ckpt.operators.shared.state_columns import HASH
from dagster_ckpt.operators.shared.time_to_live import AT, TimeToLive
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

ROWS = "rows"
FIRST_EPOCH = "_first_epoch"
"""The epoch in which the key first arrived: only rows of that epoch may replace each other."""

NAME = "deduplicate"
DUPLICATES = "duplicates"
"""Rows of the epoch, late ones excluded, that did not add a new key."""
COUNTERS = (DUPLICATES,)


@dataclass(frozen=True)
class KeptRows:
    """The table `ROWS`, which is the stream's table: the newest, the earliest or the first seen row of each key.

    The newest row leaves it after its time to live, if there is one.
    """

    spec: StateTableSpec
    columns: pa.Schema
    choice: RowChoice
    ttl: TimeToLive | None

    @classmethod
    def first_seen(cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...]) -> "KeptRows":
        """The least row of each key by these columns, of the epoch in which the key first arrives."""
        spec = StateTableSpec(ROWS, columns.append(pa.field(FIRST_EPOCH, pa.int64(), nullable=False)), keys)
        return cls(spec, columns, RowChoice(keys, order, End.LEAST), None)

    @classmethod
    def earliest(cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...]) -> "KeptRows":
        """The least row of each key by these columns, whatever epoch it arrived in."""
        return cls(StateTableSpec(ROWS, columns, keys), columns, RowChoice(keys, order, End.LEAST), None)

    @classmethod
    def newest(
        cls, columns: pa.Schema, keys: tuple[str, ...], order: tuple[str, ...], expire_after_us: int | None
    ) -> "KeptRows":
        """The greatest row of each key by these columns; with `expire_after_us` it expires by the first of them."""
        spec = StateTableSpec(ROWS, columns, keys)
        ttl = None if expire_after_us is None else TimeToLive(spec, order[0], expire_after_us)
        return cls(spec, columns, RowChoice(keys, order, End.GREATEST), ttl)

    @property
    def tables(self) -> tuple[StateTableSpec, ...]:
        return (self.spec,) if self.ttl is None else (self.spec, self.ttl.expiries)

    @property
    def extra_columns(self) -> list[str]:
        """The columns that the state adds to those of the input."""
        return [FIRST_EPOCH] if self._stays else [] if self.ttl is None else [AT, HASH]

    @property
    def table(self) -> StreamTable:
        """The stream's table."""
        return table_of_columns(ROWS, self.spec.keys, self.columns.names)

    @property
    def horizon_us(self) -> int | None:
        # Rows expire, but none waits to be emitted: at the end of the input the table stays.
        return None if self.ttl is None else 0

    def on_rows(self, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        """See `Operator.on_rows`."""
        late = NONE_LATE
        rows = flatten(rows)
        if self.ttl is not None:
            used, late = in_time(flat(rows.column(self.ttl.time)), context)
            hashes, rows = hashes[used], take(rows, used)
        if rows.num_rows == 0:
            return late
        keys = rows.select(list(self.spec.keys))
        groups = key_order(hashes, keys)
        firsts = groups.order[groups.starts]
        found = state.table(ROWS).get(hashes[firsts], take(keys, firsts))
        undecided = self._may_change(found, context)
        order, sizes = groups.order[np.repeat(undecided, groups.sizes)], groups.sizes[undecided]
        best = self.choice.of_groups(rows, order, sizes)
        rivals = select(found, np.flatnonzero(undecided))
        wins = np.flatnonzero(self.choice.wins(take(rows, best), rivals))
        winners = best[wins]
        if len(winners):
            put = self._state_rows(take(rows, winners), context)
            state.table(ROWS).put(hashes[winners], put, before=select(rivals, wins))
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[tuple[Changes, int]]:
        """The changes in pieces, each with the number of new keys; a piece may have none."""
        if self.ttl is not None:
            for _ in self.ttl.expire(state, context):
                yield inserts(self.columns.empty_table()), 0
        for touched in state.table(ROWS).touched_keys():
            if self.ttl is not None:
                self.ttl.schedule(touched, state)
            yield self.table.changes_of(touched), int(np.count_nonzero(touched.after.present & ~touched.before.present))

    @property
    def _stays(self) -> bool:
        """Whether no row of a later epoch replaces the row of a key."""
        return FIRST_EPOCH in self.spec.schema.names

    def _may_change(self, found: Found, context: EpochContext) -> Mask:
        """Which keys may get another row than the one found: all except those with a row that stays."""
        undecided = np.ones(len(found.present), dtype=np.bool_)
        if self._stays:
            epochs = flat(found.rows.column(FIRST_EPOCH)).to_numpy()
            undecided[found.present] = epochs == context.number
        return undecided

    def _state_rows(self, rows: pa.Table, context: EpochContext) -> pa.Table:
        added = [pa.array(np.full(rows.num_rows, context.number, dtype=np.int64))] if self._stays else []
        return pa.Table.from_arrays([*rows.columns, *added], schema=self.spec.schema)


class Keep(StrEnum):
    """Which row of a key is kept."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Deduplicate(Operator):
    """One row of each key.

    First: the row with the least event time in the epoch in which the key first arrives; rows of later epochs never
    replace it. Last: the row with the greatest event time of all epochs. `by` columns take precedence over the event
    time, in their order; by them the first row too is that of all epochs. Ties are broken by the other columns
    (`RowChoice`), so the result does not depend on the order or the batching of an epoch's rows.

    After `expire_after_us` of event time a key expires, and a later row starts it again. The first rows are then an
    append-only table, with one row each time a key starts; the last rows leave the table. Rows below the watermark are
    then late, and so are rows without an event time, since they could never expire.
    """

    pipeline: Pipeline
    rows: KeptRows | FirstRows

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        keep: str = Keep.FIRST,
        event_time: str | None = None,
        expire_after_us: int | None = None,
        late: str = DROP,
        by: tuple[str, ...] = (),
    ) -> "Deduplicate":
        """Check the operator; raises `InvalidPipelineError`. The output has all columns of the input."""
        _check(keys, source.schema, keep, event_time, expire_after_us, late)
        _check_by(by, keys, source.schema, keep, event_time, expire_after_us)
        rows = _rows(source.schema, keys, Keep(keep), by, event_time, expire_after_us)
        expiry_checks.check_names_are_free(source.schema, rows.extra_columns)
        kept_late = late_tables(late, [source], [event_time])
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "keep": str(keep),
                "event_time": event_time,
                "expire_after_us": expire_after_us,
                "late": str(late),
                **({"by": list(by)} if by else {}),
            },
            inputs=(source,),
            keys=keys,
            tables=(*rows.tables, *kept_late),
            output=source.schema,
            appends=rows.table is None,
        )
        return cls(pipeline, rows)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "Deduplicate":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        return cls.build(
            pipeline.keys,
            pipeline.inputs[0],
            options["keep"],
            options["event_time"],
            options["expire_after_us"],
            options["late"],
            tuple(options.get("by", ())),
        )

    @property
    def horizon_us(self) -> int | None:
        return self.rows.horizon_us

    @property
    def table(self) -> StreamTable | None:
        return self.rows.table

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        late = self.rows.on_rows(hashes, rows, state, context)
        context.counters[DUPLICATES] += rows.num_rows - len(late)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        for changes, new_keys in self.rows.finish(state, context):
            context.counters[DUPLICATES] -= new_keys
            yield changes


def _check(
    keys: tuple[str, ...],
    schema: pa.Schema,
    keep: str,
    event_time: str | None,
    expire_after_us: int | None,
    late: str,
) -> None:
    pipeline_checks.check_columns(schema)
    pipeline_checks.check_storable(schema)
    pipeline_checks.check_keys(keys, schema)
    pipeline_checks.check_event_time(event_time, schema)
    check_total_order(schema)
    if keep not in tuple(Keep):
        raise InvalidPipelineError(f"keep must be 'first' or 'last'. keep={keep!r}")
    expiry_checks.check_expiry("deduplicate", expire_after_us, late, event_time, schema)


def _check_by(
    by: tuple[str, ...],
    keys: tuple[str, ...],
    schema: pa.Schema,
    keep: str,
    event_time: str | None,
    expire_after_us: int | None,
) -> None:
    """`by` can order the rows of a key, and a row that expires is never replaced by an older one."""
    for name in by:
        pipeline_checks.check_column(name, "deduplicate by=", schema)
        if name in keys or by.count(name) > 1:
            raise InvalidPipelineError(
                "order the rows of a key by columns other than the key's, each once. "
                f"column={name}, by={', '.join(by)}, keys={', '.join(keys)}"
            )
    if keep == Keep.FIRST:
        if by and expire_after_us is not None:
            raise InvalidPipelineError(
                "with expire_after the first row that is seen of a key comes out and stays, though a later epoch may "
                f"have one that is earlier by= a column: leave one of the two out. by={', '.join(by)}"
            )
        return
    if not by and event_time is None:
        raise InvalidPipelineError(
            "deduplicate with keep='last' needs an order: call with_watermark(column, delay) before it, or name the "
            "columns that say which row is the newest, such as by='version'. by=None, event_time=None"
        )
    if expire_after_us is not None and by and by[0] != event_time:
        raise InvalidPipelineError(
            "expire_after uses the event time of the kept row, and a row that is newer by= another column may have "
            f"an earlier one: leave expire_after out, or put the event time first. by={', '.join(by)}, "
            f"event_time={event_time}"
        )


def _rows(
    schema: pa.Schema,
    keys: tuple[str, ...],
    keep: Keep,
    by: tuple[str, ...],
    event_time: str | None,
    expire_after_us: int | None,
) -> KeptRows | FirstRows:
    order = tuple(dict.fromkeys((*by, *([] if event_time is None else [event_time]))))
    if keep is Keep.LAST:
        return KeptRows.newest(schema, keys, order, expire_after_us)
    if by:
        return KeptRows.earliest(schema, keys, order)
    if expire_after_us is None:
        return KeptRows.first_seen(schema, keys, order)
    assert event_time is not None, "checks require an event time for keys that expire"
    return FirstRows(schema, keys, event_time, expire_after_us)
