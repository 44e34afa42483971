"""Each rule catches its mistake; what the edits make breaks none."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.hash_range import HashRange
from dagster_ckpt.ids import EMPTY, Epoch, Nonce, Shard, StreamUuid, Term, Version
from dagster_ckpt.lsm.compaction.run_lists import reshard_lists as with_clips
from dagster_ckpt.protocol.ack import FilesMerged, ShardAck, ShardRuns
from dagster_ckpt.protocol.epochs.lineage import is_abandoned
from dagster_ckpt.protocol.epochs.upstream import FORMAT, UpstreamPosition
from dagster_ckpt.protocol.manifest.manifest import (
    ABANDONED_MAX,
    Ancestor,
    ChangeRef,
    EpochRange,
    IndexedList,
    IndexRef,
    InitialTable,
    Manifest,
    ManifestKind,
    SinkMark,
    SortKind,
    SourceIdentity,
    SourcePosition,
)
from dagster_ckpt.protocol.transitions import manifest_rules, well_formed
from dagster_ckpt.protocol.transitions.edits import (
    ROLLBACKS_MAX,
    Beginning,
    Forking,
    Stamp,
    epoch_manifest,
    first_manifest,
    fork_manifest,
    forked_empty,
    opening_manifest,
    reshard_manifest,
    rollback_manifest,
)
from dagster_ckpt.protocol.transitions.manifest_rules import check_successor, violations
from dagster_ckpt.protocol.transitions.swap import Swap, swap_manifest
from tests.worlds.manifests import OWNER, PIPELINE, SOURCE, a_change, a_run
from tests.worlds.streams import an_edit

Edit = Callable[[Manifest], Manifest]


def stamp(number: int) -> Stamp:
    return Stamp(Nonce(f"nonce-{number}"), number)


FIRST = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, PIPELINE, 2), stamp(1))
SECOND = epoch_manifest(FIRST, an_edit(FIRST), 5, stamp(2))
THIRD = epoch_manifest(SECOND, an_edit(SECOND), 5, stamp(3))
OPENED = opening_manifest(THIRD, OWNER, PIPELINE, stamp(4))
BACK = rollback_manifest(OPENED, SECOND, "run-2")
EMPTIED = rollback_manifest(OPENED, None, "run-2")
BEGUN = epoch_manifest(FIRST, replace(an_edit(FIRST), sources=(SourcePosition(SOURCE, initial="12"),)), 5, stamp(2))
BEGUN_AGAIN = rollback_manifest(opening_manifest(BEGUN, OWNER, PIPELINE, stamp(3)), None, "run-2")


def with_table(manifest: Manifest, table: InitialTable | None = None) -> Manifest:
    """The manifest with this instead of what it has of the table that the stream began with."""
    return replace(manifest, sources=tuple(replace(each, table=table) for each in manifest.sources))


AFTER_TABLE = with_table(SECOND, InitialTable(1))
AFTER_TABLE_OPENED = opening_manifest(AFTER_TABLE, OWNER, PIPELINE, stamp(3))
AFTER_TABLE_EMPTIED = rollback_manifest(AFTER_TABLE_OPENED, None, "run-2")
AFTER_TABLE_AGAIN = epoch_manifest(AFTER_TABLE_EMPTIED, an_edit(AFTER_TABLE_EMPTIED), 5, stamp(5))
RESHARDED = reshard_manifest(THIRD, 8, {"total": with_clips(THIRD.runs["total"], 8)}, stamp(4))
EIGHT_ACKS = tuple(ShardAck(Shard(shard)) for shard in range(8))
AFTER = epoch_manifest(BACK, an_edit(BACK), 5, stamp(5))

UPSTREAM = SourceIdentity(FORMAT, "a/up", (("read", "table"),))


def having_read(parent: Manifest, offset: UpstreamPosition) -> Manifest:
    """The epoch after `parent` that has read an upstream so far."""
    before = parent.sources[0].current if parent.sources else None
    position = SourcePosition(UPSTREAM, current=offset.encode(), previous=before)
    return epoch_manifest(parent, an_edit(parent, sources=(position,)), 5, stamp(parent.version + 1))


READ_4 = having_read(FIRST, UpstreamPosition(StreamUuid("up"), Epoch(4), 1, 2))
READ_6 = having_read(READ_4, UpstreamPosition(StreamUuid("up"), Epoch(6)))

TIMELINE = replace(PIPELINE, tables=(replace(PIPELINE.tables[0], sort=SortKind.TIME, time="at"),))
TIMED = replace(THIRD, pipeline=TIMELINE)
OF_A_TIMELINE = reshard_manifest(
    TIMED, 4, {"total": tuple((a_run(1, 3, shard, 4, 9),) for shard in range(4))}, stamp(4)
)

APPEND = replace(PIPELINE, operator="append", parameters={}, keys=(), tables=(), appends=True)
EMPTY_TABLE = first_manifest(Beginning("a/b", StreamUuid("u"), OWNER, APPEND, 2), stamp(1))
TWO_FILES = epoch_manifest(EMPTY_TABLE, an_edit(EMPTY_TABLE), 5, stamp(2))
FOUR_FILES = epoch_manifest(TWO_FILES, an_edit(TWO_FILES), 5, stamp(3))


def merging(parent: Manifest, first: int, last: int) -> Manifest:
    """The epoch after `parent` in which its files `[first, last)` were merged."""
    gone = parent.files.tail[first:last]
    path = f"table/1/{parent.term}-{parent.version + 1}-0-0.parquet"
    file = replace(gone[-1], path=path, rows=sum(each.rows for each in gone))
    edit = an_edit(parent)
    first_ack = replace(edit.acks[0], files_merged=FilesMerged(tuple(each.path for each in gone), file))
    return epoch_manifest(parent, replace(edit, acks=(first_ack, *edit.acks[1:])), 5, stamp(4))


MERGED = merging(FOUR_FILES, 1, 3)

BESIDE = replace(THIRD, uuid=StreamUuid("beside"), stream="a/b/~rebuild-1")
SWAPPED = swap_manifest(THIRD, BESIDE, (a_change(4, 4, 0),), Swap(OWNER, "run-3", 5), stamp(4))

FORKING = Forking("c", StreamUuid("f"), (Ancestor(THIRD.uuid, THIRD.stream, THIRD.epoch),))
FORKED = fork_manifest(THIRD, FORKING, stamp(6))
FORK_OPENED = opening_manifest(FORKED, OWNER, PIPELINE, stamp(7))
FORKED_EMPTY = forked_empty(THIRD, FORKING, stamp(8))
OTHER_PIPELINE = replace(PIPELINE, keys=("x",), tables=(replace(PIPELINE.tables[0], name="other"),))

FOREIGN = replace(a_run(1, 3, 0, 2), ancestor=StreamUuid("elsewhere"))


def runs(manifest: Manifest, *first_shard: object) -> Manifest:
    """The manifest with other runs in its first shard."""
    return replace(manifest, runs={"total": (first_shard, manifest.runs["total"][1])})  # type: ignore[dict-item]


def shared(manifest: Manifest, *clips: HashRange) -> Manifest:
    """The manifest with one run in both of its shards."""
    lists = tuple((replace(a_run(1, 3, 0, 2), clip=clip),) for clip in clips)
    return replace(manifest, runs={"total": lists})


def files(manifest: Manifest, *tail: ChangeRef, index: tuple[IndexRef, ...] = ()) -> Manifest:
    """The manifest with another list of the table's files."""
    return replace(manifest, files=IndexedList(index, tail))


