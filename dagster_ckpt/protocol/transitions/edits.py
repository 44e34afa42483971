"""How one manifest becomes the next: a value, an edit, another value. `manifest_rules` checks the result."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Nonce, StreamUuid, Term, Version
from dagster_ckpt.protocol.ack import ShardAck
from dagster_ckpt.protocol.epochs.lineage import limit_retained
from dagster_ckpt.protocol.epochs.upstream import consumption, total_backfill
from dagster_ckpt.protocol.manifest.manifest import (
    ABANDONED_MAX,
    Ancestor,
    ChangeRef,
    EpochRange,
    IndexedList,
    IndexRef,
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    ReadBy,
    Retained,
    RunRef,
    ShardTime,
    SourcePosition,
)
from dagster_ckpt.protocol.transitions.append_merges import with_merged
from dagster_ckpt.protocol.transitions.epoch_statistics import statistics_after, total_bytes, work_of_steps
from dagster_ckpt.protocol.transitions.source_moves import Moves, positions_gone_on

ROLLBACKS_MAX = 100
SLOWEST_MAX = 16
"""The most shards whose times a manifest has."""

NO_OWNER = Owner("", "")
"""The owner of a stream that no writer has opened yet: the first to open it becomes its owner."""

Ref = TypeVar("Ref", RunRef, ChangeRef, IndexRef)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What is unique to each manifest: the identity of its bytes, and when it was made."""

    nonce: Nonce
    time_ms: int


@dataclass(frozen=True, slots=True)
class EpochEdit:
    """All that an epoch changes. It becomes visible as a whole, or not at all.

    `acks` has one for every shard. `sources` are the positions after the epoch, each with its parent's list of files
    and new ones at its end. `delays_us` is for each input how late its rows may come (None: it has no watermark),
    `idle` whether it has been silent for so long that the watermark does not wait for it. `ran_tasks`: tasks have run,
    so all rows due at the parent's watermark were emitted. `at_least_us` advances it, whatever event times the rows
    have. `interval_ms` is the time between two epochs, None if each micro-batch is one. `functions` are the
    digests of the code that made the epoch. `read_by` says who has read its rows.
    """

    acks: tuple[ShardAck, ...]
    sources: tuple[SourcePosition, ...]
    batch_id: int
    epoch_ms: int
    delays_us: tuple[int | None, ...] = ()
    idle: tuple[bool, ...] = ()
    ran_tasks: bool = True
    at_least_us: int | None = None
    interval_ms: int | None = None
    functions: tuple[tuple[str, str], ...] = ()
    read_by: ReadBy | None = None


@dataclass(frozen=True)
class Beginning:
    """What a stream is created with; its number of shards stays."""

    stream: str
    uuid: StreamUuid
    owner: Owner
    pipeline: Pipeline
    shards: int


def first_manifest(beginning: Beginning, stamp: Stamp) -> Manifest:
    """Version 1: the empty stream, opened by its creator."""
    return Manifest(
        version=FIRST,
        kind=ManifestKind.OPEN,
        epoch=EMPTY,
        term=Term(FIRST),
        nonce=stamp.nonce,
        time_ms=stamp.time_ms,
        stream=beginning.stream,
        uuid=beginning.uuid,
        owner=beginning.owner,
        pipeline=beginning.pipeline,
        shards=beginning.shards,
        runs=no_runs(beginning.pipeline, beginning.shards),
    )


@dataclass(frozen=True, slots=True)
class Forking:
    """The stream that a fork makes, and all whose files it will name, its origin last."""

    stream: str
    uuid: StreamUuid
    ancestors: tuple[Ancestor, ...]


