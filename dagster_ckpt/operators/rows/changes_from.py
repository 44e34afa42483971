"""Changes of a table elsewhere, such as a database's, become that table again: the newest row of each key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.lsm.columns import Mask, Positions, flat, flatten, rows_equal, stack, take, to_mask
from dagster_ckpt.lsm.runs.deltas import select
from dagster_ckpt.lsm.runs.key_order import KeyOrder, key_order
from dagster_ckpt.lsm.table import Found, Hashes, State
from dagster_ckpt.operators.operator import NONE_LATE, Changes, EpochContext, Operator, StreamTable
from dagster_ckpt.operators.rows.row_choice import RowChoice
from dagster_ckpt.operators.shared import expiry_checks
from dagster_ckpt.operators.shared.arrays.value_order import End, has_fixed_width, is_orderable
from dagster_ckpt.operators.shared.checks import pipeline_checks
from dagster_ckpt.operators.shared.event_time_range import late_rows
from dagster_ckpt.operators.shared.late_rows import DROP
from dagster_ckpt.operators.shared.net_changes import table_of_columns
from dagster_ckpt.operators.shared.state_columns import micros, whole_number
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

NAME = "changes_from"
ROWS = "rows"
"""The state table: the stream's table, the sequence of each row, and `PUT_IN`."""
TOMBSTONES = "tombstones"
"""The keys that were deleted, with the sequence of the delete."""
PUT_IN = "_put_in"
"""The epoch that put the row or the tombstone."""
DELETED_AT = "_deleted_at"
"""The time of a delete, by which its tombstone expires."""

KIND = "_kind"
"""The input's column that says what a change does: `PUT`, `DELETE`, or why it cannot be applied."""
PUT, DELETE = "put", "delete"
TRUNCATE, UNREADABLE, NO_ROW, UNORDERED = "truncate", "unreadable", "no row", "unordered"
_REFUSED: Mapping[str | None, str] = {
    TRUNCATE: "the table was truncated at its source, and one event cannot delete the rows of all shards: filter the "
    "event out of the DataFrame, and start over with rollback(0) from a source that begins after it",
    UNREADABLE: "a record is not a change event with this schema: correct schema=, or filter the record out of the "
    "DataFrame",
    NO_ROW: "a change comes without its row: have the source send the key with each delete (REPLICA IDENTITY of the "
    "table in PostgreSQL, `before` in Debezium)",
    UNORDERED: "a change has a position in a form that is not known, so its order is unknown: name columns that order "
    "changes, sequence=, such as sequence='offset' for the order of the topic",
    None: "a change does not say what it does: fill the column with the operation",
}

OUTDATED = "outdated_changes"
"""Changes that are older than what an earlier epoch has kept of their key: out of order, or sent again. Dropped."""
REPEATED = "repeated_changes"
"""Changes that the key has already, with the same sequence. Dropped."""
COUNTERS = (OUTDATED, REPEATED)