def with_file(manifest: Manifest, at: int, **fields: object) -> Manifest:
    """The manifest with another file at this place of the list."""
    tail = list(manifest.files.tail)
    tail[at] = replace(tail[at], **fields)  # type: ignore[arg-type]
    return files(manifest, *tail)


def spilled(entries: int) -> IndexRef:
    return IndexRef("index/1-4-0-0-1.json", entries, 100, "abc")


def statistics(manifest: Manifest, **fields: Any) -> Manifest:
    return replace(manifest, statistics=replace(manifest.statistics, **fields))


def test_what_the_edits_make_breaks_no_rule() -> None:
    for parent, child in [
        (None, FIRST),
        (FIRST, SECOND),
        (SECOND, THIRD),
        (THIRD, OPENED),
        (THIRD, BACK),
        (THIRD, EMPTIED),
        (BACK, AFTER),
        (THIRD, RESHARDED),
        (RESHARDED, epoch_manifest(RESHARDED, replace(an_edit(RESHARDED), acks=EIGHT_ACKS), 5, stamp(5))),
        (RESHARDED, opening_manifest(RESHARDED, OWNER, PIPELINE, stamp(5))),
        (RESHARDED, rollback_manifest(opening_manifest(RESHARDED, OWNER, PIPELINE, stamp(5)), SECOND, "run-2")),
        (TIMED, OF_A_TIMELINE),
        (FIRST, opening_manifest(FIRST, OWNER, PIPELINE, stamp(9))),
        (FIRST, READ_4),
        (READ_4, READ_6),
        (READ_6, opening_manifest(READ_6, OWNER, PIPELINE, stamp(9))),
        (READ_6, rollback_manifest(opening_manifest(READ_6, OWNER, PIPELINE, stamp(9)), READ_4, "run-9")),
        (READ_6, rollback_manifest(opening_manifest(READ_6, OWNER, PIPELINE, stamp(9)), None, "run-9")),
        (TWO_FILES, FOUR_FILES),
        (FOUR_FILES, MERGED),
        *((FOUR_FILES, merging(FOUR_FILES, first, last)) for first, last in [(0, 4), (0, 2), (2, 4)]),
        (FOUR_FILES, files(MERGED, index=(spilled(5),))),
        (None, FORKED),
        (FORKED, FORK_OPENED),
        (None, FORKED_EMPTY),
        (FORKED_EMPTY, opening_manifest(FORKED_EMPTY, OWNER, OTHER_PIPELINE, stamp(9))),
    ]:
        check_successor(parent, child)