def fork_manifest(shown: Manifest, forking: Forking, stamp: Stamp) -> Manifest:
    """Version 1 of a new stream that shows, as its epoch 1, what `shown` does: its table, state and positions.

    It has no owner and no sink marks, and names only files of its ancestors.
    """
    return replace(
        shown,
        version=FIRST,
        kind=ManifestKind.FORK,
        epoch=Epoch(FIRST),
        term=Term(FIRST),
        nonce=stamp.nonce,
        time_ms=stamp.time_ms,
        stream=forking.stream,
        uuid=forking.uuid,
        owner=NO_OWNER,
        parent=None,
        parent_nonce=None,
        shown_nonce=None,
        runs=runs_elsewhere(shown),
        changes=(),
        files=IndexedList(
            tuple(_elsewhere(ref, shown.uuid) for ref in shown.files.index),
            tuple(_elsewhere(file, shown.uuid) for file in shown.files.tail),
        ),
        sources=sources_elsewhere(shown),
        sinks=(),
        # The fork has pins of its own, and no reader from before the swaps.
        ancestors=tuple(replace(each, swapped=False, handover=None) for each in forking.ancestors),
        retained=(Retained(Epoch(FIRST), FIRST, stamp.time_ms),),
        abandoned=(),
        rollbacks=(),
    )


def forked_empty(origin: Manifest, forking: Forking, stamp: Stamp) -> Manifest:
    """Version 1 of a new, empty stream that begins as `origin` did: at epoch 0, where its sources began."""
    beginning = Beginning(forking.stream, forking.uuid, NO_OWNER, origin.pipeline, origin.shards)
    return replace(
        first_manifest(beginning, stamp),
        kind=ManifestKind.FORK,
        ancestors=forking.ancestors,
        # Another stream, which may begin with another table.
        sources=initial_positions(replace(each, table=None) for each in origin.sources),
    )


def initial_positions(sources: Iterable[SourcePosition]) -> tuple[SourcePosition, ...]:
    """The sources unread, each at its recorded beginning. One without a record is left out: `latest` was a moment."""
    return tuple(
        SourcePosition(position.source, initial=position.initial, topics=position.topics, table=position.table)
        for position in sources
        if position.initial is not None or position.table is not None
    )


def following(parent: Manifest, kind: ManifestKind, stamp: Stamp, **changes: Any) -> Manifest:
    """The next manifest of the chain: its parent with these changes."""
    return replace(
        parent,
        version=Version(parent.version + 1),
        kind=kind,
        nonce=stamp.nonce,
        time_ms=stamp.time_ms,
        parent=parent.version,
        parent_nonce=parent.nonce,
        shown_nonce=None if kind.makes_epoch else parent.epoch_nonce,
        **changes,
    )


def opening_manifest(parent: Manifest, owner: Owner, pipeline: Pipeline, stamp: Stamp, moves: Moves = ()) -> Manifest:
    """The parent's epoch under a new term. Any pipeline can open the empty stream.

    The positions take the pipeline's identities for their sources, some of which may have moved.
    """
    return following(
        parent,
        ManifestKind.OPEN,
        stamp,
        term=Term(parent.version + 1),
        owner=owner,
        pipeline=pipeline,
        runs=parent.runs if parent.epoch != EMPTY else no_runs(pipeline, parent.shards),
        sources=positions_gone_on(parent.sources, pipeline, moves),
    )


def rollback_manifest(parent: Manifest, target: Manifest | None, root_run: str, moves: Moves = ()) -> Manifest:
    """`parent`, just opened, made to show the epoch of `target` (None: epoch 0, the empty stream).

    The epochs in between are abandoned; they stay readable until retired. `root_run` requested the rollback, and is
    recorded so that it is honoured only once. A target that was retired, and is from a pin, is retained again: as this
    manifest shows it.
    """
    epoch = EMPTY if target is None else target.epoch
    shown = _empty(parent) if target is None else _show(parent, target, moves)
    again = (
        ()
        if target is None or epoch in {entry.epoch for entry in parent.retained}
        else (Retained(epoch, parent.version, target.time_ms),)
    )
    return replace(
        shown,
        kind=ManifestKind.ROLLBACK,
        retained=tuple(sorted((*again, *parent.retained), key=lambda entry: entry.epoch)),
        abandoned=abandon_after(parent.abandoned, epoch, parent.epoch),
        rollbacks=(*parent.rollbacks, root_run)[-ROLLBACKS_MAX:],
    )


