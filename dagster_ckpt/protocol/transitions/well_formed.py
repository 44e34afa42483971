"""What a manifest must be by itself, whatever it follows: each rule a named predicate."""

from collections.abc import Callable
from itertools import chain, pairwise

from dagster_ckpt.hash_range import HASH_MAX, HashRange
from dagster_ckpt.ids import EMPTY, FIRST, Epoch, can_be_shards
from dagster_ckpt.protocol.epochs.lineage import is_abandoned, lineage_epochs
from dagster_ckpt.protocol.epochs.upstream import consumption, total_backfill
from dagster_ckpt.protocol.manifest.manifest import ABANDONED_MAX, ChangeRef, Manifest, ManifestKind, RunRef
from dagster_ckpt.protocol.manifest.references import ancestors_named, runs_of
from dagster_ckpt.protocol.object_names import parse_file_name
from dagster_ckpt.protocol.transitions.edits import ROLLBACKS_MAX

Form = Callable[[Manifest], bool]


def broken_rules(manifest: Manifest) -> list[str]:
    """The names of the rules that the manifest breaks by itself, whatever it follows."""
    return [rule.__name__ for rule in _FORMS if not rule(manifest)]


def numbers_agree(manifest: Manifest) -> bool:
    """A version, a term at or below it, an epoch at or below it."""
    return (
        manifest.version >= FIRST
        and 1 <= manifest.term <= manifest.version
        and EMPTY <= manifest.epoch <= manifest.version
    )


def an_epoch_has_its_own_number(manifest: Manifest) -> bool:
    """Except a fork's first manifest, which may be empty: another rule checks it."""
    return manifest.kind is ManifestKind.FORK or (
        manifest.kind.makes_epoch == (manifest.epoch == Epoch(manifest.version))
    )


def an_epoch_has_one_nonce(manifest: Manifest) -> bool:
    """What makes an epoch, or shows none, names no other manifest that made the epoch; all others name it."""
    return (manifest.shown_nonce is not None) == (EMPTY < manifest.epoch < Epoch(manifest.version))


def an_epochs_changes_are_new(manifest: Manifest) -> bool:
    """An epoch's change log was written by its term, for this epoch."""
    return not manifest.kind.makes_epoch or all(is_new(manifest, change) for change in manifest.changes)


def shards_are_a_power_of_two(manifest: Manifest) -> bool:
    return can_be_shards(manifest.shards)


def each_table_has_every_shard(manifest: Manifest) -> bool:
    tables = {table.name for table in manifest.pipeline.all_tables}
    return manifest.runs.keys() == tables and all(len(runs) == manifest.shards for runs in manifest.runs.values())


def hash_ranges_make_sense(manifest: Manifest) -> bool:
    # A manifest may have thousands of runs, and is checked within each commit.
    runs = list(runs_of(manifest))
    ranges = [*(run.hashes for run in runs), *(run.clip for run in runs)]
    places = [*chain.from_iterable(ranges), *(run.moved_lo for run in runs), *(run.moved_hi for run in runs)]
    within = min(places, default=0) >= 0 and max(places, default=0) <= HASH_MAX
    return within and all(lo <= hi for lo, hi in ranges)


def no_row_is_named_twice(manifest: Manifest) -> bool:
    """If a run is named more than once, by several shards or by one, no hash is in two of the clips."""
    clips: dict[tuple[str, str, str | None], list[HashRange]] = {}
    for table, shards in manifest.runs.items():
        for run in chain.from_iterable(shards):
            clips.setdefault((table, run.path, run.ancestor), []).append(run.clip)
    ordered = (sorted(of_run) for of_run in clips.values() if len(of_run) > 1)
    return all(hi < lo for of_run in ordered for (_, hi), (lo, _) in pairwise(of_run))


def changes_are_of_the_shown_epoch(manifest: Manifest) -> bool:
    """And of one of its shards; a later manifest that shows the epoch may have fewer."""
    epoch = manifest.kind.makes_epoch
    return all(
        change.epoch == manifest.epoch and change.shard >= 0 and not (epoch and change.shard >= manifest.shards)
        for change in manifest.changes
    )


def foreign_files_have_a_known_ancestor(manifest: Manifest) -> bool:
    return ancestors_named(manifest) <= {ancestor.uuid for ancestor in manifest.ancestors}


def sources_are_distinct(manifest: Manifest) -> bool:
    return len({position.source for position in manifest.sources}) == len(manifest.sources)


def consumed_agrees_with_sources(manifest: Manifest) -> bool:
    """`consumed` and `backfill` match the positions of the sources."""
    return (manifest.consumed, manifest.backfill) == (consumption(manifest.sources), total_backfill(manifest.sources))


def late_rows_are_those_of_the_inputs(manifest: Manifest) -> bool:
    """Each of several inputs has its own late rows; without any, the list may be left out."""
    total, each = manifest.statistics.total_late_rows, manifest.statistics.late_rows_by_input
    inputs = len(manifest.pipeline.input_places)
    return (len(each), sum(each)) == (inputs, total) if each else inputs == 1 or total == 0


def retained_are_in_order(manifest: Manifest) -> bool:
    """Distinct epochs, oldest first. Those above the shown one were abandoned by a rollback."""
    epochs = [entry.epoch for entry in manifest.retained]
    rising = all(before < after for before, after in pairwise(epochs))
    above = [epoch for epoch in epochs if epoch > manifest.epoch]
    return rising and all(epoch > EMPTY for epoch in epochs) and all(is_abandoned(manifest, epoch) for epoch in above)


def the_shown_epoch_is_retained(manifest: Manifest) -> bool:
    return manifest.epoch == EMPTY or manifest.epoch in lineage_epochs(manifest)


def lists_are_bounded(manifest: Manifest) -> bool:
    return len(manifest.abandoned) <= ABANDONED_MAX and len(manifest.rollbacks) <= ROLLBACKS_MAX


def is_new(child: Manifest, ref: RunRef | ChangeRef) -> bool:
    file = parse_file_name(ref.path)
    return ref.ancestor is None and file is not None and (file.term, file.epoch) == (child.term, child.epoch)


_FORMS: tuple[Form, ...] = (
    numbers_agree,
    an_epoch_has_its_own_number,
    an_epoch_has_one_nonce,
    an_epochs_changes_are_new,
    shards_are_a_power_of_two,
    each_table_has_every_shard,
    hash_ranges_make_sense,
    no_row_is_named_twice,
    changes_are_of_the_shown_epoch,
    foreign_files_have_a_known_ancestor,
    sources_are_distinct,
    consumed_agrees_with_sources,
    late_rows_are_those_of_the_inputs,
    retained_are_in_order,
    the_shown_epoch_is_retained,
    lists_are_bounded,
)
