"""The regular join: rows of two inputs with equal keys, whenever they arrive, and as long as they are there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

import numpy as np
import pyarrow as pa

from dagster_ckpt.lsm.columns import Mask, Positions, flat, stack, take
from dagster_ckpt.lsm.table import Hashes, State
from dagster_ckpt.operators.joins import join_checks
from dagster_ckpt.operators.joins.join_types import LEFT, RIGHT, JoinType
from dagster_ckpt.operators.joins.joined_rows import Output, output_of, pairs_at_once
from dagster_ckpt.operators.joins.regular.arrived_keys import ArrivedKeys, pair_arrivals
from dagster_ckpt.operators.joins.regular.regular_side import STATE_COLUMNS, RegularSide, RowKey, counts_of, row_key_of
from dagster_ckpt.operators.joins.regular.weighted_rows import (
    GROUP_OF,
    WeightedRows,
    changed_pairs,
    concat_rows,
    repeat_positions,
    unite_rows,
)
from dagster_ckpt.operators.operator import (
    KEYS,
    NONE_LATE,
    Changes,
    EpochContext,
    LiveRows,
    Operator,
    Origins,
    keys_of_inputs,
)
from dagster_ckpt.operators.shared.bounded.lookups import BatchSize
from dagster_ckpt.operators.shared.bounded.output_pieces import OutputPieces
from dagster_ckpt.operators.shared.checks import updating_checks
from dagster_ckpt.operators.shared.net_changes import kept_rows
from dagster_ckpt.operators.shared.state_columns import whole_number
from dagster_ckpt.operators.shared.subkeys import subkey_hashes
from dagster_ckpt.operators.shared.zsets.zset import ZSet
from dagster_ckpt.operators.shared.zsets.zset_table import Weighed, ZSetTable
from dagster_ckpt.protocol.change_columns import DELETE, INSERT
from dagster_ckpt.protocol.manifest.manifest import InputSpec, Pipeline, StateTableSpec

COUNTS = "counts"
"""The state table."""
COUNT_COLUMNS = ("_left", "_right")

NAME = "regular_join"
KEYS_TOUCHED = "keys_touched"
"""Distinct keys among the epoch's rows; a null in a key matches nothing, and counts as none."""
COUNTERS = (KEYS_TOUCHED,)
EVERY_ROW = "_every_row"
"""The key of both inputs of a query's join that compares no keys: a constant, so that each row meets all others."""
_KEY_BYTES = 1 << 12
"""The assumed size of the rows of a key until the first keys are known."""


@dataclass(frozen=True)
class SideCounts:
    """The rows that a side has of n keys, before the epoch and after it."""

    before: Positions
    after: Positions


@dataclass(frozen=True)
class Counted:
    """The counts of n keys, by the number of the side, and in the table."""

    weighed: Weighed
    of_sides: dict[int, SideCounts]


@dataclass(frozen=True)
class KeyCounts:
    """How many rows each key has, kept for the sides that decide whether the other side's rows are unmatched."""

    left: RegularSide
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, left: RegularSide, how: JoinType) -> "KeyCounts":
        """The counts that this type of join needs."""
        needed = {RIGHT: how.keeps_unmatched(LEFT) or not how.gives_pairs, LEFT: how.keeps_unmatched(RIGHT)}
        return cls(left, tuple(number for number in (LEFT, RIGHT) if needed[number]))

    @property
    def specs(self) -> tuple[StateTableSpec, ...]:
        """The state table, if there is one."""
        if not self.numbers:
            return ()
        keys = [self.left.schema.field(key) for key in self.left.keys]
        counts = [whole_number(COUNT_COLUMNS[number]) for number in self.numbers]
        return (StateTableSpec(COUNTS, pa.schema([*keys, *counts]), self.left.keys),)

    def of_keys(self, arrived: ArrivedKeys, state: State) -> Counted | None:
        """The counts of the keys before and after the epoch; None if the join needs none.

        Raises `CorruptStateError` if there are fewer rows than none.
        """
        if not self.numbers:
            return None
        [spec] = self.specs
        schema = pa.schema([spec.schema.field(key) for key in spec.keys])
        keys = pa.Table.from_arrays([flat(column) for column in arrived.keys.columns], schema=schema)
        more = np.stack([arrived.more(number) for number in self.numbers])
        delta = ZSet(arrived.hashes, keys, more if len(more) > 1 else more[0])
        weighed = self._table.weigh(delta, state)
        self._table.check(weighed.after)
        sides = zip(np.atleast_2d(weighed.before), np.atleast_2d(weighed.after), strict=True)
        return Counted(weighed, dict(zip(self.numbers, starmap(SideCounts, sides), strict=True)))

    def put(self, counted: Counted, state: State) -> None:
        """Keep the counts after the epoch; a key without rows leaves the table."""
        self._table.write(counted.weighed, state)

    @property
    def _table(self) -> ZSetTable:
        [spec] = self.specs
        return ZSetTable(spec, tuple(COUNT_COLUMNS[number] for number in self.numbers))