BROKEN: list[tuple[str, Manifest | None, Manifest, Edit]] = [
    ("numbers_agree", SECOND, THIRD, lambda m: replace(m, term=Term(9))),
    ("numbers_agree", THIRD, OPENED, lambda m: replace(m, epoch=Epoch(9))),
    ("an_epoch_has_one_nonce", SECOND, THIRD, lambda m: replace(m, shown_nonce=SECOND.nonce)),
    ("an_opening_shows_what_was_there", THIRD, OPENED, lambda m: replace(m, shown_nonce=SECOND.nonce)),
    ("an_epoch_has_its_own_number", SECOND, THIRD, lambda m: replace(m, epoch=Epoch(2))),
    ("an_epoch_has_its_own_number", THIRD, OPENED, lambda m: replace(m, epoch=Epoch(4))),
    (
        "an_epochs_changes_are_new",
        SECOND,
        THIRD,
        lambda m: replace(m, changes=(replace(a_change(1, 2, 0), epoch=m.epoch),)),
    ),
    ("shards_are_a_power_of_two", SECOND, THIRD, lambda m: replace(m, shards=3)),
    ("each_table_has_every_shard", SECOND, THIRD, lambda m: replace(m, runs={"total": ((),)})),
    ("each_table_has_every_shard", SECOND, THIRD, lambda m: replace(m, runs={})),
    ("each_table_has_every_shard", SECOND, THIRD, lambda m: replace(m, runs={**m.runs, "other": ((), ())})),
    ("hash_ranges_make_sense", SECOND, THIRD, lambda m: runs(m, replace(a_run(1, 3, 0, 2), hashes=HashRange(2, 1)))),
    ("hash_ranges_make_sense", SECOND, THIRD, lambda m: runs(m, replace(a_run(1, 3, 0, 2), moved_lo=-1))),
    ("hash_ranges_make_sense", SECOND, THIRD, lambda m: runs(m, replace(a_run(1, 3, 0, 2), moved_hi=2**64))),
    ("no_row_is_named_twice", SECOND, THIRD, lambda m: shared(m, HashRange(0, 5), HashRange(5, 9))),
    ("no_row_is_named_twice", SECOND, THIRD, lambda m: runs(m, a_run(1, 3, 0, 2), a_run(1, 3, 0, 2))),
    (
        "changes_are_of_the_shown_epoch",
        SECOND,
        THIRD,
        lambda m: replace(m, changes=(replace(a_change(1, 3, 0), shard=Shard(2)),)),
    ),
    ("changes_are_of_the_shown_epoch", THIRD, OPENED, lambda m: replace(m, changes=SECOND.changes)),
    ("foreign_files_have_a_known_ancestor", SECOND, THIRD, lambda m: runs(m, FOREIGN)),
    ("sources_are_distinct", SECOND, THIRD, lambda m: replace(m, sources=m.sources * 2)),
    ("consumed_agrees_with_sources", READ_4, READ_6, lambda m: replace(m, consumed=READ_4.consumed)),
    ("consumed_agrees_with_sources", READ_4, READ_6, lambda m: replace(m, backfill=READ_4.backfill)),
    ("consumed_agrees_with_sources", SECOND, THIRD, lambda m: replace(m, consumed=READ_4.consumed)),
    ("late_rows_are_those_of_the_inputs", SECOND, THIRD, lambda m: statistics(m, late_rows_by_input=(1, 2))),
    ("an_epoch_has_one_nonce", THIRD, OPENED, lambda m: replace(m, shown_nonce=None)),
    ("retained_are_in_order", SECOND, THIRD, lambda m: replace(m, retained=m.retained[::-1])),
    ("retained_are_in_order", THIRD, BACK, lambda m: replace(m, abandoned=())),
    ("the_shown_epoch_is_retained", THIRD, BACK, lambda m: replace(m, abandoned=(EpochRange(m.epoch, THIRD.epoch),))),
    ("the_shown_epoch_is_retained", SECOND, THIRD, lambda m: replace(m, retained=m.retained[:-1])),
    ("lists_are_bounded", SECOND, THIRD, lambda m: replace(m, rollbacks=("r",) * (ROLLBACKS_MAX + 1))),
    ("first_is_empty", None, FIRST, lambda m: replace(m, version=Version(2))),
    ("first_is_empty", None, FIRST, lambda m: replace(m, kind=ManifestKind.EPOCH)),
    ("first_is_empty", None, FIRST, lambda m: runs(m, a_run(1, 1, 0))),
    *(
        ("a_forks_first_is_its_ancestors", None, FORKED, edit)
        for edit in (
            lambda m: replace(m, version=Version(2)),
            lambda m: replace(m, owner=OWNER),
            lambda m: replace(m, ancestors=()),
            lambda m: replace(m, sinks=(SinkMark("s", Epoch(1), Version(1)),)),
            lambda m: replace(m, epoch=Epoch(0)),
            lambda m: replace(m, retained=THIRD.retained),
            lambda m: replace(m, changes=THIRD.changes),
            lambda m: replace(m, rollbacks=("r",)),
            lambda m: runs(m, a_run(1, 1, 0)),
        )
    ),
    ("a_forks_first_is_its_ancestors", None, FORKED_EMPTY, lambda m: replace(m, sources=THIRD.sources)),
    ("ancestors_stay_the_same", FORKED, FORK_OPENED, lambda m: replace(m, ancestors=())),
    ("version_is_the_next", SECOND, THIRD, lambda m: replace(m, version=Version(4))),
    ("parent_is_named", SECOND, THIRD, lambda m: replace(m, parent=Version(1))),
    ("parent_is_named", SECOND, THIRD, lambda m: replace(m, parent_nonce=None)),
    ("parent_is_named", THIRD, BACK, lambda m: replace(m, parent_nonce=SECOND.nonce)),
    ("nonce_is_new", SECOND, THIRD, lambda m: replace(m, nonce=SECOND.nonce)),
    ("stream_stays_itself", SECOND, THIRD, lambda m: replace(m, uuid=StreamUuid("v"))),
    ("stream_stays_itself", SECOND, THIRD, lambda m: replace(m, stream="b")),
    ("shards_are_the_parents", SECOND, THIRD, lambda m: replace(m, shards=4, runs={"total": m.runs["total"] * 2})),
    ("abandoned_stay_abandoned", BACK, AFTER, lambda m: replace(m, abandoned=())),
    ("rollbacks_are_remembered", BACK, AFTER, lambda m: replace(m, rollbacks=())),
    ("rollbacks_are_remembered", THIRD, BACK, lambda m: replace(m, rollbacks=("a", "b"))),
    ("term_is_the_parents", SECOND, THIRD, lambda m: replace(m, term=Term(2))),
    ("writer_is_the_parents", SECOND, THIRD, lambda m: replace(m, owner=replace(OWNER, instance="x"))),
    ("writer_is_the_parents", SECOND, THIRD, lambda m: replace(m, pipeline=replace(PIPELINE, keys=("x",)))),
    ("watermark_does_not_go_back", SECOND, THIRD, lambda m: replace(m, watermark_us=SECOND.watermark_us and 1)),
    ("watermark_does_not_go_back", SECOND, THIRD, lambda m: replace(m, watermark_us=None)),
    ("emits_up_to_the_parents_watermark", SECOND, THIRD, lambda m: replace(m, harvested_us=m.watermark_us and 1)),
    ("event_times_do_not_go_back", SECOND, THIRD, lambda m: replace(m, event_times_us=(1,))),
    ("event_times_do_not_go_back", SECOND, THIRD, lambda m: replace(m, event_times_us=())),
    ("runs_are_the_parents_or_new", SECOND, THIRD, lambda m: runs(m, a_run(1, 4, 0, 2))),
    ("runs_are_the_parents_or_new", SECOND, THIRD, lambda m: runs(m, a_run(2, 3, 0, 2))),
    ("runs_are_the_parents_or_new", SECOND, THIRD, lambda m: runs(m, SECOND.runs["total"][1][0])),
    ("runs_are_the_parents_or_new", SECOND, THIRD, lambda m: runs(m, replace(a_run(1, 3, 0), path="state/x.arrow"))),
    ("files_are_the_parents_or_merged", SECOND, THIRD, lambda m: files(m, *TWO_FILES.files.tail)),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: files(m, *m.files.tail[1:])),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: files(m, *m.files.tail[:-1])),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: files(m, *m.changes)),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: files(m, *m.files.tail[::-1])),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: files(m, *m.changes, *m.files.tail)),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, files),
    ("files_are_the_parents_or_merged", TWO_FILES, FOUR_FILES, lambda m: with_file(m, 3, rows=6)),
    ("files_are_the_parents_or_merged", EMPTY_TABLE, TWO_FILES, lambda m: files(m, m.changes[1])),
    ("files_are_the_parents_or_merged", EMPTY_TABLE, TWO_FILES, lambda m: files(m, *m.changes[::-1])),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: with_file(m, 1, rows=9)),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: with_file(m, 1, rows=11)),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: with_file(m, 1, path="table/1/1-3-0-0.parquet")),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: with_file(m, 0, path=m.files.tail[1].path)),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: with_file(m, 2, rows=6)),
    ("files_are_the_parents_or_merged", FOUR_FILES, MERGED, lambda m: files(m, index=(spilled(7),))),
    ("batch_follows", SECOND, THIRD, lambda m: replace(m, batch_id=3)),
    ("batch_follows", SECOND, THIRD, lambda m: replace(m, batch_id=0)),
    ("batch_follows", SECOND, THIRD, lambda m: replace(m, batch_id=None)),
    ("sources_read_on", SECOND, THIRD, lambda m: replace(m, sources=())),
    ("sources_read_on", SECOND, THIRD, lambda m: replace(m, sources=(SourcePosition(SOURCE, "9", "7"),))),
    ("sources_read_on", FIRST, SECOND, lambda m: replace(m, sources=(SourcePosition(SOURCE, "9", "7"),))),
    (
        "sources_read_on",
        SECOND,
        THIRD,
        lambda m: replace(m, sources=tuple(replace(s, after_table=True) for s in m.sources)),
    ),
    ("sources_read_on", SECOND, THIRD, lambda m: with_table(m, InitialTable(1))),
    (
        "sources_read_on",
        AFTER_TABLE,
        epoch_manifest(AFTER_TABLE, an_edit(AFTER_TABLE), 5, stamp(3)),
        with_table,
    ),
    ("sources_read_on", AFTER_TABLE_EMPTIED, AFTER_TABLE_AGAIN, with_table),
    ("sources_read_on", AFTER_TABLE_EMPTIED, AFTER_TABLE_AGAIN, lambda m: with_table(m, InitialTable(2))),
    ("epoch_0_begins_where_the_stream_began", AFTER_TABLE_OPENED, AFTER_TABLE_EMPTIED, with_table),
    ("sources_read_on", BEGUN, epoch_manifest(BEGUN, an_edit(BEGUN), 5, stamp(3)), lambda m: m),
    ("epoch_0_begins_where_the_stream_began", BEGUN, BEGUN_AGAIN, lambda m: replace(m, sources=())),
    ("epoch_0_begins_where_the_stream_began", BEGUN, BEGUN_AGAIN, lambda m: replace(m, sources=THIRD.sources)),
    ("consumed_reads_on", READ_6, having_read(READ_6, UpstreamPosition(StreamUuid("up"), Epoch(5))), lambda m: m),
    ("consumed_reads_on", READ_6, having_read(READ_6, UpstreamPosition(StreamUuid("new"), Epoch(7))), lambda m: m),
    ("consumed_reads_on", READ_4, READ_6, lambda m: replace(m, consumed=())),
    ("retained_grow_by_one", SECOND, THIRD, lambda m: replace(m, retained=(m.retained[-1], m.retained[-1]))),
    ("statistics_add_up", SECOND, THIRD, lambda m: statistics(m, total_rows_in=1)),
    ("statistics_add_up", SECOND, THIRD, lambda m: statistics(m, total_rows_out=-1)),
    ("statistics_add_up", SECOND, THIRD, lambda m: statistics(m, total_late_rows=-1)),
    ("statistics_add_up", SECOND, THIRD, lambda m: statistics(m, total_epochs=1)),
    ("statistics_add_up", SECOND, THIRD, lambda m: statistics(m, state_rows=-1)),
    ("nothing_is_undone", SECOND, THIRD, lambda m: replace(m, abandoned=(EpochRange(Epoch(1), Epoch(1)),))),
    ("term_is_its_own_version", THIRD, OPENED, lambda m: replace(m, term=Term(1))),
    ("term_is_its_own_version", THIRD, BACK, lambda m: replace(m, term=Term(3))),
    ("an_opening_shows_what_was_there", THIRD, OPENED, lambda m: replace(m, epoch=Epoch(2))),
    ("an_opening_shows_what_was_there", THIRD, OPENED, lambda m: replace(m, sources=SECOND.sources)),
    ("an_opening_shows_what_was_there", THIRD, OPENED, lambda m: replace(m, kind=ManifestKind.FORK)),
    (
        "an_opening_shows_what_was_there",
        READ_6,
        opening_manifest(READ_6, OWNER, PIPELINE, stamp(9)),
        lambda m: replace(m, consumed=()),
    ),
    ("an_opening_shows_what_was_there", THIRD, BACK, lambda m: replace(m, epoch=Epoch(1))),
    ("an_opening_shows_what_was_there", THIRD, BACK, lambda m: replace(m, abandoned=())),
    (
        "an_opening_shows_what_was_there",
        THIRD,
        OPENED,
        lambda m: replace(m, shards=4, runs={"total": m.runs["total"] * 2}),
    ),
    ("term_is_the_parents", THIRD, RESHARDED, lambda m: replace(m, term=Term(4))),
    ("writer_is_the_parents", THIRD, RESHARDED, lambda m: replace(m, owner=replace(OWNER, instance="x"))),
    ("a_reshard_shows_what_was_there", THIRD, RESHARDED, lambda m: replace(m, changes=())),
    ("a_reshard_shows_what_was_there", THIRD, RESHARDED, lambda m: replace(m, sources=SECOND.sources)),
    ("a_reshard_shows_what_was_there", THIRD, RESHARDED, lambda m: statistics(m, state_rows=1)),
    ("a_reshard_shows_what_was_there", THIRD, RESHARDED, lambda m: replace(m, retained=m.retained[1:])),
    ("a_reshard_moves_no_row", THIRD, RESHARDED, lambda m: replace(m, shards=2, runs=THIRD.runs)),
    ("a_reshard_moves_no_row", THIRD, RESHARDED, lambda m: replace(m, runs={"total": m.runs["total"][::-1]})),
    ("a_reshard_moves_no_row", THIRD, RESHARDED, lambda m: replace(m, runs={"total": ((), *m.runs["total"][1:])})),
    ("a_reshard_moves_no_row", TIMED, OF_A_TIMELINE, lambda m: replace(m, runs={"total": TIMED.runs["total"] * 2})),
    ("retained_only_shrink", THIRD, OPENED, lambda m: replace(m, retained=AFTER.retained)),
    ("ancestors_stay_the_same", THIRD, SWAPPED, lambda m: replace(m, ancestors=())),
    (
        "ancestors_stay_the_same",
        THIRD,
        SWAPPED,
        lambda m: replace(m, ancestors=(replace(m.ancestors[0], swapped=False),)),
    ),
    (
        "ancestors_stay_the_same",
        THIRD,
        SWAPPED,
        lambda m: replace(m, ancestors=(replace(m.ancestors[0], handover=None),)),
    ),
    ("term_is_its_own_version", THIRD, SWAPPED, lambda m: replace(m, term=THIRD.term)),
    ("an_epochs_changes_are_new", THIRD, SWAPPED, lambda m: replace(m, changes=(a_change(1, 4, 0),))),
    ("a_swap_shows_what_was_built_beside", THIRD, SWAPPED, lambda m: replace(m, runs=THIRD.runs)),
    ("a_swap_shows_what_was_built_beside", THIRD, SWAPPED, lambda m: replace(m, pipeline=APPEND)),
    ("a_swap_goes_back_in_no_source", THIRD, SWAPPED, lambda m: replace(m, sources=SECOND.sources)),
    ("retained_grow_by_one", THIRD, SWAPPED, lambda m: replace(m, retained=THIRD.retained)),
]