def reshard_manifest(
    parent: Manifest, shards: int, runs: dict[str, tuple[tuple[RunRef, ...], ...]], stamp: Stamp
) -> Manifest:
    """The parent's epoch with another number of shards, by the writer that has the stream open.

    `runs` are those of all tables. The change log stays as it is: its files name the shards that the epoch had when it
    was made.
    """
    return following(
        parent,
        ManifestKind.RESHARD,
        stamp,
        shards=shards,
        runs=runs,
        statistics=replace(parent.statistics, state_bytes=total_bytes(runs)),
    )


def epoch_manifest(parent: Manifest, edit: EpochEdit, retained: int, stamp: Stamp) -> Manifest:
    """The next epoch. Its lists may have grown long: `indexed_lists` shortens them before it is created."""
    parts = [(step, shard) for step in range(len(parent.pipeline.steps)) for shard in range(parent.shards)]
    assert sorted((ack.step, ack.shard) for ack in edit.acks) == parts, "every shard must ACK exactly once in each step"
    version, epoch = Version(parent.version + 1), Epoch(parent.version + 1)
    runs = _runs(parent, edit.acks)
    changes = tuple(change for ack in edit.acks for change in ack.changes)
    event_times_us = _greatest([parent.event_times_us, *(ack.event_times_us for ack in edit.acks)])
    files = parent.files
    if parent.pipeline.appends:  # the change log is the stream's table
        tail = with_merged(files.tail, (ack.files_merged for ack in edit.acks if ack.files_merged is not None))
        files = IndexedList(files.index, (*tail, *changes))
    return following(
        parent,
        ManifestKind.EPOCH,
        stamp,
        epoch=epoch,
        batch_id=edit.batch_id,
        runs=runs,
        changes=changes,
        files=files,
        watermark_us=moved_watermark(parent.watermark_us, event_times_us, edit),
        event_times_us=event_times_us,
        sources=edit.sources,
        consumed=consumption(edit.sources),
        backfill=total_backfill(edit.sources),
        statistics=statistics_after(parent, edit.acks, edit.epoch_ms, runs, edit.read_by),
        retained=limit_retained(
            (*parent.retained, Retained(epoch, version, stamp.time_ms)), parent.abandoned, retained
        ),
        harvested_us=parent.watermark_us if edit.ran_tasks else parent.harvested_us,
        checkpoint_interval_ms=edit.interval_ms,
        slowest_shards=_slowest(edit.acks),
        steps=work_of_steps(parent.pipeline, edit.acks),
        functions=edit.functions,
    )


def no_runs(pipeline: Pipeline, shards: int) -> dict[str, tuple[tuple[RunRef, ...], ...]]:
    return {table.name: ((),) * shards for table in pipeline.all_tables}


def _elsewhere(ref: Ref, stream: StreamUuid) -> Ref:
    """A reference of `stream` as another stream has it: `stream` becomes the ancestor of the files it owns."""
    return ref if ref.ancestor is not None else replace(ref, ancestor=stream)


def runs_elsewhere(shown: Manifest) -> dict[str, tuple[tuple[RunRef, ...], ...]]:
    """The runs of a manifest as another stream names them."""
    return {
        table: tuple(tuple(_elsewhere(run, shown.uuid) for run in shard) for shard in shards)
        for table, shards in shown.runs.items()
    }


def sources_elsewhere(shown: Manifest) -> tuple[SourcePosition, ...]:
    """The positions of a manifest as another stream names them."""

    def elsewhere(position: SourcePosition) -> SourcePosition:
        index = tuple(_elsewhere(ref, shown.uuid) for ref in position.files.index)
        return replace(position, files=IndexedList(index, position.files.tail))

    return tuple(map(elsewhere, shown.sources))


def _empty(opening: Manifest) -> Manifest:
    """The stream as it was before any row, with what the opening sets. Its sources begin where they began."""
    return replace(
        first_manifest(
            Beginning(opening.stream, opening.uuid, opening.owner, opening.pipeline, opening.shards),
            Stamp(opening.nonce, opening.time_ms),
        ),
        version=opening.version,
        term=opening.term,
        parent=opening.parent,
        parent_nonce=opening.parent_nonce,
        ancestors=opening.ancestors,
        sources=initial_positions(opening.sources),
    )