@dataclass(frozen=True)
class RegularJoin(Operator):
    """The join of both inputs as they are: what an epoch adds to them and takes away changes the output.

    Null equals nothing. An unmatched row, if the join type keeps it, is in the output until it has a partner, and again
    when it has none. The changes are net by whole rows, so the order and the cutting of the rows never matter.
    """

    pipeline: Pipeline
    how: JoinType
    sides: tuple[RegularSide, RegularSide]
    counts: KeyCounts
    output: Output

    @classmethod
    def build(
        cls,
        inputs: Sequence[InputSpec],
        keys: Sequence[tuple[str, ...]],
        how: str = JoinType.INNER,
        row_keys: Sequence[RowKey] = (None, None),
        wheres: Sequence[str | None] = (None, None),
    ) -> "RegularJoin":
        """Check and plan the operator; raises `InvalidPipelineError`. The keys are compared in pairs.

        An input with `_change_type` changes. `inputs` have all columns, `pipeline.inputs` those that `on_rows` reads.
        `row_keys` identify the rows of an input that changes, where they can be (`updating_checks.row_key`). `wheres`
        are the texts of the conditions that selected its rows, for the fingerprint.
        """
        type_ = join_checks.join_type(how)
        join_checks.check_keys(inputs, keys)
        left, right = (RegularSide.of(number, inputs[number], keys[number], type_) for number in (LEFT, RIGHT))
        return cls._of_sides(inputs, (left, right), type_, row_key_of(type_, (left, right), row_keys), wheres)

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline) -> "RegularJoin":
        """The same operator from its fingerprint."""
        options: dict[str, Any] = pipeline.parameters
        how, keys = join_checks.join_type(options["how"]), keys_of_inputs(pipeline)
        left, right = (RegularSide.of(number, pipeline.inputs[number], keys[number], how) for number in (LEFT, RIGHT))
        row_key = options.get(updating_checks.ROW_KEY)
        wheres = options.get(updating_checks.WHERE, (None, None))
        return cls._of_sides(pipeline.inputs, (left, right), how, None if row_key is None else tuple(row_key), wheres)

    @classmethod
    def _of_sides(
        cls,
        inputs: Sequence[InputSpec],
        sides: tuple[RegularSide, RegularSide],
        how: JoinType,
        row_key: RowKey,
        wheres: Sequence[str | None],
    ) -> "RegularJoin":
        join_checks.check_names(sides, how, (), (*STATE_COLUMNS, *COUNT_COLUMNS, GROUP_OF))
        kept = [side for side in sides if side.number == LEFT or how.gives_pairs]
        appends = how in (JoinType.INNER, JoinType.SEMI) and not any(side.changes for side in sides)
        for source, side in zip(inputs, sides, strict=True):
            if side.changes:
                updating_checks.check_changes(source.schema)
            if not appends:
                side.check()
        output = output_of(*sides, how)
        join_checks.check_output(output.schema)
        counts = KeyCounts.of(sides[LEFT], how)
        options: dict[str, object] = {}
        if not appends:
            options[updating_checks.ROW_KEY] = None if row_key is None else list(row_key)
        if any(wheres):
            options[updating_checks.WHERE] = list(wheres)
        pipeline = Pipeline(
            operator=NAME,
            parameters={KEYS: [list(side.keys) for side in sides], "how": str(how), **options},
            inputs=tuple(
                replace(source, schema=pa.schema([source.schema.field(name) for name in side.read]))
                for source, side in zip(inputs, sides, strict=True)
            ),
            keys=sides[LEFT].keys,
            tables=(
                *(table for side in kept for table in side.tables),
                *counts.specs,
                *(side.arrivals for side in sides),
            ),
            output=output.schema,
            appends=appends,
        )
        return cls(pipeline, how, sides, counts, output)

    @property
    def shard_keys(self) -> Sequence[Sequence[str]]:
        # The left's is null in unmatched rows of the right.
        of = self.sides if self.how.keeps_unmatched(RIGHT) else self.sides[:1]
        return [tuple(dict.fromkeys(names)) for names in zip(*(side.keys for side in of), strict=True)]

    @property
    def origins(self) -> Origins:
        return self.output.origins

    def on_rows(self, number: int, hashes: Hashes, rows: pa.Table, state: State, context: EpochContext) -> Positions:
        side = self.sides[number]
        wanted = np.ones(rows.num_rows, dtype=np.bool_)
        if not self.how.keeps_unmatched(number):
            wanted = side.matchable(rows)  # unmatched rows are never emitted
        if not wanted.all():
            hashes, rows = hashes[wanted], take(rows, np.flatnonzero(wanted))
        if rows.num_rows:
            side.put_arrivals(hashes, rows, state, context)
        return NONE_LATE

    def finish(self, state: State, context: EpochContext) -> Iterator[Changes]:
        pieces = OutputPieces(self.output.schema, context.memory_bytes // 2)
        batch = BatchSize(context.memory_bytes // 4, _KEY_BYTES, growth_max=16)
        for both in pair_arrivals(self.sides, state):
            left, right = (side.net(*piece) for side, piece in zip(self.sides, both, strict=True))
            matchable = [side.matchable(each.rows) for side, each in zip(self.sides, (left, right), strict=True)]
            without = [each.only(np.flatnonzero(~mask)) for each, mask in zip((left, right), matchable, strict=True)]
            for kind, rows in self._without_key(without):
                yield from pieces.add(rows, kind)
            left, right = (each.only(np.flatnonzero(mask)) for each, mask in zip((left, right), matchable, strict=True))
            arrived = ArrivedKeys.of(self.sides, (left, right))
            context.counters[KEYS_TOUCHED] += len(arrived)
            for part, counted, found in self._look_up(arrived, state, batch):
                counts = {} if counted is None else counted.of_sides
                for kind, rows in self._changes(part, found, counts, context):
                    yield from pieces.add(rows, kind)
                if counted is not None:
                    self.counts.put(counted, state)
                for side, net in zip(self.sides, part.sides, strict=True):
                    if side.number == LEFT or self.how.gives_pairs:
                        side.apply(net, state)
                yield from pieces.count(sum(net.rows.nbytes for net in part.sides))
        for side in self.sides:
            state.table(side.arrivals.name).expire(1)
        yield from pieces.rest()

    def rows_kept(self, live: LiveRows) -> Iterator[tuple[int, pa.Table]]:
        """Without those with a null in their key, which no table has: they are in the output of no inner or semi join.

        For the right of a semi join one row of each key stands for all.
        """
        for side, source in zip(self.sides, self.pipeline.inputs, strict=True):
            if side.number == LEFT or self.how.gives_pairs:
                for piece in live(side.tables[0].name):
                    yield side.number, kept_rows(piece, counts_of(piece), source.schema)
                continue
            [spec] = self.counts.specs
            for piece in live(spec.name):
                there = np.minimum(flat(piece.column(COUNT_COLUMNS[RIGHT])).to_numpy(), 1)
                keys = piece.select(list(spec.keys)).rename_columns(list(side.keys))
                yield side.number, kept_rows(keys, there, source.schema)

    def _look_up(
        self, arrived: ArrivedKeys, state: State, batch: BatchSize
    ) -> Iterator[tuple[ArrivedKeys, Counted | None, tuple[WeightedRows, WeightedRows]]]:
        """Parts of the keys, with their counts and the rows that were there and that the rows which arrived meet."""
        first = 0
        while first < len(arrived):
            part = arrived.part(first, min(first + batch.count, len(arrived)))
            counted = self.counts.of_keys(part, state)
            lefts, rights = part.has(RIGHT), part.has(LEFT)
            if not self.how.gives_pairs:
                assert counted is not None, "it depends on the counts of the right whether left rows are emitted"
                counts = counted.of_sides[RIGHT]
                lefts, rights = (counts.before > 0) != (counts.after > 0), np.zeros(len(part), dtype=np.bool_)
            met = self._rows_there(LEFT, part, lefts, state), self._rows_there(RIGHT, part, rights, state)
            if batch.learn(len(part), sum(each.rows.nbytes for each in met)):
                yield part, counted, met
                first += len(part)
            del met  # one result at a time

    def _rows_there(self, number: int, part: ArrivedKeys, wanted: Mask, state: State) -> WeightedRows:
        """The rows of one side that were there before the epoch, of these keys."""
        side, at = self.sides[number], np.flatnonzero(wanted)
        if len(at) == 0:
            return _none_of(side)
        found = side.of_keys(part.hashes[at], take(part.keys, at).columns, state)
        counts = counts_of(found.rows)
        return WeightedRows.of(found.rows.select(side.schema.names), at[found.asked], counts, counts)

    def _changes(
        self,
        part: ArrivedKeys,
        found: tuple[WeightedRows, WeightedRows],
        counts: dict[int, SideCounts],
        context: EpochContext,
    ) -> Iterator[tuple[str, pa.Table]]:
        put_together = concat_rows if self.pipeline.appends else unite_rows
        lefts, rights = (
            put_together([there, _net_rows(side, part), *self._stand_ins(side, part, counts)])
            for side, there in zip(self.sides, found, strict=True)
        )
        if not self.how.gives_pairs:
            rights = self._presence(counts[RIGHT])
        most = pairs_at_once(lefts.rows, rights.rows, context.memory_bytes // 2)
        for left, right, more in changed_pairs(lefts, rights, most):
            for kind, wanted, times in ((INSERT, more > 0, more), (DELETE, more < 0, -more)):
                at = np.flatnonzero(wanted)
                for each in repeat_positions(times[at], most):
                    yield kind, self.output.pairs(lefts.rows, left[at[each]], rights.rows, right[at[each]])

    def _stand_ins(self, side: RegularSide, part: ArrivedKeys, counts: dict[int, SideCounts]) -> Iterator[WeightedRows]:
        """What stands in for rows of a side, of keys of which it has none, where the other side is kept unmatched."""
        if not (self.how.gives_pairs and self.how.keeps_unmatched(1 - side.number)):
            return
        none_before, none_after = (each == 0 for each in (counts[side.number].before, counts[side.number].after))
        at = np.flatnonzero(none_before | none_after)
        shared = {mine for mine, theirs in zip(*(each.keys for each in self.sides), strict=True) if mine == theirs}
        key_of = dict(zip(side.keys, part.keys.columns, strict=True))
        columns = [
            flat(key_of[field.name]).take(pa.array(at)) if field.name in shared else pa.nulls(len(at), field.type)
            for field in side.schema
        ]
        rows = pa.Table.from_arrays(columns, schema=side.schema)
        yield WeightedRows.stand_ins(rows, at, none_before[at].astype(np.int64), none_after[at].astype(np.int64))

    def _presence(self, rights: SideCounts) -> WeightedRows:
        """For a semi or an anti join one right row of each key, there if the left rows of the key are emitted."""
        before, after = ((each > 0) == (self.how is JoinType.SEMI) for each in (rights.before, rights.after))
        groups = np.arange(len(before))
        return WeightedRows.of(pa.table({GROUP_OF: groups}), groups, before.astype(np.int64), after.astype(np.int64))

    def _without_key(self, net: Sequence[ZSet]) -> Iterator[tuple[str, pa.Table]]:
        """The output for rows with a null in their key, which have no partners and are kept nowhere."""
        parts = [(each.weights, self.output.alone(number, each.rows)) for number, each in enumerate(net)]
        parts = parts[: 1 + self._two_sided]
        rows, weights = stack([rows for _, rows in parts]), np.concatenate([weights for weights, _ in parts])
        # An unmatched row of the left and one of the right may be equal.
        delta = ZSet(subkey_hashes(np.zeros(len(weights), dtype=np.uint64), rows.columns), rows, weights).consolidate()
        for kind, weights in ((INSERT, delta.weights), (DELETE, -delta.weights)):
            at = np.flatnonzero(weights > 0)
            for each in repeat_positions(weights[at], max(1, len(rows))):
                yield kind, take(delta.rows, at[each])

    @property
    def _two_sided(self) -> bool:
        return self.how.gives_pairs


def _net_rows(side: RegularSide, part: ArrivedKeys) -> WeightedRows:
    """The net rows of a side: what was there of them is in the rows found, or meets only rows that stay."""
    net = part.sides[side.number]
    return WeightedRows.of(
        net.rows.select(side.schema.names), part.groups[side.number], np.zeros_like(net.weights), net.weights
    )


def _none_of(side: RegularSide) -> WeightedRows:
    nothing = np.zeros(0, dtype=np.int64)
    return WeightedRows.of(side.schema.empty_table(), nothing, nothing, nothing)