@pytest.mark.parametrize(("rule", "parent", "child", "edit"), BROKEN)
def test_a_broken_rule_is_named_and_the_manifest_not_created(
    rule: str, parent: Manifest | None, child: Manifest, edit: Edit
) -> None:
    assert rule in violations(parent, edit(child))
    with pytest.raises(AssertionError, match=rf"was not created.* broken=\[.*{rule}"):
        check_successor(parent, edit(child))


def test_each_rule_has_a_mistake_that_it_catches() -> None:
    rules = {
        name
        for module in (manifest_rules, well_formed)
        for name, member in vars(module).items()
        if inspect.isfunction(member) and member.__module__ == module.__name__
        if inspect.signature(member).return_annotation is bool and not name.startswith("_") and name != "is_new"
    }
    assert {rule for rule, *_ in BROKEN} == rules


def test_each_rule_that_is_written_is_also_applied() -> None:
    applied = {rule.__name__ for rules in [well_formed._FORMS, manifest_rules._ALWAYS] for rule in rules}
    of_kinds = [*manifest_rules._OF_KIND.values(), manifest_rules._OF_OPENING]
    applied |= {rule.__name__ for rules in of_kinds for rule in rules}
    firsts = {"first_is_empty", "a_forks_first_is_its_ancestors"}
    assert applied | firsts == {rule for rule, *_ in BROKEN}


