"""Which manifest may follow which: the invariants of a stream, each a named predicate, checked before every create.

A manifest that breaks one was made by a bug in our code, not by the outside world: it is never created.

    version   one more than the parent's; 1 for the first
    epoch     an EPOCH or SWAP manifest makes the epoch of its own number; any other shows one that exists (retained,
              or 0)
    first     it is empty; a fork's shows, as epoch 1, files of its ancestors alone, and has no writer yet
    term      an EPOCH keeps its parent's, and so does a RESHARD; any other begins one: its own version. So terms only
              grow
    runs      each is the parent's of the same shard and table, or a file that this term wrote for this epoch. Those of
              a SWAP are of the stream that took over
    shards    as many as the parent has. A RESHARD has another number that show the same rows; a ROLLBACK as many as the
              epoch had that it goes back to
    files     the parent's, of which neighbours may have become one new file with as many rows, then the epoch's files
    sources   read on from where the parent stopped; never again, never skipped. Where each begins is kept, also in a
              rollback to epoch 0
    watermark never goes back along a lineage; `harvested_us` follows it
    pipeline  the parent's, but where a stream is opened or another takes over. The first EPOCH of changed steps follows
              the parent with those steps (`step_changes.change_steps`), and reads nothing

`well_formed` has the rules of one manifest, whatever it follows.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, repeat

from dagster_ckpt.ids import EMPTY, FIRST, Epoch, Term
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, limit_retained, lineage_epochs
from dagster_ckpt.protocol.manifest.manifest import (
    ChangeRef,
    Manifest,
    ManifestKind,
    Retained,
    SortKind,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.manifest.references import references, runs_of
from dagster_ckpt.protocol.transitions.edits import NO_OWNER, ROLLBACKS_MAX, initial_positions
from dagster_ckpt.protocol.transitions.shard_layouts import shows_alike
from dagster_ckpt.protocol.transitions.source_moves import input_sources, same_but_for_names
from dagster_ckpt.protocol.transitions.step_changes import StepChange, change_steps
from dagster_ckpt.protocol.transitions.swap import cannot_take_over, lagging_sources
from dagster_ckpt.protocol.transitions.well_formed import broken_rules, is_new

Succession = Callable[[Manifest, Manifest], bool]


def violations(parent: Manifest | None, child: Manifest) -> list[str]:
    """The names of the rules that `child` breaks as the successor of `parent` (None: it is the stream's first)."""
    broken = broken_rules(child)
    if parent is None:
        first = a_forks_first_is_its_ancestors if child.kind is ManifestKind.FORK else first_is_empty
        return broken if first(child) else [*broken, first.__name__]
    parent = _with_its_steps(parent, child)
    rules = [*_ALWAYS, *_OF_KIND.get(child.kind, _OF_OPENING)]
    return [*broken, *(rule.__name__ for rule in rules if not rule(parent, child))]


def _with_its_steps(parent: Manifest, child: Manifest) -> Manifest:
    """What the child builds on: where it is the first epoch of changed steps, the parent with those."""
    if child.kind is not ManifestKind.EPOCH or child.pipeline == parent.pipeline or parent.epoch == EMPTY:
        return parent
    reads_nothing = child.sources == parent.sources
    is_change = reads_nothing and StepChange.between(parent.pipeline, child.pipeline).can_restart
    return change_steps(parent, child.pipeline) if is_change else parent


def check_successor(parent: Manifest | None, child: Manifest) -> None:
    """Raise AssertionError if `child` must not follow `parent`: a bug in our code, caught before it is durable."""
    if broken := violations(parent, child):
        raise AssertionError(
            f"a manifest breaks its rules and was not created; please report this. broken={broken}, "
            f"stream={child.stream}, version={child.version}, kind={child.kind}"
        )


def first_is_empty(manifest: Manifest) -> bool:
    """Version 1 opens the empty stream, without any source positions."""
    return (
        manifest.epoch == EMPTY
        and manifest.kind is ManifestKind.OPEN
        and _is_first(manifest)
        and _is_empty(manifest)
        and not manifest.sources
    )


def a_forks_first_is_its_ancestors(manifest: Manifest) -> bool:
    """Version 1 shows an epoch of another stream as epoch 1, or is empty; it names only files of ancestors.

    An empty one has at most the beginnings of its sources. It has no owner, no sink marks, and no history.
    """
    if not _is_first(manifest) or manifest.owner != NO_OWNER or manifest.sinks or not manifest.ancestors:
        return False
    if manifest.epoch == EMPTY:
        return _is_empty(manifest)
    only = Retained(Epoch(FIRST), FIRST, manifest.time_ms)
    return (
        manifest.epoch == only.epoch
        and manifest.retained == (only,)
        and not (manifest.changes or manifest.abandoned or manifest.rollbacks)
        and all(ref.ancestor is not None for _, ref in references(manifest))
    )


def _is_first(manifest: Manifest) -> bool:
    return (manifest.version, manifest.term, manifest.parent) == (FIRST, Term(FIRST), None)


def _is_empty(manifest: Manifest) -> bool:
    rows = any(run for table in manifest.runs.values() for run in table)
    return not (rows or manifest.retained) and manifest.sources == initial_positions(manifest.sources)


def version_is_the_next(parent: Manifest, child: Manifest) -> bool:
    return child.version == parent.version + 1


def parent_is_named(parent: Manifest, child: Manifest) -> bool:
    return (child.parent, child.parent_nonce) == (parent.version, parent.nonce)


def nonce_is_new(parent: Manifest, child: Manifest) -> bool:
    return child.nonce != parent.nonce


def stream_stays_itself(parent: Manifest, child: Manifest) -> bool:
    return (child.uuid, child.stream) == (parent.uuid, parent.stream)


def ancestors_stay_the_same(parent: Manifest, child: Manifest) -> bool:
    """A swap adds the stream that it took over, and says when: a rollback may leave it behind."""
    if child.kind is not ManifestKind.SWAP:
        return child.ancestors == parent.ancestors
    *before, added = child.ancestors or (None,)
    if tuple(before) != parent.ancestors or added is None or not added.swapped:
        return False
    return added.handover is not None and added.handover.epoch == child.epoch


def abandoned_stay_abandoned(parent: Manifest, child: Manifest) -> bool:
    """All but epoch 0, which is in a range where several were joined: a rollback to it abandons everything."""
    return all(
        any(after.first <= max(before.first, FIRST) and before.last <= after.last for after in child.abandoned)
        for before in parent.abandoned
    )


def rollbacks_are_remembered(parent: Manifest, child: Manifest) -> bool:
    return child.rollbacks == parent.rollbacks or (
        child.kind in (ManifestKind.ROLLBACK, ManifestKind.SWAP)
        and child.rollbacks[:-1] == (*parent.rollbacks, "")[-ROLLBACKS_MAX:-1]
    )


def term_is_the_parents(parent: Manifest, child: Manifest) -> bool:
    return child.term == parent.term


def writer_is_the_parents(parent: Manifest, child: Manifest) -> bool:
    """Owner and pipeline change only where a stream is opened."""
    return child.owner == parent.owner and child.pipeline == parent.pipeline


def shards_are_the_parents(parent: Manifest, child: Manifest) -> bool:
    return child.shards == parent.shards


def watermark_does_not_go_back(parent: Manifest, child: Manifest) -> bool:
    before, after = parent.watermark_us, child.watermark_us
    return before is None or (after is not None and after >= before)


def emits_up_to_the_parents_watermark(parent: Manifest, child: Manifest) -> bool:
    """An epoch with work has emitted all rows due at its parent's watermark; one without work none."""
    return child.harvested_us in (parent.watermark_us, parent.harvested_us)


def event_times_do_not_go_back(parent: Manifest, child: Manifest) -> bool:
    """Each input keeps the greatest event time that it has seen."""
    after = child.event_times_us
    return len(after) >= len(parent.event_times_us) and all(
        was is None or (now is not None and now >= was) for was, now in zip(parent.event_times_us, after, strict=False)
    )


def runs_are_the_parents_or_new(parent: Manifest, child: Manifest) -> bool:
    return all(
        run.name in before or is_new(child, run)
        for table, shards in child.runs.items()
        for runs, before in zip(shards, _names(parent, table), strict=False)
        for run in runs
    )


def files_are_the_parents_or_merged(parent: Manifest, child: Manifest) -> bool:
    """No row of an append-only stream's table is removed or moved, and only the epoch's rows are added.

    If the list's tail was spilled to an index object, only the number of files is checked: index objects are not read.
    """
    if not child.pipeline.appends:
        return child.files == parent.files
    if child.files.index != parent.files.index:
        return _entries(child) <= _entries(parent) + len(child.changes)
    kept = len(child.files.tail) - len(child.changes)
    if child.files.tail[kept:] != child.changes:
        return False
    return _same_or_merged(child, parent.files.tail, child.files.tail[:kept])


def batch_follows(parent: Manifest, child: Manifest) -> bool:
    """The next batch, or the same in an epoch without a batch."""
    return child.batch_id is not None and (
        parent.batch_id is None or child.batch_id in (parent.batch_id, parent.batch_id + 1)
    )


def sources_read_on(parent: Manifest, child: Manifest) -> bool:
    """Each position is the parent's, or begins where the parent's ended; no source and no beginning is lost.

    Any sources may follow the empty stream. Tables come before them in its first epoch alone; what they were stays.
    """
    before, after = _by_source(parent), _by_source(child)
    pairs = [(before.get(source, SourcePosition(source)), position) for source, position in after.items()]
    goes_on = before.keys() <= after.keys() and all(
        (was.after_table, was.table) == (now.after_table, now.table) for was, now in pairs
    )
    if any(was.table not in (None, now.table) for was, now in pairs):
        return False
    return (goes_on or parent.epoch == EMPTY) and all(_reads_on(was, now) for was, now in pairs)


def consumed_reads_on(parent: Manifest, child: Manifest) -> bool:
    """No upstream is read backwards, replaced or lost. The destination of a delivery may have gone back."""
    after = {entry.stream: entry for entry in child.consumed}
    back = child.pipeline.delivers
    return all(
        entry.stream in after
        and after[entry.stream].uuid == entry.uuid
        and (back or after[entry.stream].epoch >= entry.epoch)
        for entry in parent.consumed
    )


def retained_grow_by_one(parent: Manifest, child: Manifest) -> bool:
    """The parent's and this epoch, without those that `limit_retained` retires."""
    newest = child.retained[-1] if child.retained else None
    shown = newest is not None and (newest.epoch, newest.version) == (child.epoch, child.version)
    return shown and child.retained == limit_retained(
        (*parent.retained, *child.retained[-1:]), parent.abandoned, len(child.retained)
    )


def statistics_add_up(parent: Manifest, child: Manifest) -> bool:
    before, after = parent.statistics, child.statistics
    return (
        after.total_rows_in == before.total_rows_in + after.rows_in
        and after.total_rows_out == before.total_rows_out + after.rows_out
        and after.total_late_rows == before.total_late_rows + after.late_rows
        and (not after.late_rows_by_input or sum(after.late_rows_by_input) == after.total_late_rows)
        and after.total_epochs == before.total_epochs + 1
        and after.state_rows >= 0
        and ((after.table_rows is None) == (parent.table_rows is None) or child.pipeline.delivers)
    )


def a_swap_shows_what_was_built_beside(parent: Manifest, child: Manifest) -> bool:
    """It names runs of that stream alone, under a table that readers of this one can follow."""
    origin = child.ancestors[-1].uuid if child.ancestors else None
    return not cannot_take_over(parent.pipeline, child.pipeline) and all(
        run.ancestor == origin for run in runs_of(child)
    )


def a_swap_goes_back_in_no_source(parent: Manifest, child: Manifest) -> bool:
    return not lagging_sources(parent, child, ())


def nothing_is_undone(parent: Manifest, child: Manifest) -> bool:
    """An epoch abandons no epochs and honours no rollback."""
    return child.abandoned == parent.abandoned and child.rollbacks == parent.rollbacks


def term_is_its_own_version(parent: Manifest, child: Manifest) -> bool:
    return child.term == Term(child.version) and child.term > parent.term


def an_opening_shows_what_was_there(parent: Manifest, child: Manifest) -> bool:
    """OPEN shows the parent's epoch, unchanged; ROLLBACK one of its lineage that the parent retains or retired, or 0.

    One that was retired is from a pin. Sources may take the identities of the new pipeline.
    """
    if child.kind is ManifestKind.ROLLBACK:
        shown = {EMPTY, *lineage_epochs(parent), *(entry.epoch for entry in _restored_epochs(parent, child))}
        undone = parent.epoch == child.epoch or any(
            entry.first == child.epoch + 1 and parent.epoch <= entry.last for entry in child.abandoned
        )
        return child.epoch in shown and undone
    same_sources = same_but_for_names(parent.sources, child.sources, input_sources(child.pipeline.source_inputs))
    return (
        child.kind is ManifestKind.OPEN
        and same_sources
        and _content(replace(child, sources=())) == _content(replace(parent, sources=()))
    )


def epoch_0_begins_where_the_stream_began(parent: Manifest, child: Manifest) -> bool:
    """A rollback to epoch 0 reads the sources from their beginning, also where that was a moment in time."""
    to_empty = child.kind is ManifestKind.ROLLBACK and child.epoch == EMPTY
    wanted = input_sources(child.pipeline.source_inputs)
    return not to_empty or same_but_for_names(initial_positions(parent.sources), child.sources, wanted)


def a_reshard_shows_what_was_there(parent: Manifest, child: Manifest) -> bool:
    """The parent's epoch, unchanged but for the layout of its state."""
    statistics = replace(child.statistics, state_bytes=parent.statistics.state_bytes)
    unchanged = replace(child, shards=parent.shards, runs=parent.runs, statistics=statistics)
    return _content(unchanged) == _content(parent)


def a_reshard_moves_no_row(parent: Manifest, child: Manifest) -> bool:
    """Tables sorted by hash show the same rows of the same runs; those sorted by time were rewritten."""
    if child.shards == parent.shards:
        return False
    return all(
        shows_alike(parent.runs.get(spec.name, ()), child.runs.get(spec.name, ()))
        if spec.sort is SortKind.HASH
        else all(is_new(child, run) for run in chain.from_iterable(child.runs.get(spec.name, ())))
        for spec in child.pipeline.all_tables
    )


def retained_only_shrink(parent: Manifest, child: Manifest) -> bool:
    """But for the epoch that a rollback shows again."""
    return set(child.retained) <= {*parent.retained, *_restored_epochs(parent, child)}


def _restored_epochs(parent: Manifest, child: Manifest) -> tuple[Retained, ...]:
    """The retired epoch of the parent's lineage to which the child goes back."""
    return tuple(
        entry
        for entry in child.retained
        if child.kind is ManifestKind.ROLLBACK
        and (entry.epoch, entry.version) == (child.epoch, child.version)
        and entry.epoch < parent.epoch
        and not is_abandoned(parent, entry.epoch)
        and entry.epoch not in {each.epoch for each in parent.retained}
    )


def _content(manifest: Manifest) -> tuple[object, ...]:
    return (
        manifest.epoch,
        manifest.epoch_nonce,
        manifest.shards,
        {table: shards for table, shards in manifest.runs.items() if any(shards)},
        manifest.changes,
        manifest.files,
        manifest.sources,
        manifest.consumed,
        manifest.backfill,
        manifest.batch_id,
        manifest.watermark_us,
        manifest.event_times_us,
        manifest.harvested_us,
        manifest.statistics,
        manifest.checkpoint_interval_ms,
        manifest.slowest_shards,
        manifest.steps,
        manifest.functions,
        manifest.retained,
        manifest.abandoned,
    )


def _names(manifest: Manifest, table: str) -> Iterable[set[str]]:
    """For each shard the names of its runs; endless, so that a missing shard has none."""
    return chain(({run.name for run in runs} for runs in manifest.runs.get(table, ())), repeat(set()))


def _entries(manifest: Manifest) -> int:
    return sum(ref.entries for ref in manifest.files.index) + len(manifest.files.tail)


def _same_or_merged(child: Manifest, before: tuple[ChangeRef, ...], after: tuple[ChangeRef, ...]) -> bool:
    """Whether `after` is `before` with at most one group of neighbours replaced by one new file."""
    if after == before:
        return True
    shorter = len(before) - len(after)
    if shorter < 1:
        return False
    at = next(at for at in range(len(before)) if at == len(after) or before[at] != after[at])
    gone = before[at : at + shorter + 1]
    return (
        after[at + 1 :] == before[at + shorter + 1 :]
        and after[at : at + 1] != ()
        and is_new(child, after[at])
        and after[at].rows == sum(change.rows for change in gone)
    )


def _reads_on(before: SourcePosition, after: SourcePosition) -> bool:
    return after == before or (after.previous == before.current and before.initial in (None, after.initial))


def _by_source(manifest: Manifest) -> dict[SourceIdentity, SourcePosition]:
    return {position.source: position for position in manifest.sources}


_ALWAYS: tuple[Succession, ...] = (
    version_is_the_next,
    parent_is_named,
    nonce_is_new,
    stream_stays_itself,
    ancestors_stay_the_same,
    abandoned_stay_abandoned,
    rollbacks_are_remembered,
)
_OF_EPOCH: tuple[Succession, ...] = (
    term_is_the_parents,
    writer_is_the_parents,
    shards_are_the_parents,
    watermark_does_not_go_back,
    emits_up_to_the_parents_watermark,
    event_times_do_not_go_back,
    runs_are_the_parents_or_new,
    files_are_the_parents_or_merged,
    batch_follows,
    sources_read_on,
    consumed_reads_on,
    retained_grow_by_one,
    statistics_add_up,
    nothing_is_undone,
)
_OF_OPENING: tuple[Succession, ...] = (
    term_is_its_own_version,
    an_opening_shows_what_was_there,
    epoch_0_begins_where_the_stream_began,
    retained_only_shrink,
)
_OF_RESHARD: tuple[Succession, ...] = (
    term_is_the_parents,
    writer_is_the_parents,
    a_reshard_shows_what_was_there,
    a_reshard_moves_no_row,
)
_OF_SWAP: tuple[Succession, ...] = (
    term_is_its_own_version,
    a_swap_shows_what_was_built_beside,
    a_swap_goes_back_in_no_source,
    retained_grow_by_one,
)
_OF_KIND = {ManifestKind.EPOCH: _OF_EPOCH, ManifestKind.RESHARD: _OF_RESHARD, ManifestKind.SWAP: _OF_SWAP}
