"""A stream takes the place of another: what was built beside it becomes its table, state and positions, in one epoch.

The one that takes over was made by other code from the beginning of the same sources. It may take over once it has read
at least as far as the stream: no row is lost, and what it has read beyond comes with the epoch. Readers of the stream
go on after it. Its change log has what differs between the two tables, so their rows need the same key.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from dagster_ckpt.ids import Epoch, Term, Version
from dagster_ckpt.protocol.epochs.lineage import limit_retained
from dagster_ckpt.protocol.epochs.upstream import FORMAT, consumption, decode, total_backfill
from dagster_ckpt.protocol.json_codec import Json
from dagster_ckpt.protocol.manifest.manifest import (
    Ancestor,
    ChangeRef,
    Handover,
    Manifest,
    ManifestKind,
    Owner,
    Pipeline,
    Retained,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.manifest.row_key import row_key
from dagster_ckpt.protocol.transitions.edits import ROLLBACKS_MAX, Stamp, following, runs_elsewhere, sources_elsewhere
from dagster_ckpt.protocol.transitions.renamed_columns import columns_alone
from dagster_ckpt.protocol.transitions.source_moves import Moves, positions_gone_on
from dagster_ckpt.widening import widens


@dataclass(frozen=True, slots=True)
class Swap:
    """Who asks for it: the new owner, the root Dagster run of the request, and how many epochs stay retained."""

    owner: Owner
    root_run: str
    retained: int


def swap_manifest(
    parent: Manifest, rebuilt: Manifest, changes: tuple[ChangeRef, ...], swap: Swap, stamp: Stamp
) -> Manifest:
    """The next epoch of `parent`'s stream, in a term of its own: it shows what `rebuilt` does.

    `changes` are the files with what differs between the two tables, written for that term and epoch. The files of
    `rebuilt` stay in its folder.
    """
    version = Version(parent.version + 1)
    sources, runs = sources_elsewhere(rebuilt), runs_elsewhere(rebuilt)
    rows = sum(change.rows for change in changes)
    before, after = parent.statistics, rebuilt.statistics
    return following(
        parent,
        ManifestKind.SWAP,
        stamp,
        epoch=Epoch(version),
        term=Term(version),
        owner=swap.owner,
        pipeline=rebuilt.pipeline,
        shards=rebuilt.shards,
        batch_id=rebuilt.batch_id,
        runs=runs,
        changes=changes,
        watermark_us=rebuilt.watermark_us,
        event_times_us=rebuilt.event_times_us,
        harvested_us=rebuilt.harvested_us,
        sources=sources,
        consumed=consumption(sources),
        backfill=total_backfill(sources),
        ancestors=(*parent.ancestors, replace(as_ancestor(rebuilt), handover=handover(parent, rebuilt))),
        statistics=replace(
            after,
            rows_in=0,
            rows_out=rows,
            late_rows=0,
            epoch_ms=0,
            change_bytes=sum(change.bytes for change in changes),
            merged_rows=0,
            stall_ms=0,
            total_epochs=before.total_epochs + 1,
            total_rows_out=before.total_rows_out + rows,
        ),
        retained=limit_retained(
            (*parent.retained, Retained(Epoch(version), version, stamp.time_ms)), parent.abandoned, swap.retained
        ),
        rollbacks=(*parent.rollbacks, swap.root_run)[-ROLLBACKS_MAX:],
        checkpoint_interval_ms=None,
        slowest_shards=(),
        steps=(),
        functions=rebuilt.functions,
    )


def as_ancestor(rebuilt: Manifest) -> Ancestor:
    """The stream that was built beside another, among that one's ancestors."""
    return Ancestor(rebuilt.uuid, rebuilt.stream, rebuilt.epoch, swapped=True)


def handover(parent: Manifest, rebuilt: Manifest) -> Handover:
    """What readers need to know a column over the swap, whatever names it gets later."""
    return Handover(Epoch(parent.version + 1), columns_alone(parent.pipeline), columns_alone(rebuilt.pipeline))


def cannot_take_over(before: Pipeline, after: Pipeline) -> list[str]:
    """Why the table of a pipeline cannot take the place of another's; empty if it can.

    What reads the stream goes on after the swap: it knows a row by its key, and a column by its name.
    """
    if after.delivers or before.delivers:
        return ["a delivery has no table of its own"]
    if before.appends or after.appends:
        return ["a table that only grows takes no row back, so its readers could not be told what has changed"]
    if (was := row_key(before)) != (now := row_key(after)):
        renamed = was is not None and now is not None and len(was) == len(now) > 0
        hint = ' (if it only has a new name, start the stream once with renamed={"old": "new"}, then rebuild it)'
        return [f"its rows have another key: {_key_text(was)} before, {_key_text(now)} now{hint if renamed else ''}"]
    columns = [name for name in after.output.names if name in before.output.names]
    changed = [name for name in columns if not _fits(before.output.field(name).type, after.output.field(name).type)]
    return [
        f"column {name!r} has another type: {before.output.field(name).type} before, {after.output.field(name).type} "
        "now. Give it another name"
        for name in changed
    ]


def lagging_sources(newest: Manifest, rebuilt: Manifest, moves: Moves) -> list[SourceIdentity]:
    """The sources of which `newest` has read more than `rebuilt`, so that this one cannot take over yet.

    For those that read files, only the number of files is compared: their names may be in index objects. One that
    `rebuilt` does not read at all is among them.
    """
    mine = {position.source: position for position in rebuilt.sources}
    known = positions_gone_on(newest.sources, rebuilt.pipeline, moves)
    return [each.source for each in known if not _has_read(mine.get(each.source, SourcePosition(each.source)), each)]


def _has_read(position: SourcePosition, other: SourcePosition) -> bool:
    if other.after_table and not position.after_table:
        return False
    if files_in(position) or files_in(other):
        return files_in(position) >= files_in(other)
    if other.current is None:
        return True
    if position.current is not None and position.source.format == FORMAT:
        mine, its = decode(position.current), decode(other.current)
        return mine.uuid == its.uuid and mine.epoch >= its.epoch and not mine.in_snapshot
    topics = dict(position.topics)
    if any(topics.get(topic, known) != known for topic, known in other.topics):
        return False  # it has read another topic of that name
    return position.current is not None and _reaches(json.loads(position.current), json.loads(other.current))


def files_in(position: SourcePosition) -> int:
    """How many files a source has read."""
    return sum(ref.entries for ref in position.files.index) + len(position.files.tail)


def _reaches(position: Json, other: Json) -> bool:
    """Whether an offset is at least another of the same source: each number in it, while all else is the same.

    So it is with the offsets of Kafka and of the rate source. For others that are not the same it is False.
    """
    if isinstance(position, dict) and isinstance(other, dict):
        return all(name in position and _reaches(position[name], value) for name, value in other.items())
    if isinstance(position, list) and isinstance(other, list):
        return len(position) == len(other) and all(map(_reaches, position, other))
    numbers = not isinstance(position, bool) and isinstance(position, int) and isinstance(other, int)
    return position >= other if numbers else bool(position == other)


def _fits(before: pa.DataType, after: pa.DataType) -> bool:
    return before == after or widens(before, after)


def _key_text(key: Iterable[str] | None) -> str:
    if key is None:
        return "none"
    return ", ".join(map(repr, key)) or "none, since it has one row"