def test_a_wider_merge_range_or_a_dropped_run_is_the_parents_own() -> None:
    kept = SECOND.runs["total"][0][0]
    assert violations(SECOND, runs(THIRD, replace(kept, moved_hi=7))) == []
    assert violations(SECOND, runs(THIRD)) == []


def test_shards_share_a_run_and_its_bytes_count_once() -> None:
    child = shared(THIRD, HashRange(0, 4), HashRange(5, 9))
    assert violations(SECOND, child) == []
    acks = tuple(
        ShardAck(
            Shard(shard), tables=(ShardRuns("total", child.runs["total"][shard]),), merged_rows=3, stall_ms=2 + shard
        )
        for shard in range(2)
    )
    statistics = epoch_manifest(SECOND, replace(an_edit(SECOND), acks=acks), 5, stamp(3)).statistics
    assert (statistics.state_bytes, statistics.merged_rows, statistics.stall_ms) == (1000, 6, 3), (
        "tasks wait side by side"
    )


def test_an_epoch_of_the_drivers_own_keeps_batch_and_positions() -> None:
    edit = an_edit(SECOND, batch_id=SECOND.batch_id, sources=SECOND.sources)
    assert violations(SECOND, epoch_manifest(SECOND, edit, 5, stamp(3))) == []


def test_the_lists_of_the_past_are_bounded() -> None:
    manifest, rounds = FIRST, ABANDONED_MAX + 3
    for number in range(rounds):
        kept = epoch_manifest(manifest, an_edit(manifest), 5, stamp(10 + 3 * number))
        given_up = epoch_manifest(kept, an_edit(kept), 5, stamp(11 + 3 * number))
        manifest = rollback_manifest(
            opening_manifest(given_up, OWNER, PIPELINE, stamp(12 + 3 * number)), kept, f"run-{number}"
        )
        if number > ABANDONED_MAX - 3 or number < 3:
            assert violations(given_up, manifest) == []
    assert len(manifest.rollbacks) == ROLLBACKS_MAX
    assert manifest.rollbacks[-1] == f"run-{rounds - 1}"
    assert len(manifest.abandoned) == ABANDONED_MAX
    assert manifest.abandoned[-1] == EpochRange(Epoch(manifest.version - 1), Epoch(manifest.version - 1))
    # The oldest ranges are joined, with the epochs below and between: a reader that is there must not continue.
    oldest, next_one = manifest.abandoned[:2]
    assert (oldest.first, oldest.last + 3) == (EMPTY, next_one.first)
    assert all(is_abandoned(manifest, epoch) for epoch in range(oldest.last + 1))
    assert not is_abandoned(manifest, oldest.last + 1)
    # Epoch 0 can be gone back to all the same, and is no doubtful one then: all that was is left behind.
    emptied = rollback_manifest(opening_manifest(manifest, OWNER, PIPELINE, stamp(9)), None, "run")
    assert violations(manifest, emptied) == []
    assert emptied.abandoned == (EpochRange(Epoch(1), manifest.abandoned[-1].last),)