def _show(opening: Manifest, target: Manifest, moves: Moves) -> Manifest:
    """What `target` shows, with what the opening sets."""
    return replace(
        target,
        version=opening.version,
        term=opening.term,
        nonce=opening.nonce,
        time_ms=opening.time_ms,
        parent=opening.parent,
        parent_nonce=opening.parent_nonce,
        shown_nonce=target.epoch_nonce,
        owner=opening.owner,
        pipeline=opening.pipeline,
        ancestors=opening.ancestors,
        sources=positions_gone_on(target.sources, opening.pipeline, moves),
    )


def abandon_after(before: tuple[EpochRange, ...], shown: Epoch, newest: Epoch) -> tuple[EpochRange, ...]:
    """The ranges after a rollback: those above the shown epoch become part of one."""
    kept = tuple(entry for entry in before if entry.last <= shown)
    last = max([newest, *(entry.last for entry in before)])
    if last <= shown:
        return kept
    return _join_oldest((*kept, EpochRange(Epoch(shown + 1), last)))


def _join_oldest(abandoned: tuple[EpochRange, ...]) -> tuple[EpochRange, ...]:
    """Join the oldest of too many ranges, with all epochs below them.

    Some epoch among them was not abandoned. A reader that is there, or below, must still not continue as if none was.
    """
    over = len(abandoned) - ABANDONED_MAX
    if over <= 0:
        return abandoned
    return (EpochRange(EMPTY, abandoned[over].last), *abandoned[over + 1 :])


def _runs(parent: Manifest, acks: Iterable[ShardAck]) -> dict[str, tuple[tuple[RunRef, ...], ...]]:
    """The parent's runs, replaced for each shard and table that an ACK names."""
    shards: dict[str, list[tuple[RunRef, ...]]] = {table: list(runs) for table, runs in parent.runs.items()}
    for ack in acks:
        for table in ack.tables:
            shards[table.table][ack.shard] = table.runs
    return {table: tuple(runs) for table, runs in shards.items()}


def _greatest(times_us: list[tuple[int | None, ...]]) -> tuple[int | None, ...]:
    """For each input the greatest event time; None where it has seen none."""
    inputs = max(map(len, times_us))
    columns = [[row[at] for row in times_us if at < len(row)] for at in range(inputs)]
    return tuple(max((time for time in column if time is not None), default=None) for column in columns)


WATERMARK_US_MAX = 1 << 62
"""Some 146,000 years: a broken event time moves the watermark no further, so that sums with it still fit 64 bits."""


def moved_watermark(before_us: int | None, event_times_us: tuple[int | None, ...], edit: EpochEdit) -> int | None:
    """The watermark after an epoch: the least over the inputs of event time minus delay; it never goes back.

    It begins once each input has seen a time. It does not wait for an idle input. If all are idle it is the greatest of
    them, as if those that are behind had become idle first: otherwise it would depend on where epochs are cut.
    """
    reached: list[int | None] = []
    silent: list[int] = []
    for at, delay_us in enumerate(edit.delays_us):
        if delay_us is not None:
            time_us = event_times_us[at] if at < len(event_times_us) else None
            its = None if time_us is None else _within_reach(time_us - delay_us)
            if edit.idle[at : at + 1] != (True,):
                reached.append(its)
            elif its is not None:
                silent.append(its)
    if not reached:
        least = [max(silent)] if silent else []
    else:
        least = [] if None in reached else [time_us for time_us in reached if time_us is not None]
    at_least_us = None if edit.at_least_us is None else _within_reach(edit.at_least_us)
    known = [time_us for time_us in (before_us, min(least, default=None), at_least_us) if time_us is not None]
    return max(known, default=None)


def _within_reach(time_us: int) -> int:
    return max(-WATERMARK_US_MAX, min(time_us, WATERMARK_US_MAX))


def _slowest(acks: Iterable[ShardAck]) -> tuple[ShardTime, ...]:
    """The shards whose tasks took longest, within a task those with the most rows; none if no task worked."""
    times = [
        ShardTime(ack.shard, ack.host, ack.milliseconds, ack.rows_in + ack.rows_from_steps, ack.step)
        for ack in acks
        if ack.host
    ]
    times.sort(key=lambda each: (-each.milliseconds, -each.rows_in, each.step, each.shard))
    return tuple(times[:SLOWEST_MAX])