@dataclass(frozen=True)
class ChangesFrom(Operator):
    """The newest row of each key, until it is deleted.

    The newest change is the one with the greatest `sequence` columns, compared in turn, then `ties`; null is less than
    any value. So the order and the cutting of the changes never matter. A delete leaves a tombstone with its sequence,
    so that an older change that comes later does not bring the row back. A change that equals what is kept has no
    effect. Two different changes of a key with equal sequence and ties raise `InvalidPipelineError`.

    Tombstones expire when the watermark has passed the time of the delete by `deletes_expire_after_us`. From then on a
    change that is as old is late where its key has no row. None: tombstones stay.
    """

    pipeline: Pipeline
    sequence: tuple[str, ...]
    ties: tuple[str, ...]
    time: str | None
    deletes_expire_after_us: int | None

    @classmethod
    def build(
        cls,
        keys: tuple[str, ...],
        source: InputSpec,
        output: tuple[str, ...],
        sequence: tuple[str, ...],
        ties: tuple[str, ...] = (),
        time: str | None = None,
        deletes_expire_after_us: int | None = None,
    ) -> "ChangesFrom":
        """Check the operator; raises `InvalidPipelineError`.

        `output` names the columns of the table. `source` has these, the others that are named, and `KIND`, a string.
        """
        schema = source.schema
        table = pa.schema([schema.field(name) for name in output])
        _check(keys, table, schema, sequence, ties)
        if deletes_expire_after_us is None:
            time = None
        expiry_checks.check_expiry(NAME, deletes_expire_after_us, DROP, time, schema)
        marks = [schema.field(name) for name in (*sequence, *ties)]
        put_in = whole_number(PUT_IN)
        rows = pa.schema([*table, *(field for field in marks if field.name not in output), put_in])
        graves = [*(schema.field(key) for key in keys), *marks, put_in]
        if time is not None:
            graves.append(pa.field(DELETED_AT, schema.field(time).type, nullable=False))
        pipeline = Pipeline(
            operator=NAME,
            parameters={
                "sequence": list(sequence),
                **({"ties": list(ties)} if ties else {}),
                **({} if time is None else {"time": time, "deletes_expire_after_us": deletes_expire_after_us}),
            },
            inputs=(source,),
            keys=keys,
            tables=(
                StateTableSpec(ROWS, rows, keys),
                StateTableSpec(TOMBSTONES, pa.schema(graves), keys, time=None if time is None else DELETED_AT),
            ),
            output=table,
        )
        return cls(pipeline, sequence, ties, time, deletes_expire_after_us)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "ChangesFrom":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        return cls.build(
            pipeline.keys,
            pipeline.inputs[0],
            tuple(pipeline.output.names),
            tuple(options["sequence"]),
            tuple(options.get("ties", ())),
            options.get("time"),
            options.get("deletes_expire_after_us"),
        )

    @property
    def event_times(self) -> tuple[str | None, ...]:
        return (self.time,)

    @property
    def table(self) -> StreamTable:
        return table_of_columns(ROWS, self.pipeline.keys, self.pipeline.output.names)

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        self._expire(state, context)
        rows = flatten(rows)
        deletes = self._deletes(rows)
        keys = self._keys_of(rows)
        groups = key_order(hashes, keys)
        firsts = groups.order[groups.starts]
        kept = self._look_up(hashes[firsts], take(keys, firsts), state)
        newer = self._newer(rows, deletes, groups, kept, context)
        late = self._late(rows, groups, kept, context)
        newer[late] = False
        best = self._best(rows, deletes, groups, newer)
        if len(best.rows):
            self._apply(hashes, rows, deletes, best, kept, state, context)
        return late

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        self._expire(state, context)
        yield from map(self.table.changes_of, state.table(ROWS).touched_keys())

    @property
    def _marks(self) -> list[str]:
        return [*self.sequence, *self.ties]

    @property
    def _order(self) -> RowChoice:
        return RowChoice((), tuple(self._marks), End.GREATEST)

    def _keys_of(self, rows: pa.Table) -> pa.Table:
        return rows.select(list(self.pipeline.keys))

    def _deletes(self, rows: pa.Table) -> Mask:
        """Which changes are deletes. Raises `InvalidPipelineError` for a change that cannot be applied."""
        kinds = flat(rows.column(KIND)).cast(pa.string())
        deletes = to_mask(pc.fill_null(pc.equal(kinds, DELETE), False))
        refused = np.flatnonzero(~(deletes | to_mask(pc.fill_null(pc.equal(kinds, PUT), False))))
        if len(refused):
            kind = kinds[int(refused[0])].as_py()
            reason = _REFUSED.get(kind, f"unknown operation {kind!r}: make it an insert, an update or a delete")
            raise InvalidPipelineError(f"{reason}. {self._position(rows, refused[0])}")
        for names, advice in (
            (self.pipeline.keys, "a change has no key: check that the key columns have the names that the source uses"),
            (self.sequence, "a change has no position in the source's order: name the columns that have it, sequence="),
        ):
            valid = np.zeros(rows.num_rows, dtype=np.bool_)
            for name in names:
                valid |= to_mask(pc.is_valid(flat(rows.column(name))))
            if not valid.all():
                wrong = np.flatnonzero(~valid)[0]
                columns = ", ".join(name.removeprefix("_") for name in names)
                raise InvalidPipelineError(f"{advice}. columns={columns}, {self._position(rows, wrong)}")
        if self.deletes_expire_after_us is not None:
            self._check_times(rows, np.flatnonzero(deletes))
        self._check_widths(rows.select(self._marks))
        return deletes

    def _check_widths(self, marks: pa.Table) -> None:
        """Positions that are text have one length: else the text of a number would have another order than the number.

        Raises `InvalidPipelineError` where they do not.
        """
        for name, field in zip(marks.column_names, marks.schema, strict=True):
            if has_fixed_width(field.type):
                continue
            lengths = pc.min_max(pc.binary_length(marks.column(name))).as_py()
            if lengths["min"] != lengths["max"]:
                raise InvalidPipelineError(
                    "positions that are text have different lengths, and as text '1000' comes before '999': cast the "
                    "column to a number or a timestamp, or fill it up to one length. "
                    f"column={name.removeprefix('_')}, lengths={lengths['min']}, {lengths['max']}"
                )

    def _check_times(self, rows: pa.Table, deletes: Positions) -> None:
        """Check that each delete has a time, by which its tombstone can expire."""
        assert self.time is not None, "checks require a time for tombstones that expire"
        times = flat(take(rows.select([self.time]), deletes).column(0))
        wrong = late_rows(times, None) if times.null_count == 0 else np.flatnonzero(to_mask(pc.is_null(times)))
        if len(wrong):
            raise InvalidPipelineError(
                "a delete has no valid time, so its tombstone would never expire: fill the column, or leave "
                f"deletes_expire_after out. column={self.time}, {self._position(rows, deletes[wrong[0]])}"
            )

    def _look_up(self, hashes: Hashes, keys: pa.Table, state: State) -> "_Kept":
        rows = state.table(ROWS).get(hashes, keys)
        absent = np.flatnonzero(~rows.present)
        graves = state.table(TOMBSTONES).get(hashes[absent], take(keys, absent))
        deleted = np.zeros(len(hashes), dtype=np.bool_)
        deleted[absent] = graves.present
        marks = [*self._marks, PUT_IN]
        at = np.full(len(hashes), -1, dtype=np.int64)
        at[rows.present] = np.arange(rows.rows.num_rows)
        at[deleted] = rows.rows.num_rows + np.arange(graves.rows.num_rows)
        return _Kept(rows, Found(deleted, graves.rows), stack([each.rows.select(marks) for each in (rows, graves)]), at)

    def _newer(self, rows: pa.Table, deletes: Mask, groups: KeyOrder, kept: "_Kept", context: EpochContext) -> Mask:
        """Which changes are newer than what is kept of their key. The others are counted, and have no effect."""
        newer = np.ones(rows.num_rows, dtype=np.bool_)
        its_kept = np.repeat(kept.at, groups.sizes)
        rivals = np.flatnonzero(its_kept >= 0)
        if len(rivals) == 0:
            return newer
        mine = groups.order[rivals]
        marks, olds = take(rows.select(self._marks), mine), take(kept.marks, its_kept[rivals])
        self._check_widths(stack([marks, olds.select(self._marks)]))
        newer[mine] = wins = self._order.beats(marks, olds.select(self._marks))
        losers = np.flatnonzero(~wins)
        marks, olds = take(marks, losers), take(olds, losers)
        tied = rows_equal(marks, olds.select(self._marks))
        key_numbers = np.repeat(np.arange(len(kept.at)), groups.sizes)[rivals[losers[tied]]]
        there = np.cumsum(kept.rows.present)[key_numbers] - 1
        self._check_same(rows, deletes, mine[losers[tied]], kept.rows.rows, there, kept.tombstones.present[key_numbers])
        # Behind a row of this epoch, a change may as well have come in order.
        same = rows_equal(marks.select(list(self.sequence)), olds.select(list(self.sequence)))
        before = flat(olds.column(PUT_IN)).to_numpy() != context.number
        context.counters[REPEATED] += int(np.count_nonzero(tied))
        context.counters[OUTDATED] += int(np.count_nonzero(~same & before))
        return newer

    def _late(self, rows: pa.Table, groups: KeyOrder, kept: "_Kept", context: EpochContext) -> Positions:
        """Changes of keys without a row or tombstone that are so old that a tombstone of theirs may have expired."""
        until_us = self._until_us(context)
        if until_us is None or self.time is None:
            return NONE_LATE
        unknown = np.sort(groups.order[np.repeat(kept.at < 0, groups.sizes)])
        return unknown[late_rows(flat(take(rows.select([self.time]), unknown).column(0)), until_us)]

    def _best(self, rows: pa.Table, deletes: Mask, groups: KeyOrder, wanted: Mask) -> "_Best":
        """The newest of the wanted changes of each key that has any."""
        order = np.flatnonzero(wanted[groups.order])
        key_numbers = np.repeat(np.arange(len(groups.starts)), groups.sizes)[order]
        order = groups.order[order]
        begins = np.flatnonzero(np.diff(key_numbers, prepend=-1))
        sizes = np.diff(begins, append=len(order))
        if len(begins) == len(order):
            return _Best(order, key_numbers)
        marks = rows.select(self._marks)
        best = self._order.of_groups(marks, order, sizes)
        rivals, of = np.flatnonzero(np.repeat(sizes > 1, sizes)), np.repeat(best, sizes)
        tied = rivals[rows_equal(take(marks, order[rivals]), take(marks, of[rivals]))]
        self._check_same(rows, deletes, order[tied], rows, of[tied], deletes[of[tied]])
        return _Best(best, key_numbers[begins])

    def _check_same(
        self, rows: pa.Table, deletes: Mask, tied: Positions, others: pa.Table, at: Positions, deleted: Mask
    ) -> None:
        """Changes and what has their sequence and key, row `at` of the others or `deleted`, are the same.

        Raises `InvalidPipelineError` where they are not.
        """
        same = deletes[tied] == deleted
        puts = np.flatnonzero(same & ~deleted)
        names = self.pipeline.output.names
        same[puts] = rows_equal(take(rows.select(names), tied[puts]), take(others.select(names), at[puts]))
        if not same.all():
            raise InvalidPipelineError(
                "two different changes of a key have the same position in the source's order, so the newer one is "
                "unknown: add a column to sequence= that tells them apart, such as Kafka's offset. "
                f"keys={', '.join(self.pipeline.keys)}, {self._position(rows, tied[np.flatnonzero(~same)[0]])}"
            )

    def _apply(
        self,
        hashes: Hashes,
        rows: pa.Table,
        deletes: Mask,
        best: "_Best",
        kept: "_Kept",
        state: State,
        context: EpochContext,
    ) -> None:
        table, graves = state.table(ROWS), state.table(TOMBSTONES)
        gone = deletes[best.rows]
        put, put_keys = best.rows[~gone], best.keys[~gone]
        if len(put):
            added = take(rows.select(self.pipeline.tables[0].schema.names[:-1]), put)
            table.put(hashes[put], self._in_epoch(added, context), before=select(kept.rows, put_keys))
        back = put[kept.tombstones.present[put_keys]]
        if len(back):
            graves.delete(hashes[back], take(self._keys_of(rows), back))
        had = kept.rows.present[best.keys] & gone
        if had.any():
            before = select(kept.rows, best.keys[had])
            table.delete(hashes[best.rows[had]], take(self._keys_of(rows), best.rows[had]), before=before)
        if gone.any():
            dead = best.rows[gone]
            added = self._in_epoch(take(rows.select([*self.pipeline.keys, *self._marks]), dead), context)
            if self.deletes_expire_after_us is not None:
                times = self._times(take(rows, dead), select(kept.tombstones, best.keys[gone]))
                added = added.append_column(pa.field(DELETED_AT, times.type, nullable=False), times)
            graves.put(hashes[dead], added)

    def _times(self, rows: pa.Table, graves: Found) -> pa.Array:
        """The times of deletes. A key's time in a table that expires never decreases."""
        times = flat(rows.column(self.time))
        at_us = micros(times).copy()
        had = np.flatnonzero(graves.present)
        at_us[had] = np.maximum(at_us[had], micros(graves.rows.column(DELETED_AT)))
        return pa.array(at_us).view(times.type)

    def _in_epoch(self, rows: pa.Table, context: EpochContext) -> pa.Table:
        return rows.append_column(whole_number(PUT_IN), pa.array(np.full(rows.num_rows, context.number)))

    def _until_us(self, context: EpochContext) -> int | None:
        """Tombstones of deletes before this have expired."""
        if self.deletes_expire_after_us is None or context.watermark_us is None:
            return None
        return context.watermark_us - self.deletes_expire_after_us + 1

    def _expire(self, state: State, context: EpochContext) -> None:
        until_us = self._until_us(context)
        if until_us is not None:
            state.table(TOMBSTONES).expire(until_us)

    def _position(self, rows: pa.Table, row: int) -> str:
        """Where a change is in the source's order. Not its key, which may be secret."""
        marks = rows.select(self._marks).slice(int(row), 1).to_pylist()[0]
        return ", ".join(f"{name.removeprefix('_')}={value}" for name, value in marks.items() if value is not None)


@dataclass(frozen=True)
class _Kept:
    """What the state has of n keys: a row, a tombstone or neither.

    `marks` are the sequences of the rows, then those of the tombstones; `at` is each key's place in it, -1 for none.
    """

    rows: Found
    tombstones: Found
    marks: pa.Table
    at: Positions


@dataclass(frozen=True)
class _Best:
    """The changes to apply, by their positions, and the number of the key of each."""

    rows: Positions
    keys: Positions


def _check(
    keys: tuple[str, ...], table: pa.Schema, schema: pa.Schema, sequence: tuple[str, ...], ties: tuple[str, ...]
) -> None:
    pipeline_checks.check_columns(table)
    pipeline_checks.check_storable(table)
    pipeline_checks.check_keys(keys, table)
    expiry_checks.check_names_are_free(table, [PUT_IN, DELETED_AT, KIND])
    if not sequence:
        raise InvalidPipelineError(
            "changes need an order: name the columns that have the position in the source's log, sequence=. sequence=()"
        )
    for name in (*sequence, *ties):
        pipeline_checks.check_column(name, "changes_from sequence=", schema)
        if name in keys or (*sequence, *ties).count(name) > 1:
            raise InvalidPipelineError(
                "sequence= must name columns outside the key, each only once. "
                f"column={name}, sequence={', '.join(sequence)}, keys={', '.join(keys)}"
            )
        if not is_orderable(schema.field(name).type):
            raise InvalidPipelineError(
                f"the sequence needs values that have an order: cast the column. column={name}, "
                f"type={schema.field(name).type}"
            )
